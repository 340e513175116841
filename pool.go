package declock

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/declock/declock/cn"
	"github.com/declock/declock/fabric"
)

// Defaults of WithSessions and WithLockSessions.
const (
	defaultSessions     = 128
	defaultLockSessions = 1024
)

// stallAfter is how long Lock waits for a session while none comes back.
const stallAfter = 5 * time.Second

// ErrNoSession: all sessions that [WithLockSessions] admits hold locks or wait for some, and for 5 seconds none has come back. Goroutines that hold
// a lock and ask for another one bring that about: take all that is needed with [Cluster.LockAll], or in [Cluster.Use], or admit more.
var ErrNoSession = errors.New("declock: no session is free")

// A pool has sessions for callers that have none of their own. The one given back last is the next to be taken: its memory is in the
// processor's caches. Callers that find none are served in the order in which they came.
//
// A Cluster has two: one for operations on stores and trees, which give their session back before they return, so that their
// callers never wait for each other in a circle; and one for locks, whose guards keep their session until Unlock. Functions given to Store.Use and
// Store.Update run while a session of the first is out, and so must not use the cluster, nor wait for what does. The sequences of a
// bulk load may: it opens sessions of its own (shared.apart). Other user code, such as readers and writers of large values, runs between operations.
type pool struct {
	c       *Cluster
	guarded bool // sessions are out for as long as their users like: see ErrNoSession

	mu      sync.Mutex
	most    int  // sessions, at most
	open    int  // sessions, and places for such as are just being opened
	full    bool // there was no room for another session a moment ago: grow looks again
	free    []*worker
	waiting list.List // of chan *worker, each with room for one; nil: the pool is closed
	back    uint64    // how often a session has come back
	closed  bool
}

// roomAfter is how long a pool goes on with what it has when there is no room for another session.
const roomAfter = 50 * time.Millisecond

// A worker is a session of a pool, with its clients of stores and trees.
type worker struct {
	home    *pool
	s       *Session                // nil: a place of the pool for which a session is to be opened
	changes uint64                  // Cluster.changes when the session was looked after last
	lost    int                     // Cluster.losses when it was opened
	clients map[uint64]pooledClient // by shared.number
}

// take returns a worker for the caller alone, until give. It waits for one until ctx ends.
func (p *pool) take(ctx context.Context) (*worker, error) {
	var w *worker
	p.mu.Lock()
	if n := len(p.free); n > 0 {
		w, p.free = p.free[n-1], p.free[:n-1]
	}
	p.mu.Unlock()
	if w != nil && w.changes == p.c.changes.Load() {
		return w, nil
	}
	return p.takeLater(ctx, w)
}

// takeLater is take when none is ready. w, if not nil, has been taken.
func (p *pool) takeLater(ctx context.Context, w *worker) (_ *worker, err error) {
	for first := false; ; first = true {
		if w == nil {
			if w, err = p.next(ctx, first); err != nil {
				return nil, err
			}
		}
		if err = w.renew(ctx); err == nil {
			return w, nil
		}
		p.mu.Lock()
		wait := p.failed(err)
		p.mu.Unlock()
		if !wait {
			return nil, err
		}
		w = nil
	}
}

// next takes a worker, which may be a place, or waits for one, before all others if first.
func (p *pool) next(ctx context.Context, first bool) (*worker, error) {
	p.mu.Lock()
	switch n := len(p.free); {
	case p.closed:
		p.mu.Unlock()
		return nil, errPoolClosed
	case n > 0:
		w := p.free[n-1]
		p.free = p.free[:n-1]
		p.mu.Unlock()
		return w, nil
	case p.open < p.most && !p.full && p.waiting.Len() == 0:
		p.open++
		p.mu.Unlock()
		return &worker{home: p}, nil
	}
	return p.await(ctx, first)
}

var errPoolClosed = fmt.Errorf("%w: the cluster", ErrClosed)

// failed ends a place for which no session could be opened, because of err. It reports whether to wait for another worker. mu is held.
func (p *pool) failed(err error) (wait bool) {
	if p.open == 1 || !errors.Is(err, fabric.ErrTooManyClients) && !errors.Is(err, cn.ErrTooManySessions) {
		p.pass(&worker{home: p}) // the first that waits finds out by itself
		return false
	}
	p.open--
	if !p.full {
		p.full = true
		time.AfterFunc(roomAfter, p.grow)
	}
	return true
}

// grow opens sessions for those that wait because there was no room, if there is some now.
func (p *pool) grow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.full = false
	for !p.closed && !p.full && p.open < p.most && p.waiting.Len() > 0 {
		p.open++
		p.mu.Unlock()
		w := &worker{home: p}
		err := w.renew(context.Background())
		p.mu.Lock()
		if err == nil {
			p.pass(w)
		} else {
			p.failed(err)
		}
	}
}

// await waits for a worker that comes back, before all others if first. mu is held, and is not afterwards.
func (p *pool) await(ctx context.Context, first bool) (*worker, error) {
	mine := make(chan *worker, 1)
	e, back := p.waiting.PushBack(mine), p.back
	if first {
		p.waiting.MoveToFront(e)
	}
	p.mu.Unlock()
	var stall <-chan time.Time
	if p.guarded {
		t := time.NewTicker(stallAfter)
		defer t.Stop()
		stall = t.C
	}
	for {
		var err error
		select {
		case w := <-mine:
			if w == nil {
				return nil, errPoolClosed
			}
			return w, nil
		case <-ctx.Done():
			err = fmt.Errorf("declock: waiting for a session: %w", cn.Ended(ctx))
		case <-stall:
		}
		p.mu.Lock()
		if err == nil {
			if p.back != back {
				back = p.back
				p.mu.Unlock()
				continue
			}
			err = fmt.Errorf("%w: all %d hold locks or wait for some (WithLockSessions), and %d goroutines wait for one", ErrNoSession, p.open, p.waiting.Len())
		}
		p.waiting.Remove(e)
		select {
		case w := <-mine: // it came at the same time
			if w != nil {
				p.pass(w)
			}
		default:
		}
		p.mu.Unlock()
		return nil, err
	}
}

// give takes a worker back.
func (p *pool) give(w *worker) {
	p.mu.Lock()
	p.pass(w)
	p.mu.Unlock()
}

// pass hands a worker or a place to the first that waits, or keeps the worker. mu is held.
func (p *pool) pass(w *worker) {
	p.back++
	switch e := p.waiting.Front(); {
	case e != nil:
		p.waiting.Remove(e).(chan *worker) <- w
	case w.s == nil || p.closed:
		p.open--
	default:
		p.free = append(p.free, w)
	}
}

// lose is give for a worker that is of no more use. Its place is that of the first that waits.
func (p *pool) lose() {
	p.give(&worker{home: p})
}

// keep makes a session that has been opened for something else the pool's first one. If the pool has one already, it is closed.
func (p *pool) keep(w *worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open > 0 || p.closed {
		defer w.s.Close()
		return
	}
	p.open++
	p.pass(w)
}

// close has all that wait, and all that come later, find the pool closed. Its sessions are closed with the others of the cluster.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed, p.free = true, nil
	for p.waiting.Len() > 0 {
		p.waiting.Remove(p.waiting.Front()).(chan *worker) <- nil
	}
}

// renew gives the worker a session. If memory has been lost since it was opened, it is a new one: one session would
// be notified of a loss after the other, for as long as there are such that have not been used since. Clients are closed then, and when something that was
// dropped has been let go: they keep memory.
func (w *worker) renew(ctx context.Context) error {
	c := w.home.c
	now := c.changes.Load()
	if w.s != nil && w.changes == now {
		return nil
	}
	lost := c.losses()
	if w.s != nil {
		w.closeClients(ctx)
		if w.changes = now; w.lost == lost {
			return nil
		}
		if err := w.s.Close(); err != nil && !errors.Is(err, ErrClosed) {
			return err
		}
	}
	s, err := c.Session()
	if err != nil {
		return err
	}
	s.w = w
	w.s, w.changes, w.lost, w.clients = s, now, lost, map[uint64]pooledClient{}
	return nil
}

// closeClients closes the worker's clients, which gives back what they keep.
func (w *worker) closeClients(ctx context.Context) {
	begun, _ := w.s.s.Begin(ctx) // else it has ended, and bounds nothing
	for _, k := range w.clients {
		k.close()
	}
	clear(w.clients)
	_ = w.s.s.End(ctx, begun, nil)
}

// end closes the session of a worker that is of no pool, unless a panic has left it in the middle of an operation.
func (w *worker) end(ctx context.Context) {
	if !w.s.use.Busy() {
		stop := context.AfterFunc(ctx, w.s.Port().Interrupt)
		defer stop()
		w.closeClients(ctx)
		_ = w.s.Close()
	}
}

// Use calls f with a session that no other goroutine uses meanwhile, and waits for one until ctx ends: for several operations in a row, or for locks that
// are taken one after the other. The session, and what is made from it, is not used after f has returned: locks that it still holds then are released, and the
// error says so (ErrHeld).
func (c *Cluster) Use(ctx context.Context, f func(s *Session) error) (err error) {
	w, err := c.guards.take(ctx)
	if err != nil {
		return err
	}
	defer func() { // also when f panics
		switch {
		case w.s.use.Busy(): // in the middle of an operation
			w.home.lose()
		case len(w.s.s.Holding()) > 0:
			err = errors.Join(err, w.s.Close())
			w.home.lose()
		default:
			w.home.give(w)
		}
	}()
	return f(w.s)
}
