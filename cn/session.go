package cn

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/internal/stats"
	"github.com/declock/declock/lock"
)

// A Session is one client of a compute node. One goroutine uses it at a time.
type Session struct {
	node   *Node
	port   fabric.Port
	locker *sampler
	use    lock.InUse

	within []scope // operations with a context that are under way, each within the one before
	lazy   bool    // the Port calls arm before it waits

	mu     sync.Mutex // see watch
	closed bool
}

// A scope is an operation that the end of a context interrupts.
type scope struct {
	ctx   context.Context
	watch *watch // nil: it has not waited yet
}

// A watch interrupts the session when a context ends.
type watch struct {
	stop func() bool
	over bool // an interrupt comes too late; guarded by Session.mu
}

// ErrClosed: the node or session has been closed.
var ErrClosed = fabric.ErrClosed

// Session opens a session.
func (n *Node) Session() (*Session, error) {
	n.mu.Lock()
	open := uint64(len(n.sessions))
	n.mu.Unlock()
	if n.table.Policy().Kind == hier.Flat && open >= n.hcfg.Layout.Capacity() {
		return nil, fmt.Errorf("%w: %d are open; use another policy, or format with longer queues", ErrTooManySessions, open)
	}
	p, err := n.fab.Open()
	if err != nil {
		return nil, err
	}
	s := n.SessionOn(p)
	if s == nil {
		return nil, errors.Join(ErrClosed, p.Close())
	}
	return s, nil
}

// Helper opens a session for work of the compute node's own in the background: it takes no locks, so lock queues need no room for it, and
// Observe and Close do not include it. The caller closes it before the node.
func (n *Node) Helper() (*Session, error) {
	p, err := n.fab.Open()
	if err != nil {
		return nil, err
	}
	return n.session(p), nil
}

func (n *Node) session(p fabric.Port) *Session {
	s := &Session{node: n, port: p}
	s.locker = &sampler{Locker: hier.New(n.table, p, n.fab, &n.clock, n.hcfg), seen: &n.seen, use: &s.use}
	if w, ok := p.(interface{ OnWait(func()) }); ok {
		w.OnWait(s.arm)
		s.lazy = true
	}
	return s
}

// SessionOn makes a session over a Port of the node that is there already
// (in the simulator, that of the coroutine). It returns nil if the node is closed.
func (n *Node) SessionOn(p fabric.Port) *Session {
	s := n.session(p)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil
	}
	n.sessions[s] = struct{}{}
	return s
}

// Port returns the session's Port.
func (s *Session) Port() fabric.Port { return s.port }

// InUse returns the flag that is set while an operation of the session, or of a client made from its Locker, is under way.
func (s *Session) InUse() *lock.InUse { return &s.use }

// Locker returns the session's Locker, for code that brings its own waits.
func (s *Session) Locker() lock.Locker { return s.locker }

// Holding returns the locks that are held through the session's Locker.
func (s *Session) Holding() []fabric.Addr { return s.locker.Holding() }

// Lost reports whether what a Hold of the session holds has been lost: see hier.Locker.
func (s *Session) Lost(h *lock.Hold) bool { return s.locker.Lost(h) }

// Recovered reports whether the holder before that of a Hold of the session may have crashed: see hier.Locker.
func (s *Session) Recovered(h *lock.Hold) bool { return s.locker.Recovered(h) }

// Node returns the session's compute node.
func (s *Session) Node() *Node { return s.node }

// Close closes the session. It must not hold locks.
func (s *Session) Close() error { return s.close(false) }

// CloseBeside is Close by another goroutine than the session's, which may use the session or its Port meanwhile: an operation
// that waits ends with fabric.ErrClosed. Of the session's counters those of the last sample count (Observe).
func (s *Session) CloseBeside() error { return s.close(true) }

// closeIdle is Close by another goroutine, of a session that should not be in use: if it is not, all of its counters count.
func (s *Session) closeIdle() error {
	if !s.use.BeginClose() {
		return s.close(true)
	}
	defer s.use.EndClose()
	return s.close(false)
}

func (s *Session) close(beside bool) error {
	s.node.mu.Lock()
	if s.closed {
		s.node.mu.Unlock()
		return nil
	}
	s.closed = true
	delete(s.node.sessions, s)
	if beside {
		s.locker.mu.Lock()
		stats.Add(&s.node.done, &s.locker.locks)
		stats.Add(&s.node.doneNIC, &s.locker.nic)
		s.locker.mu.Unlock()
	} else {
		stats.Add(&s.node.done, s.locker.Stats())
		stats.Add(&s.node.doneNIC, s.port.Stats())
	}
	s.node.mu.Unlock()
	return s.port.Close()
}

// Closed reports whether the session has been closed, by itself or with its compute node.
func (s *Session) Closed() bool {
	s.node.mu.Lock()
	defer s.node.mu.Unlock()
	return s.closed
}

// Acquire is Locker.Acquire, ended by ctx: then its error wraps lock.ErrCanceled
// and the context's cause, and the lock is not held. A context
// that cannot end costs nothing.
func (s *Session) Acquire(ctx context.Context, h *lock.Hold, r *lock.Request) error {
	if ctx.Done() == nil {
		return s.locker.Acquire(h, r)
	}
	begun, err := s.Begin(ctx)
	if err != nil {
		return err
	}
	err = s.End(ctx, begun, s.locker.Acquire(h, r))
	if err == nil && ctx.Err() != nil { // granted when the caller did not wait any more
		return errors.Join(Ended(ctx), s.locker.Release(h, nil))
	}
	return err
}

// Release is Locker.Release. It is not ended by a context: a lock must be released.
func (s *Session) Release(h *lock.Hold, before []fabric.Op) error {
	return s.locker.Release(h, before)
}

// Begin makes the end of ctx interrupt whatever the session waits for, until
// End is called with what Begin returned. It fails if ctx has ended already. An operation may begin within another; each ends with its own
// context, and with those around it.
func (s *Session) Begin(ctx context.Context) (begun int, err error) {
	if ctx.Done() == nil {
		return 0, nil
	}
	if ctx.Err() != nil {
		return 0, Ended(ctx)
	}
	s.within = append(s.within, scope{ctx: ctx})
	if !s.lazy {
		s.arm()
	}
	return len(s.within), nil
}

// arm has the end of the contexts of operations that are under way interrupt the session. It is called as late as the Port can tell: most operations on shared
// memory do not wait, and a context that can end costs them nearly nothing.
func (s *Session) arm() {
	for i := range s.within {
		if s.within[i].watch != nil {
			continue
		}
		w := new(watch)
		w.stop = context.AfterFunc(s.within[i].ctx, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if !w.over {
				s.port.Interrupt()
			}
		})
		s.within[i].watch = w
	}
}

// End ends what Begin began. It returns err, with the context's cause if that
// was what ended the operation.
func (s *Session) End(ctx context.Context, begun int, err error) error {
	if begun == 0 {
		return err
	}
	watched := false
	for i := begun - 1; i < len(s.within); i++ { // within it, there are those that a panic has left
		if w := s.within[i].watch; w != nil {
			watched = true
			w.stop()
			s.mu.Lock()
			w.over = true
			s.mu.Unlock()
		}
		s.within[i] = scope{}
	}
	s.within = s.within[:min(begun-1, len(s.within))]
	if watched {
		s.clearInterrupt()
	}
	if ctx.Err() != nil && (errors.Is(err, lock.ErrCanceled) || errors.Is(err, fabric.ErrInterrupted)) {
		return fmt.Errorf("%w: %w", Ended(ctx), err)
	}
	return err
}

// clearInterrupt ends the interrupts of operations that have ended.
func (s *Session) clearInterrupt() {
	s.port.ClearInterrupt()
	for i := range s.within {
		if s.within[i].ctx.Err() != nil {
			s.port.Interrupt() // it is not over for those
			break
		}
	}
}

// Ended returns the error of what a context ended: it wraps lock.ErrCanceled, the context's error and its cause; if that
// is a deadline that has passed, lock.ErrTimeout too.
func Ended(ctx context.Context) error {
	e := &ended{text: "declock: ended by its context: " + ctx.Err().Error(), of: []error{lock.ErrCanceled, ctx.Err()}}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		e.of = append(e.of, lock.ErrTimeout)
	}
	if cause := context.Cause(ctx); cause != ctx.Err() {
		e.text += ": " + cause.Error()
		e.of = append(e.of, cause)
	}
	return e
}

// ended is the error of what a context has ended: the wait for a lock, or another operation, of which the texts of package lock do not speak.
type ended struct {
	text string
	of   []error
}

func (e *ended) Error() string   { return e.text }
func (e *ended) Unwrap() []error { return e.of }
