package declock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/declock/declock/cn"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
)

// A Session is one client of the cluster. One goroutine at a time uses it, and what is made from it: a second one corrupts what the first does,
// so operations panic when they find one.
type Session struct {
	c    *Cluster
	s    *cn.Session
	use  *lock.InUse
	free *hold   // holds that are not in use
	all  []*hold // all that there are

	ended bool // closed with its cluster; it was not in use
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

// attached calls f with a session of its own that is attached to the memory nodes which are up, and in use: another goroutine may close the
// cluster meanwhile. f uses only the session's Port.
func (c *Cluster) attached(ctx context.Context, f func(s *Session) error) error {
	s, err := c.Session()
	if err != nil {
		return err
	}
	defer s.Close()
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

// Close closes the session. Locks that it holds still are released, and the error names them (ErrHeld): the program forgot
// to unlock them, and what it did under them may be half done. Their Guards are then those of locks not held.
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
// with ErrClosed.
func (c *Cluster) releaseSessions() error {
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
		errs = append(errs, s.releaseAll(), s.s.CloseBeside())
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
	if s.s.Closed() { // with its compute node: others get the locks when that has left
		return nil
	}
	var names []string
	var errs []error
	for _, h := range s.all {
		if h.Held {
			names = append(names, fmt.Sprintf("%v %v", h.Lock, h.Mode))
			errs = append(errs, s.s.Release(&h.Hold, nil))
		}
	}
	if len(names) > 0 {
		errs = append([]error{fmt.Errorf("%w: %s: Unlock each before Close; they have been released now", ErrHeld, listed(names))}, errs...)
	}
	names = names[:0]
	for _, l := range s.s.Holding() { // by what was made from Locker
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

// Locker returns what the session locks with, for code of one's own over lock.Locker. Its addresses, modes and goroutines are the
// caller's to get right: it locks whatever bytes it is given the address of.
func (s *Session) Locker() lock.Locker { return s.s.Locker() }

// Do calls f, and lets the end of ctx interrupt what the session waits for
// meanwhile: for operations that take no context, as those of a store. The error of Do then wraps
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

// A LockID names a lock of a Cluster. Locks.At gives it; sessions of that Cluster lock it. The zero value names none. LockIDs
// of one Cluster are equal if they name the same lock.
type LockID struct {
	of   *Locks
	n    int
	addr fabric.Addr // 0: its memory node was down
}

// Addr returns the address of the lock's first byte: what a Loss has, and tools show. It is 0 if the lock's memory node was down when At was called.
func (id LockID) Addr() fabric.Addr { return id.addr }

// String returns the address of the lock, as text.
func (id LockID) String() string {
	if id.of == nil {
		return "no lock"
	}
	if id.addr == 0 {
		return fmt.Sprintf("lock %d of %q, on a memory node that was down", id.n, id.of.name)
	}
	return id.addr.String()
}

// ErrLockID: the LockID is not of a lock that this Cluster has open: it is the zero value, or of another Cluster.
var ErrLockID = errors.New("declock: no lock of this cluster")

// A Mode is how a lock is to be held. The zero value is none.
type Mode uint8

// Shared admits other shared holders; Exclusive admits nobody.
const (
	Shared Mode = 1 + iota
	Exclusive
)

// ErrMode: a Mode that is neither Shared nor Exclusive.
var ErrMode = errors.New("declock: a lock is Shared or Exclusive")

func (m Mode) String() string {
	if m == 0 {
		return "no mode"
	}
	return m.mode().String()
}

// mode returns the mode as package lock has it.
func (m Mode) mode() lock.Mode { return lock.Mode(m - Shared) }

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
	if g.s == nil {
		return fmt.Errorf("%w: Unlock of the zero Guard", lock.ErrMisuse)
	}
	g.s.use.Begin()
	err := g.unlock()
	g.s.use.End()
	return err
}

func (g Guard) unlock() error {
	if g.s.ended && !g.h.Held {
		return fmt.Errorf("%w: Unlock of a lock that Close of the cluster has released", ErrClosed)
	}
	if g.serial != g.h.serial || !g.h.Held {
		return fmt.Errorf("%w: Unlock of a lock that is not locked", lock.ErrMisuse)
	}
	err := g.s.s.Release(&g.h.Hold, nil)
	g.h.next, g.s.free = g.s.free, g.h
	return err
}

// Lock acquires a lock exclusively. If ctx ends first, the error wraps
// lock.ErrCanceled, the context's error and its cause, and lock.ErrTimeout if that is a deadline; the lock is not held, now or
// later. Locks are not reentrant: one that the session holds is lock.ErrDeadlock.
func (s *Session) Lock(ctx context.Context, id LockID) (Guard, error) {
	return s.acquire(ctx, id, lock.Request{Mode: lock.Exclusive})
}

// RLock acquires a lock shared with others who do so. One that the session holds, in any mode, is lock.ErrDeadlock.
func (s *Session) RLock(ctx context.Context, id LockID) (Guard, error) {
	return s.acquire(ctx, id, lock.Request{Mode: lock.Shared})
}

// TryLock acquires a lock exclusively if it is free: else lock.ErrBusy.
func (s *Session) TryLock(id LockID) (Guard, error) {
	return s.acquire(context.Background(), id, lock.Request{Mode: lock.Exclusive, Try: true})
}

// TryRLock acquires a lock shared if nobody holds it exclusively or waits to: else lock.ErrBusy.
func (s *Session) TryRLock(id LockID) (Guard, error) {
	return s.acquire(context.Background(), id, lock.Request{Mode: lock.Shared, Try: true})
}

func (s *Session) acquire(ctx context.Context, id LockID, r lock.Request) (Guard, error) {
	if id.of == nil || id.of.c != s.c || id.of.dropped.Load() {
		return Guard{}, s.refuse(id)
	}
	s.use.Begin()
	r.Lock = id.addr
	if r.Lock == 0 {
		var err error
		if r.Lock, err = id.of.find(s, id.n); err != nil {
			s.use.End()
			return Guard{}, err
		}
	}
	g, err := s.acquireOwn(ctx, r)
	s.use.End()
	return g, err
}

// refuse returns the error for a LockID that is not of the session's cluster, or of locks that were dropped.
func (s *Session) refuse(id LockID) error {
	switch {
	case id.of == nil:
		return fmt.Errorf("%w: the zero LockID: Locks.At gives those of locks", ErrLockID)
	case id.of.c == s.c:
		return fmt.Errorf("%w: %q: open them anew to make others", ErrDropped, id.of.name)
	}
	return fmt.Errorf("%w: %v is of another Cluster of this process: use a Session of that", ErrLockID, id)
}

func (s *Session) acquireOwn(ctx context.Context, r lock.Request) (Guard, error) {
	h := s.free
	if h == nil {
		h = new(hold)
		s.all = append(s.all, h)
	} else {
		s.free = h.next
	}
	if err := s.s.Acquire(ctx, &h.Hold, &r); err != nil {
		h.next, s.free = s.free, h
		if errors.Is(err, ErrMemoryLost) {
			err = errors.Join(err, s.c.makeLocks(s, r.Lock.MN()))
		}
		return Guard{}, err
	}
	h.serial++
	return Guard{s: s, h: h, serial: h.serial, token: h.Token}, nil
}

// Locks are a number of locks under a name, spread over the memory nodes.
type Locks struct {
	c *Cluster

	dropped atomic.Bool // this process knows of it

	name   string
	nodes  []fabric.MemID
	base   []atomic.Uint64 // a fabric.Addr on each memory node; 0: it has been down so far
	n      int
	stride uint64
}

// ErrLocks: locks of the name are there, but other ones: another number of
// them, or made when the cluster had other memory nodes.
var ErrLocks = errors.New("declock: locks of that name were made differently")

// Locks returns the n locks with a name, and creates them if they are not
// there: 8 bytes and 8 for each compute node that the cluster may have, each,
// spread over the memory nodes. All who use a name must use the same n.
//
// The locks on a memory node that is down are fabric.ErrNodeDown until it is up; the others work.
// When a memory node has lost its memory, the locks there are made again, elsewhere: At tells where, as soon as an operation
// of this process has failed with ErrMemoryLost. A LockID of before is refused from then on, with that error.
func (c *Cluster) Locks(ctx context.Context, name string, n int) (*Locks, error) {
	if n < 1 {
		return nil, fmt.Errorf("declock: %d locks: want at least 1", n)
	}
	l := &Locks{c: c, name: name, n: n, stride: c.node.Layout().Lock().Size}
	if err := c.attached(ctx, func(s *Session) error { return l.open(c.node, s.Port()) }); err != nil {
		return nil, errors.Join(err, c.keepLeft())
	}
	return c.known(l), nil
}

// known returns locks that are open, as the one that all of this process have who asked for them.
func (c *Cluster) known(l *Locks) *Locks {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.locks[l.name]; old != nil && old.replacedBy(l) {
		old.dropped.Store(true)
		delete(c.locks, l.name)
	}
	if old := c.locks[l.name]; old != nil && old.n == l.n && len(old.base) == len(l.base) {
		for i := range l.base {
			if base := l.base[i].Load(); base != 0 {
				old.base[i].Store(base)
			}
		}
		return old
	}
	c.locks[l.name] = l
	return l
}

// replacedBy reports whether other locks are there under the name, in memory that was not lost: somebody has dropped these.
func (l *Locks) replacedBy(other *Locks) bool {
	for i := range min(len(l.base), len(other.base)) {
		a, b := fabric.Addr(l.base[i].Load()), fabric.Addr(other.base[i].Load())
		if a != 0 && b != 0 && a != b && a.Generation() == b.Generation() {
			return true
		}
	}
	return false
}

// open creates the locks on each memory node, or finds them there. Which lock
// is where depends on the number of locks and of nodes: both are recorded. Those on memory nodes that are down are left for later.
func (l *Locks) open(node *cn.Node, p fabric.Port) error {
	var down error
	memory := node.Memory()
	l.base = make([]atomic.Uint64, len(memory))
	for i, m := range memory {
		l.nodes = append(l.nodes, m.ID)
		err := fmt.Errorf("%w: %v", fabric.ErrNodeDown, m.ID)
		if r := regionOf(node, m.ID); r != nil {
			err = l.make(p, r, i)
		}
		switch {
		case errors.Is(err, fabric.ErrNodeDown):
			down = errors.Join(down, err)
		case err != nil:
			return err
		}
	}
	for i := range l.base {
		if l.base[i].Load() != 0 {
			return nil
		}
	}
	return down
}

// regionOf returns the region of a memory node, or nil if the compute node has not reached that yet.
func regionOf(node *cn.Node, mn fabric.MemID) *memory.Region {
	for _, r := range node.Regions() {
		if r.Memory() == mn {
			return r
		}
	}
	return nil
}

// find returns the address of a lock whose memory node was down when the LockID was made.
func (l *Locks) find(s *Session, n int) (fabric.Addr, error) {
	i := n % len(l.base)
	if l.base[i].Load() == 0 {
		if err := s.s.Attach(); err != nil {
			return 0, err
		}
		r := regionOf(l.c.node, l.nodes[i])
		if r == nil {
			return 0, fmt.Errorf("%w: %v, which has lock %d of %q", fabric.ErrNodeDown, l.nodes[i], n, l.name)
		}
		if err := l.make(s.Port(), r, i); err != nil {
			return 0, err
		}
	}
	return l.At(n).addr, nil
}

// make makes the locks on the i-th of their memory nodes, or finds them.
func (l *Locks) make(p fabric.Port, r *memory.Region, i int) error {
	of := uint64(len(l.base))
	each := (uint64(l.n) + of - 1) / of
	if each > r.Size()/l.stride {
		return fmt.Errorf("%w: %d locks of %d bytes on memory node %v with %d bytes", memory.ErrNoSpace, each, l.stride, r.Memory(), r.Size())
	}
	want := memory.Info{uint64(l.n), of, uint64(i)}
	e, _, err := r.Create(p, memory.Spec{
		Name: l.name, Kind: memory.KindLocks, Size: each * l.stride, Align: 64, Info: want, DeadNow: l.c.dead, Creating: &l.c.creating,
		// Whoever uses locks that were dropped excludes those who use them by their new name.
		Reuse: func(e *memory.Entry) (bool, error) { return l.c.node.Idle(p, e.Addr, each) },
	})
	if err != nil {
		return err
	}
	if e.Info != want || e.Length != each*l.stride {
		return fmt.Errorf("%w: %q is %d locks on %d memory nodes, wanted %d on %d", ErrLocks, l.name, e.Info[0], e.Info[1], l.n, of)
	}
	l.base[i].Store(uint64(e.Addr))
	return nil
}

// makeLocks makes the locks that a memory node has lost again, or finds those that others have made.
func (c *Cluster) makeLocks(s *Session, mn fabric.MemID) error {
	i := slices.IndexFunc(c.node.Regions(), func(r *memory.Region) bool { return r.Memory() == mn })
	if err := lock.Renew(s.Locker(), mn); err != nil || i < 0 {
		return err
	}
	c.mu.Lock()
	var open []*Locks
	for _, name := range slices.Sorted(maps.Keys(c.locks)) {
		open = append(open, c.locks[name])
	}
	c.mu.Unlock()
	var errs []error
	r := c.node.Regions()[i]
	for _, l := range open {
		for j := range l.base {
			if old := fabric.Addr(l.base[j].Load()); old.MN() == mn && old.Generation() != r.At(0).Generation() {
				errs = append(errs, l.make(s.Port(), r, j))
			}
		}
	}
	return errors.Join(errs...)
}

// Len returns the number of locks.
func (l *Locks) Len() int { return l.n }

// At returns the i-th lock, from 0. It panics if there is none.
func (l *Locks) At(i int) LockID {
	if i < 0 || i >= l.n {
		panic(fmt.Sprintf("declock: lock %d of %d", i, l.n))
	}
	base := fabric.Addr(l.base[i%len(l.base)].Load())
	if base == 0 {
		return LockID{of: l, n: i}
	}
	return LockID{of: l, n: i, addr: base.Add(uint64(i/len(l.base)) * l.stride)}
}
