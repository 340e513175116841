package inbox

import (
	"os"
	"sync"

	"github.com/declock/declock/fabric"
	"golang.org/x/sys/unix"
)

// An alarm ends short waits on time. The timers of Go are a millisecond late
// when the process is idle, because it then sleeps in epoll_wait, which counts
// in milliseconds; a lock that backs off for 50 microseconds cannot use that.
// A timerfd is exact, and wakes the same epoll_wait.
//
// When the process is busy it is the other way round: Go looks at its own timers
// first. Short waits therefore set both.
type alarm struct {
	host Host

	mu    sync.Mutex
	heap  []alarmEntry // by time
	armed fabric.Time  // when the timerfd fires; 0: it does not
	fd    int
	file  *os.File // of fd; nil until the first wait, or if there is none to be had
	tried bool
	ended bool
	done  sync.WaitGroup
}

type alarmEntry struct {
	at  fabric.Time
	box *Box
}

// open makes the timerfd, once; mu is held.
func (a *alarm) open() bool {
	if !a.tried && !a.ended {
		a.tried = true
		fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
		if err == nil {
			a.fd = fd
			a.file = os.NewFile(uintptr(fd), "timerfd")
			a.done.Go(a.run)
		}
	}
	return a.file != nil && !a.ended
}

// set makes box.expire run at a time, if there is a timerfd.
func (a *alarm) set(at fabric.Time, box *Box) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.open() {
		return
	}
	a.push(alarmEntry{at, box})
	if a.armed == 0 || at < a.armed {
		a.arm(at)
	}
}

// arm makes the timerfd fire at a time; mu is held.
func (a *alarm) arm(at fabric.Time) {
	a.armed = at
	left := max(at-a.host.Now(), 1)
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(left))}
	// It can only fail for a bad argument; then Go's timer does it.
	_ = unix.TimerfdSettime(a.fd, 0, &spec, nil)
}

// run expires boxes until the alarm is closed.
func (a *alarm) run() {
	var count [8]byte
	var due []*Box
	for {
		if _, err := a.file.Read(count[:]); err != nil {
			return
		}
		a.mu.Lock()
		a.armed = 0
		for now := a.host.Now(); len(a.heap) > 0 && a.heap[0].at <= now; {
			due = append(due, a.pop().box)
		}
		if len(a.heap) > 0 && !a.ended {
			a.arm(a.heap[0].at)
		}
		a.mu.Unlock()
		for i, b := range due {
			b.expire()
			due[i] = nil
		}
		due = due[:0]
	}
}

// close ends the goroutine, and waits for it.
func (a *alarm) close() {
	a.mu.Lock()
	a.ended = true
	a.heap = nil
	if a.file != nil {
		_ = a.file.Close()
	}
	a.mu.Unlock()
	a.done.Wait()
}

func (a *alarm) push(e alarmEntry) {
	h := append(a.heap, e)
	i := len(h) - 1
	for ; i > 0 && h[(i-1)/2].at > e.at; i = (i - 1) / 2 {
		h[i] = h[(i-1)/2]
	}
	h[i] = e
	a.heap = h
}

func (a *alarm) pop() alarmEntry {
	h := a.heap
	first, e := h[0], h[len(h)-1]
	h[len(h)-1] = alarmEntry{}
	h = h[:len(h)-1]
	i := 0
	for {
		child := 2*i + 1
		if child+1 < len(h) && h[child+1].at < h[child].at {
			child++
		}
		if child >= len(h) || h[child].at >= e.at {
			break
		}
		h[i] = h[child]
		i = child
	}
	if len(h) > 0 {
		h[i] = e
	}
	a.heap = h
	return first
}
