package declock

import (
	"context"
	"fmt"

	"github.com/declock/declock/cn"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/region"
)

// A Session is one client of the cluster. One goroutine uses it at a time.
type Session struct {
	*cn.Session
	free *hold // holds that are not in use
}

// Session opens a session.
func (c *Cluster) Session() (*Session, error) {
	s, err := c.node.Session()
	if err != nil {
		return nil, err
	}
	return &Session{Session: s}, nil
}

// A LockID is where a lock is: the address of its first byte.
type LockID = fabric.Addr

// hold is the memory of a Guard. Its serial tells Guards that used it apart.
type hold struct {
	lock.Hold
	serial uint64
	next   *hold
}

// A Guard is a lock that is held. It is a value; Unlock it once.
type Guard struct {
	s      *Session
	h      *hold
	serial uint64
	token  lock.Token
}

// Token returns the fencing token of the grant: every exclusive grant of the
// lock has a greater one than those before. Who checks it where the lock's holder
// acts keeps out a holder that has lost the lock without knowing.
func (g Guard) Token() lock.Token { return g.token }

// Unlock releases the lock. lock.ErrLost: the lock had been taken away; lock.ErrMisuse: it
// has been unlocked already. Otherwise an error is the fabric's, and the lock is not held any more.
func (g Guard) Unlock() error {
	if g.h == nil || g.serial != g.h.serial || !g.h.Held {
		return fmt.Errorf("%w: Unlock of a lock that is not locked", lock.ErrMisuse)
	}
	err := g.s.Release(&g.h.Hold, nil)
	g.h.next, g.s.free = g.s.free, g.h
	return err
}

// Lock acquires a lock exclusively. If ctx ends first, the error wraps
// lock.ErrCanceled and the context's cause, and the lock is not held, now or
// later. Locks are not reentrant.
func (s *Session) Lock(ctx context.Context, id LockID) (Guard, error) {
	return s.acquire(ctx, lock.Request{Lock: id, Mode: lock.Exclusive})
}

// RLock acquires a lock shared with others who do so.
func (s *Session) RLock(ctx context.Context, id LockID) (Guard, error) {
	return s.acquire(ctx, lock.Request{Lock: id, Mode: lock.Shared})
}

// TryLock acquires a lock exclusively if it is free: else lock.ErrBusy.
func (s *Session) TryLock(id LockID) (Guard, error) {
	return s.acquire(context.Background(), lock.Request{Lock: id, Mode: lock.Exclusive, Try: true})
}

// TryRLock acquires a lock shared if nobody holds it exclusively or waits to: else lock.ErrBusy.
func (s *Session) TryRLock(id LockID) (Guard, error) {
	return s.acquire(context.Background(), lock.Request{Lock: id, Mode: lock.Shared, Try: true})
}

func (s *Session) acquire(ctx context.Context, r lock.Request) (Guard, error) {
	h := s.free
	if h == nil {
		h = new(hold)
	} else {
		s.free = h.next
	}
	if err := s.Acquire(ctx, &h.Hold, &r); err != nil {
		h.next, s.free = s.free, h
		return Guard{}, err
	}
	h.serial++
	return Guard{s: s, h: h, serial: h.serial, token: h.Token}, nil
}

// Locks are a number of locks under a name, spread over the memory nodes.
type Locks struct {
	base   []fabric.Addr // on each memory node
	n      int
	stride uint64
}

// Locks returns the n locks with a name, and creates them if they are not
// there: 8 bytes and 8 for each compute node that the cluster may have, each. All who
// use a name must use the same n.
func (c *Cluster) Locks(ctx context.Context, name string, n int) (*Locks, error) {
	if n < 1 {
		return nil, fmt.Errorf("declock: %d locks: want at least 1", n)
	}
	s, err := c.Session()
	if err != nil {
		return nil, err
	}
	defer s.Close()
	regions := c.node.Regions()
	l := &Locks{n: n, stride: c.node.Layout().Lock().Size}
	each := (uint64(n) + uint64(len(regions)) - 1) / uint64(len(regions))
	end, err := s.Begin(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range regions {
		var e region.Entry
		e, _, err = r.Create(s.Port(), region.Spec{
			Name: name, Kind: region.KindLocks, Size: each * l.stride, Align: 64, Info: region.Info{uint64(n)},
		})
		if err == nil && e.Info[0] != uint64(n) {
			err = fmt.Errorf("declock: %q has %d locks, not %d", name, e.Info[0], n)
		}
		if err != nil {
			break
		}
		l.base = append(l.base, e.Addr)
	}
	if err = s.End(ctx, end, err); err != nil {
		return nil, err
	}
	return l, nil
}

// Len returns the number of locks.
func (l *Locks) Len() int { return l.n }

// At returns the i-th lock, from 0. It panics if there is none.
func (l *Locks) At(i int) LockID {
	if i < 0 || i >= l.n {
		panic(fmt.Sprintf("declock: lock %d of %d", i, l.n))
	}
	return l.base[i%len(l.base)].Add(uint64(i/len(l.base)) * l.stride)
}
