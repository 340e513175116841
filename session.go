package declock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/declock/declock/cn"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// A Session is one client of the cluster. One goroutine at a time uses it, and what is made from it: a second one would corrupt what the first does,
// so operations panic when they notice one.
type Session struct {
	c    *Cluster
	s    *cn.Session
	w    *worker // of a pool that has the session; nil: it is the program's
	use  *lock.InUse
	free *hold // those of all that are not in use
	all  []*hold

	ended bool // closed with its cluster, while it was not in use
}

// Session opens a session.
func (c *Cluster) Session() (*Session, error) {
	s, err := c.node.Session()
	if err != nil {
		return nil, err
	}
	open := &Session{c: c, s: s, use: s.InUse()}
	c.mu.Lock()
	closing := c.closing
	if !closing {
		c.sessions[open] = struct{}{}
	}
	c.mu.Unlock()
	if closing {
		return nil, errors.Join(ErrClosed, s.Close())
	}
	return open, nil
}

// attached calls f with a new session that is attached to the memory nodes which are up. The session is in use meanwhile, for another goroutine may
// close the cluster. f uses only the session's Port.
func (c *Cluster) attached(ctx context.Context, f func(s *Session) error) error {
	s, err := c.Session()
	if err != nil {
		return err
	}
	defer s.Close()
	return s.attached(ctx, f)
}

func (s *Session) attached(ctx context.Context, f func(s *Session) error) error {
	return s.Do(ctx, func() error {
		s.use.Begin()
		defer s.use.End()
		if err := s.s.Attach(); err != nil {
			return err
		}
		return f(s)
	})
}

// ErrHeld: a session, or its cluster, was closed while the session held locks.
var ErrHeld = errors.New("declock: session closed with locks held")

// ErrInUse: the cluster was closed while an operation of a session was under way.
var ErrInUse = errors.New("declock: cluster closed while a session is in use")

// Close closes the session. Locks that it still holds are released, and the error names them (ErrHeld): the program forgot
// to unlock them, and what it did under them may be half done. Unlock of their Guards is misuse then.
func (s *Session) Close() error {
	s.use.Begin()
	err := errors.Join(s.releaseAll(), s.s.Close())
	s.use.End()
	s.c.mu.Lock()
	delete(s.c.sessions, s)
	s.c.mu.Unlock()
	return err
}

// releaseSessions closes the cluster's sessions that are not in use, and releases what they hold. An operation that begins meanwhile ends
// with ErrClosed. The end of ctx ends what releases wait for.
func (c *Cluster) releaseSessions(ctx context.Context) error {
	c.mu.Lock()
	sessions := slices.Collect(maps.Keys(c.sessions))
	clear(c.sessions)
	c.closing = true
	c.mu.Unlock()
	var errs []error
	busy := 0
	for _, s := range sessions {
		if !s.use.BeginClose() {
			busy++
			continue
		}
		stop := context.AfterFunc(ctx, s.Port().Interrupt)
		errs = append(errs, s.releaseAll(), s.s.CloseBeside())
		stop()
		s.ended = true
		s.use.EndClose()
	}
	if busy > 0 {
		errs = append(errs, fmt.Errorf("%w: operations of %d sessions, which end with ErrClosed; what these sessions hold is lost: end what uses sessions before Close", ErrInUse, busy))
	}
	return errors.Join(errs...)
}

// maxNamed is how many locks an error names.
const maxNamed = 8

// releaseAll releases what the session holds.
func (s *Session) releaseAll() error {
	if s.s.Closed() { // with its compute node: others get the locks when it has left
		return nil
	}
	var names []string
	var errs []error
	for _, h := range s.all {
		if h.Held {
			names = append(names, fmt.Sprintf("%v %v", h.Lock, h.Mode))
			s.c.watches.end(h) // before: Lost, by any goroutine, looks at the hold
			errs = append(errs, s.s.Release(&h.Hold, nil))
		}
	}
	if len(names) > 0 {
		errs = append([]error{fmt.Errorf("%w: %s: Unlock each before Close; they have been released now", ErrHeld, listed(names))}, errs...)
	}
	names = names[:0]
	for _, l := range s.s.Holding() { // through Locker
		names = append(names, l.String())
	}
	if len(names) > 0 {
		errs = append(errs, fmt.Errorf("%w: %s, by other code over the session's Locker: they stay locked until this process leaves the cluster", ErrHeld, listed(names)))
	}
	return errors.Join(errs...)
}

// listed returns the first of some names, and how many more there are.
func listed(names []string) string {
	if len(names) <= maxNamed {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), len(names)-maxNamed)
}

// Port returns the session's view of the fabric, for reading and writing
// memory that its locks protect.
func (s *Session) Port() fabric.Port { return s.s.Port() }

// Locker returns the session's lock.Locker, for programs that call it themselves. They have to get addresses, modes and goroutines
// right: it locks whatever bytes it is given the address of.
func (s *Session) Locker() lock.Locker { return s.s.Locker() }

// Do calls f, and lets the end of ctx interrupt what the session waits for
// meanwhile. It is for operations that take no context, such as those of a store. The error of Do then wraps
// lock.ErrCanceled, the context's error and its cause, and lock.ErrTimeout if that is a deadline. An operation that waited for a memory
// node may then have an unknown outcome.
func (s *Session) Do(ctx context.Context, f func() error) (err error) {
	begun, err := s.s.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { err = s.s.End(ctx, begun, err) }() // also when f panics
	return f()
}
