package tcp

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/declock/declock/fabric"
)

// An operation is in limbo when its client has got fabric.ErrUnknownOutcome and it may still take effect: its connection has
// broken, and the memory node has not said that it has cut it (it stands still, say, and has the frame in its socket); or its
// client was interrupted, and has left it behind. Until that is over, nothing that this node posts to the memory node afterwards
// may overtake it, as fabric.ErrUnknownOutcome promises. On its own lane nothing does: frames keep their
// order, and a new connection cuts the old one. Chains of other lanes wait, or are refused.

// grace is for how long an interrupted client waits for a memory node that does not answer.
const grace = 5 * time.Millisecond

// backupGrace is the same for a backup, but it is at most Options.DeadAfter: what is left behind there costs a copy of the memory (memory.Backups). It is longer than a busy
// machine or two lost packets hold an answer up. Meanwhile the client has the lock of one bucket, and its caller waits, whose context has ended.
const backupGrace = time.Second

// sever notes that frames may lie in the connection that has broken.
func (l *lane) sever() {
	if !l.severed.Swap(true) {
		l.enterLimbo()
		l.r.wakeLimbo()
	}
}

// cut notes that the memory node has cut the connections of before.
func (l *lane) cut() {
	if l.severed.Swap(false) {
		l.leaveLimbo()
	}
}

func (l *lane) enterLimbo() {
	l.limbo.Add(1)
	l.r.limbo.Add(1)
}

func (l *lane) leaveLimbo() {
	l.limbo.Add(-1)
	l.r.limbo.Add(-1)
	l.r.wakeLimbo()
}

// wakeLimbo wakes the clients that wait for operations in limbo.
func (r *remote) wakeLimbo() {
	r.limboMu.Lock()
	defer r.limboMu.Unlock()
	r.settled.Broadcast()
}

// awaitLimbo waits until nothing of other lanes is in limbo. It returns an error if that may take for ever, or longer than the client
// wants to wait.
func (l *lane) awaitLimbo(c *chain) error {
	r := l.r
	r.limboMu.Lock()
	defer r.limboMu.Unlock()
	for {
		waits := false
		for _, o := range r.lanes {
			switch {
			case o == l || o.limbo.Load() <= 0:
			case o.severed.Load():
				return fmt.Errorf("%w: %v: an operation of unknown outcome may still be under way there, and its connection is not made again yet",
					fabric.ErrNodeDown, r.MN.ID)
			default:
				waits = true
			}
		}
		switch {
		case !waits || !r.Up.Load():
			return nil
		case c.limit.over.Load():
			return fmt.Errorf("%w: %v does not answer", c.limit.reason(), r.MN.ID)
		}
		r.settled.Wait()
	}
}

// leave leaves a chain behind that is under way, unless it is done. Its ops and their memory are its client's again: nothing of it is sent
// again, and its results go nowhere.
func (l *lane) leave(c *chain) bool {
	l.mu.Lock() // no frames are made of it
	defer l.mu.Unlock()
	c.results.Lock()
	defer c.results.Unlock()
	c.changes = c.modifies()
	l.left.Add(1) // before the reader can know of it, and count it down
	if c.changes {
		l.enterLimbo()
	}
	for {
		before := c.state.Load()
		if before == chainDone {
			l.arrive(c)
			return false
		}
		if c.state.CompareAndSwap(before, chainLeft) {
			break
		}
	}
	if w := l.wire.Load(); w != nil {
		w.kickPump() // it reads the answer
	}
	return true
}

// arrive notes that a chain that was left behind is over. Nothing uses it any more.
func (l *lane) arrive(c *chain) {
	l.left.Add(-1)
	if c.changes {
		l.leaveLimbo()
	}
}

// modifies reports whether a chain changes memory.
func (c *chain) modifies() bool {
	for i := range c.ops {
		if c.ops[i].Kind != fabric.OpRead {
			return true
		}
	}
	return false
}

// leave returns the outcome of a chain that was left behind.
func (p *port) leave(i uint32) error {
	c := p.chains[i]
	err := fmt.Errorf("%w: %v does not answer", c.limit.reason(), c.lane.r.MN.ID)
	if c.changes {
		err = fmt.Errorf("%w: %w", fabric.ErrUnknownOutcome, err)
	}
	p.chains[i] = nil
	return &fabric.ChainError{Op: c.all[0], Err: err}
}

// A limit bounds how long a Port that is interrupted, or closed, waits for memory nodes.
type limit struct {
	over   atomic.Bool   // it waits no more
	passed chan struct{} // gets a token then
	closed atomic.Bool   // the Port is closed, while a chain is under way

	patience time.Duration // with backups: backupGrace
	backups  atomic.Int32  // chains that are under way there

	mu    sync.Mutex
	on    bool // the Port is interrupted, or closed
	timer *time.Timer
	since time.Time // from when on the wait is bounded: once the timer has fired it cannot be stopped, and may come late
}

// Interrupt is fabric.Port.Interrupt.
func (p *port) Interrupt() {
	p.limit.mu.Lock()
	defer p.limit.mu.Unlock()
	if !p.limit.on {
		p.limit.start(p.expire)
	}
	p.Box.Interrupt() // with mu: its owner, once it wakes, clears both
}

// ClearInterrupt is fabric.Port.ClearInterrupt.
func (p *port) ClearInterrupt() {
	p.limit.mu.Lock()
	defer p.limit.mu.Unlock()
	p.Box.ClearInterrupt()
	if p.limit.on && !p.limit.closed.Load() {
		p.limit.on = false
		p.limit.timer.Stop()
		p.limit.reset()
	}
}

// reset begins anew; mu is held.
func (t *limit) reset() {
	t.over.Store(false)
	select {
	case <-t.passed:
	default:
	}
}

// pass ends waiting; mu is held.
func (t *limit) pass() {
	t.over.Store(true)
	select {
	case t.passed <- struct{}{}:
	default:
	}
}

// renew gives a chain of an interrupted Port its time; none on a lane where something was left behind: the memory node is silent.
func (t *limit) renew(l *lane) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case !t.on:
	case l.left.Load() > 0 || l.severed.Load():
		t.pass()
	default:
		t.reset()
		t.since = time.Now()
		t.timer.Reset(grace)
	}
}

// left returns how long the Port waits yet; mu is held.
func (t *limit) left() time.Duration {
	bound := grace
	if t.backups.Load() > 0 {
		bound = t.patience
	}
	return time.Until(t.since.Add(bound))
}

// expire ends the wait of a Port that is interrupted or closed.
func (p *port) expire() {
	p.limit.mu.Lock()
	left := p.limit.left()
	over := p.limit.on && left <= 0 // else it was set for a chain of before, or there is one to a backup
	switch {
	case over:
		p.limit.pass()
	case p.limit.on:
		p.limit.timer.Reset(left)
	}
	p.limit.mu.Unlock()
	if !over {
		return
	}
	for m := range p.n.Remotes {
		r := lanesOf(m)
		r.wakeLimbo()
		l := r.lanes[p.Lane%len(r.lanes)]
		if w := l.wire.Load(); w != nil {
			w.conn.unpark()
		}
		l.mu.Lock()
		l.room.Broadcast()
		l.mu.Unlock()
	}
}

// Hurry is an Interrupt that nothing clears: the Port is closed.
func (p *port) Hurry() {
	p.limit.mu.Lock()
	defer p.limit.mu.Unlock()
	p.limit.closed.Store(true)
	if !p.limit.on {
		p.limit.start(p.expire)
	}
}

// start gives a Port that is interrupted, or closed, its last time to wait; mu is held.
func (t *limit) start(expire func()) {
	t.on = true
	t.since = time.Now()
	t.timer = time.AfterFunc(grace, expire)
}

// reason returns why a Port waits no longer.
func (t *limit) reason() error {
	if t.closed.Load() {
		return fabric.ErrClosed
	}
	return fabric.ErrInterrupted
}
