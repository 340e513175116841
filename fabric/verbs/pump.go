//go:build cgo && !shmonly

package verbs

import (
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/inbox"
	"golang.org/x/sys/unix"
)

// The number of a work request says what it belongs to: the kind, then for an
// operation the chain and the operation of it, for messages the link.
//
//	 63      56 55          8 7         0
//	+----------+-------------+-----------+
//	|   kind   | chain, link | operation |
//	+----------+-------------+-----------+
const (
	kindShift = 56

	kindOperation = 1 // of a chain
	kindSend      = 2 // a message went out
	kindCredit    = 3 // a receiver has taken messages
	kindReceive   = 4 // a message came
	kindGrant     = 5 // a credit went out
)

const (
	operationEntries = 4 << 10
	messageEntries   = 4 << 10
	pollBatch        = 32

	cookieOperations = 1
	cookieMessages   = 2
)

// A completionQueue is one of the device's, and how many entries of it are spoken for.
type completionQueue struct {
	set  *completionQueues
	q    *cq // nil when it is closed
	room int

	mu  sync.Mutex // held while completions are taken and handled: they stay in order
	out [pollBatch]wc
}

// completionQueues are those of one purpose. There are as many as it takes that none
// can run over; as a rule one.
type completionQueues struct {
	p       *pump
	cookie  int64
	entries int
	list    atomic.Pointer[[]*completionQueue]
	mu      sync.Mutex // of reserve and give
}

// all returns the queues. The slice is never changed.
func (s *completionQueues) all() []*completionQueue {
	if list := s.list.Load(); list != nil {
		return *list
	}
	return nil
}

// reserve finds a queue with room for n more completions at a time.
func (s *completionQueues) reserve(d *device, n int) (*completionQueue, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.all()
	for _, c := range list {
		if c.room >= n {
			c.room -= n
			return c, nil
		}
	}
	entries := min(max(s.entries, n), int(d.caps.max_cqe))
	q, err := d.newCQ(entries, s.p.channel, s.cookie)
	if err != nil {
		return nil, err
	}
	c := &completionQueue{set: s, q: q, room: entries - n}
	list = append(list[:len(list):len(list)], c)
	s.list.Store(&list)
	if s.cookie == cookieMessages {
		armCQ(q) // the pump may be asleep
	}
	return c, nil
}

func (c *completionQueue) give(n int) {
	c.set.mu.Lock()
	defer c.set.mu.Unlock()
	c.room += n
}

// poll takes completions, unless another goroutine does, and returns how many.
func (s *completionQueues) poll() (n int) {
	for _, c := range s.all() {
		if c.mu.TryLock() {
			n += c.take()
			c.mu.Unlock()
		}
	}
	return n
}

// drain takes all completions that are there.
func (s *completionQueues) drain() (n int) {
	for _, c := range s.all() {
		c.mu.Lock()
		for k := c.take(); k > 0; k = c.take() {
			n += k
		}
		c.mu.Unlock()
	}
	return n
}

// take takes some completions; mu is held.
func (c *completionQueue) take() int {
	if c.q == nil {
		return 0
	}
	n := pollCQ(c.q, c.out[:])
	for i := range max(n, 0) {
		c.set.p.handle(&c.out[i])
	}
	return n
}

func (s *completionQueues) arm() {
	for _, c := range s.all() {
		c.mu.Lock()
		if c.q != nil {
			armCQ(c.q)
		}
		c.mu.Unlock()
	}
}

func (s *completionQueues) close() {
	for _, c := range s.all() {
		c.mu.Lock() // a client may still poll for messages
		freeCQ(c.q)
		c.q = nil
		c.mu.Unlock()
	}
}

// A pump takes completions of a compute node. Operations and messages have queues of
// their own: a client that waits for its operation polls for it, and has
// the pump woken only when that takes long; messages come at any time, so that the
// pump always hears of them. It parks when nothing comes.
type pump struct {
	n          *node
	channel    channel
	file       *os.File // of the channel, for the runtime's poller
	raw        syscall.RawConn
	operations completionQueues
	messages   completionQueues
	parked     atomic.Int32 // clients that are parked until an operation completes
	take       func(uintptr) bool
	open       bool // what take has found: whether there is a channel
	running    sync.WaitGroup
}

func newPump(n *node) (*pump, error) {
	p := &pump{n: n}
	ch, fd, err := n.dev.newChannel()
	if err != nil {
		return nil, err
	}
	p.channel = ch
	p.operations = completionQueues{p: p, cookie: cookieOperations, entries: operationEntries}
	p.messages = completionQueues{p: p, cookie: cookieMessages, entries: messageEntries}
	// A copy of the descriptor: the library closes its own.
	fd, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		ch.close()
		return nil, err
	}
	p.file = os.NewFile(uintptr(fd), "completion channel")
	p.take = func(uintptr) bool {
		cookie := p.channel.event()
		p.open = cookie >= 0
		return cookie != 0
	}
	p.raw, err = p.file.SyscallConn()
	return p, err
}

// run handles completions that no client polls for.
func (p *pump) run() {
	patience := inbox.PumpPatience()
	limit := patience.Min // it spins, and yields, for a while before it parks
	for p.spin(limit) {
		// Armed, then polled again: what comes after that wakes the pump.
		p.messages.arm()
		if p.parked.Load() > 0 {
			p.operations.arm()
		}
		if p.messages.drain()+p.operations.drain() > 0 {
			continue
		}
		begin := p.n.Now()
		if !p.wait() {
			return
		}
		limit = patience.Next(limit, p.n.Now()-begin)
	}
}

// spin handles what comes, until nothing has come for a while. It returns false
// when the node is closed.
func (p *pump) spin(limit fabric.Time) bool {
	until := p.n.Now() + limit
	for !p.n.IsClosed() {
		n := p.messages.poll()
		if p.parked.Load() > 0 {
			n += p.operations.poll()
		}
		now := p.n.Now()
		if n > 0 {
			until = now + limit
		} else if now >= until {
			return true
		}
		runtime.Gosched()
	}
	return false
}

// wait waits for an event. It returns false when the pump is closed.
func (p *pump) wait() bool {
	p.open = true
	err := p.raw.Read(p.take)
	if err == nil && p.open {
		// Others may have come along.
		for p.channel.event() > 0 {
		}
	}
	return err == nil && p.open
}

// park waits until a chain is done.
func (p *pump) park(c *chain) {
	p.parked.Add(1)
	if c.state.CompareAndSwap(chainUnderWay, chainParked) {
		// Armed, then polled again. That must not be left to another goroutine, which
		// may have polled before.
		p.operations.arm()
		p.operations.drain()
		for n := 1; !c.park(stallTime); n++ {
			p.operations.drain()
			c.lane.nudge(n >= stallLimit)
		}
	}
	p.parked.Add(-1)
}

// handle handles one completion.
func (p *pump) handle(w *wc) {
	id := w.id
	kind, owner := id>>kindShift, uint32(id>>8)
	switch kind {
	case kindOperation:
		c := p.n.chains.find(owner)
		// The state is loaded after the port has stored it: what it wrote before can be
		// read. A chain that is done has been given up, see lane.drain.
		if c == nil || c.state.Load() == chainDone {
			return
		}
		op := int(id & 0xff)
		if w.status != 0 && c.bad < 0 {
			c.bad, c.status, c.vendor = op, w.status, w.vendor
		}
		if op == c.last {
			c.lane.completed(c)
		}
	case kindSend, kindCredit:
		if l := p.n.outs.find(owner); l != nil {
			l.handle(kind, w)
		}
	case kindReceive, kindGrant:
		if l := p.n.ins.find(owner); l != nil {
			l.handle(kind, w)
		}
	}
}

// close stops the pump. All queue pairs are gone.
func (p *pump) close() {
	_ = p.file.Close()
	p.running.Wait()
	p.operations.close()
	p.messages.close()
	p.channel.close()
}
