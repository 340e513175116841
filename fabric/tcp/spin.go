package tcp

import (
	"bytes"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/inbox"
	"golang.org/x/sys/unix"
)

// patience is how long a waiter spins before it parks. By far the most of a short park is the wakeup: an answer that comes after 30 microseconds wakes
// a parked waiter after 100 to 200, and must make it spin longer, not shorter.
var patience = inbox.Patience{Min: 4 * fabric.Microsecond, Max: 100 * fabric.Microsecond, Short: 400 * fabric.Microsecond}

const (
	// A spinning waiter counts the machine's runnable threads so often, all of a process together.
	countEvery = 20 * time.Microsecond
	// crowdedFor is how long waiters do not spin after there were more of them than processors.
	crowdedFor = 500 * time.Microsecond
)

// A crowding records whether more threads want a processor than there are processors. Then spinning is worse than useless:
// it takes the processor from whoever is to answer, and a waiter that has burned its time is last in line when the answer comes.
type crowding struct {
	count func() int // runnable threads of the machine
	most  int        // processors
	procs func() int // of this process: how many threads run its goroutines
	begun time.Time
	next  atomic.Int64 // when to count again, in nanoseconds since begun
	until atomic.Int64 // no waiter spins before
}

// machine is the crowding of this machine.
var machine = crowding{count: runnableThreads(), most: runtime.NumCPU(), procs: func() int { return runtime.GOMAXPROCS(0) }, begun: time.Now()}

// crowded reports whether waiters should park at once.
func (c *crowding) crowded() bool {
	now := int64(time.Since(c.begun))
	if now < c.until.Load() {
		return true
	}
	next := c.next.Load()
	if now < next || !c.next.CompareAndSwap(next, now+int64(countEvery)) || c.count() <= c.room() {
		return false
	}
	c.until.Store(now + int64(crowdedFor))
	return true
}

// room returns how many threads may want a processor while waiters spin. A process that runs goroutines in several threads may have one more than there are processors: what
// its own goroutines do is short, and the spinning waiter is still there when they have posted something. Parked, it is woken after 100 microseconds for what took 20.
func (c *crowding) room() int {
	if c.procs() > 1 {
		return c.most + 1
	}
	return c.most
}

// runnableThreads returns a function that counts the threads of this machine that run or want to, which takes a microsecond. It returns 0 where that
// is not known.
func runnableThreads() func() int {
	fd, err := unix.Open("/proc/loadavg", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return func() int { return 0 }
	}
	return func() int {
		var text [64]byte
		n, err := rawPread(fd, text[:])
		if err != nil {
			return 0
		}
		return parseRunnable(text[:n])
	}
}

// parseRunnable returns how many threads are runnable: of "0.20 0.18 0.12 3/80 11206", 3.
func parseRunnable(loadavg []byte) int {
	before, _, _ := bytes.Cut(loadavg, []byte{'/'})
	n, _ := strconv.Atoi(string(before[bytes.LastIndexByte(before, ' ')+1:]))
	return n
}

// A spinner decides for a waiter between another round and a park. The zero value is ready.
type spinner struct {
	alone bool        // no other goroutine of the process waits for this one to let it run
	limit fabric.Time // how long it spins
	until fabric.Time // of this spin; 0: it has not begun
}

// found notes that a round has found something.
func (k *spinner) found() { k.until = 0 }

// again is called before each round. It reports whether the waiter should look without waiting; else it is time to park.
//
// Before the first round of each wait others of the process run: what they post goes along, and the one that a lock was handed to must not
// wait for a round trip of the one that handed it over.
func (k *spinner) again(now fabric.Time) bool {
	if k.until == 0 {
		if !k.alone {
			runtime.Gosched()
		}
		k.limit = max(k.limit, patience.Min)
		k.until = now + k.limit
	} else if now >= k.until {
		k.until = 0
		return false
	}
	if machine.crowded() {
		k.until = 0
		return false
	}
	return true
}

// parked notes how long a park was.
func (k *spinner) parked(d fabric.Time) { k.limit = patience.Next(k.limit, d) }
