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
	defaultSessions     = 64
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
// callers never wait for each other in a circle; and one for locks, whose guards keep their session until Unlock.
type pool struct {
	c       *Cluster
	guarded bool // sessions are out for as long as their users like: see ErrNoSession

	mu      sync.Mutex
	most    int // sessions, at most
	open    int
	free    []*worker
	waiting list.List // of chan *worker, each with room for one; nil: look again
	back    uint64    // how often a session has come back
	closed  bool
}

// A worker is a session of a pool, with its clients of stores and trees.
type worker struct {
	home   *pool
	s      *Session
	losses uint64 // Cluster.changes when the session was opened
	// clients are those of stores and trees, by the number of what they share.
	clients map[uint64]collectionClient
}

// take returns a worker for the caller alone, until give. It waits for one until ctx ends.
func (p *pool) take(ctx context.Context) (*worker, error) {
	p.mu.Lock()
	if n := len(p.free); n > 0 {
		w := p.free[n-1]
		p.free = p.free[:n-1]
		p.mu.Unlock()
		return w.renewed()
	}
	return p.takeLater(ctx)
}

// takeLater is take when no worker is free. mu is held.
func (p *pool) takeLater(ctx context.Context) (*worker, error) {
	for {
		switch n := len(p.free); {
		case p.closed:
			p.mu.Unlock()
			return nil, fmt.Errorf("%w: the cluster", ErrClosed)
		case n > 0:
			w := p.free[n-1]
			p.free = p.free[:n-1]
			p.mu.Unlock()
			return w.renewed()
		case p.open < p.most:
			p.open++
			p.mu.Unlock()
			w := &worker{home: p}
			err := w.openSession()
			if err == nil {
				return w, nil
			}
			p.mu.Lock()
			p.leave()
			if p.open == 0 || !errors.Is(err, fabric.ErrTooManyClients) && !errors.Is(err, cn.ErrTooManySessions) {
				p.mu.Unlock()
				return nil, err
			}
			p.most = p.open // there is no room for more
		default:
			w, err := p.await(ctx)
			if w != nil || err != nil {
				return w, err
			}
		}
	}
}

// await waits for a worker that comes back. It returns none, and mu held, if the caller should look again. mu is held.
func (p *pool) await(ctx context.Context) (*worker, error) {
	mine := make(chan *worker, 1)
	e, back := p.waiting.PushBack(mine), p.back
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
				p.mu.Lock()
				return nil, nil
			}
			return w.renewed()
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
			p.pass(w)
		default:
		}
		p.mu.Unlock()
		return nil, err
	}
}

// give takes a worker back.
func (p *pool) give(w *worker) {
	p.mu.Lock()
	p.back++
	p.pass(w)
	p.mu.Unlock()
}

// pass hands a worker to the first that waits, or keeps it. nil: the first that waits looks again. mu is held.
func (p *pool) pass(w *worker) {
	if e := p.waiting.Front(); e != nil {
		p.waiting.Remove(e).(chan *worker) <- w
		return
	}
	if w != nil {
		p.free = append(p.free, w)
	}
}

// leave counts a worker that is no more. mu is held.
func (p *pool) leave() {
	p.open--
	p.pass(nil)
}

// lose is give for a worker that is of no more use.
func (p *pool) lose() {
	p.mu.Lock()
	p.leave()
	p.mu.Unlock()
}

// close has all that wait, and all that come later, find the pool closed. Its sessions are closed with the others of the cluster.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed, p.free = true, nil
	for p.waiting.Len() > 0 {
		p.pass(nil)
	}
}

// openSession opens the worker's session.
func (w *worker) openSession() (err error) {
	w.losses = w.home.c.changes.Load()
	w.clients = map[uint64]collectionClient{}
	if w.s, err = w.home.c.Session(); err == nil {
		w.s.w = w
	}
	return err
}

// renewed returns the worker, with a new session if memory has been lost, or something dropped, since it was opened: one session would
// be notified of a loss after the other, for as long as there are such that have not been used since.
func (w *worker) renewed() (*worker, error) {
	if w.losses == w.home.c.changes.Load() {
		return w, nil
	}
	err := w.s.Close()
	if err == nil || errors.Is(err, ErrClosed) {
		err = w.openSession()
	}
	if err != nil {
		w.home.lose()
		return nil, err
	}
	return w, nil
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
