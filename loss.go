package declock

import (
	"sync"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// watches has the grants of which guards have asked to be notified of the loss: Guard.Lost.
type watches struct {
	mu sync.Mutex
	of map[grant]*watch
	// Of lookForCutOff:
	looking bool
	every   time.Duration
	running sync.WaitGroup
	ended   chan struct{} // closed by endLooking
}

// A grant names what a Loss is of. Holders of a lock in common have it in common.
type grant struct {
	lock  fabric.Addr
	token lock.Token
}

// A watch notifies the guards of a grant.
type watch struct {
	grant
	lost   chan struct{}
	closed bool
	guards int
}

// over is the channel of what is not held.
var over = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Lost returns a channel that is closed when the lock is lost, as WithOnLoss says: its memory node has restarted, or the cluster has declared this process
// dead. Others may hold the lock soon after, so what the guard's owner still does has to refuse itself, or be refused by older fencing tokens (Token). It is closed as soon as this process
// finds out, at a failed operation or within a second. Unlock does not close it, but when called after Unlock, Lost returns a closed one. Close of the guard's session, or of the cluster,
// is a loss to a guard, too, unless another guard of this process holds the lock in common.
//
// Over TCP and RDMA it is also closed when the process cannot find out: its lease has run out, for it reaches no coordinator, and the lock's memory node does not answer for a second, or
// for as long there is no room for a client to ask with (fabric.ErrTooManyClients).
// The lock may be another's then. WithOnLoss is not called for that, and if both come back an Unlock that succeeds says that the lock has been held all the time.
func (g Guard) Lost() <-chan struct{} {
	if g.s == nil {
		return over
	}
	l := &g.s.c.watches
	l.mu.Lock()
	defer l.mu.Unlock()
	if !g.current() || g.h.closed {
		return over
	}
	w := g.h.watch.Load()
	if w == nil {
		w = l.watch(grant{g.h.Lock, g.h.Token})
		g.h.watch.Store(w)
		l.lookForCutOff(g.s.c)
		if !g.current() { // Unlock has not seen it, perhaps
			l.forget(g.h.watch.Swap(nil))
			return over
		}
	}
	if g.s.s.Lost(&g.h.Hold) { // before the watch was there
		w.close()
	}
	return w.lost
}

// watch returns the watch of a grant, for one guard more. mu is held.
func (l *watches) watch(of grant) *watch {
	if l.of == nil {
		l.of = map[grant]*watch{}
	}
	w := l.of[of]
	if w == nil {
		w = &watch{grant: of, lost: make(chan struct{})}
		l.of[of] = w
	}
	w.guards++
	return w
}

// forget ends the watch of one guard. mu is held.
func (l *watches) forget(w *watch) {
	if w == nil {
		return
	}
	if w.guards--; w.guards == 0 {
		delete(l.of, w.grant)
	}
}

// report is called with each loss.
func (l *watches) report(x lock.Loss) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.of[grant{x.Lock, x.Token}]; w != nil {
		w.close()
	}
}

// close notifies the guards. mu of watches is held.
func (w *watch) close() {
	if !w.closed {
		w.closed = true
		close(w.lost)
	}
}

// unwatch ends the watch of a guard that is unlocked.
func (g *Guard) unwatch() {
	if g.h.watch.Load() == nil {
		return
	}
	l := &g.s.c.watches
	l.mu.Lock()
	l.forget(g.h.watch.Swap(nil))
	l.mu.Unlock()
}

// end ends the watch of a guard that Close has unlocked.
func (l *watches) end(h *hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h.closed = true
	if w := h.watch.Swap(nil); w != nil {
		if w.guards == 1 {
			w.close()
		}
		l.forget(w)
	}
}
