package declock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"sync/atomic"

	"github.com/declock/declock/cn"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
)

// Locks are a number of locks under a name, spread over the memory nodes.
type Locks struct {
	c *Cluster

	dropped atomic.Bool // and this process knows

	name   string
	nodes  []fabric.MemID
	base   []atomic.Uint64 // of the locks on each memory node, a fabric.Addr; 0: the node has been down so far
	n      int
	stride uint64
}

// ErrLocks: locks of the name are there, but other ones: another number of
// them, or made when the cluster had other memory nodes.
var ErrLocks = errors.New("declock: locks of that name were made differently")

// ErrDropped: the locks have been dropped.
var ErrDropped = errors.New("declock: locks have been dropped")

// A LockID names a lock of a Cluster. Locks.At gives it; sessions of that Cluster lock it. The zero value names none. LockIDs
// of one Cluster are equal if they name the same lock.
type LockID struct {
	of   *Locks
	n    int
	addr fabric.Addr // 0: its memory node was down
}

// ErrLockID: the LockID is not of a lock that this Cluster has open: it is the zero value, or of another Cluster.
var ErrLockID = errors.New("declock: no lock of this cluster")

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

// Locks returns the n locks with a name, and creates them if they are not
// there: 8 bytes and 8 for each compute node that the cluster may have (rounded up to a power of two), each,
// spread over the memory nodes. All processes must use the same n for a name.
//
// The locks on a memory node that is down are fabric.ErrNodeDown until it is up; the others work.
// When a memory node has lost its memory, the locks there are made again, at another address: At returns it as soon as an operation
// of this process has failed with ErrMemoryLost. A LockID of before is refused from then on, with that error.
func (c *Cluster) Locks(ctx context.Context, name string, n int) (*Locks, error) {
	if n < 1 {
		return nil, fmt.Errorf("declock: %d locks: want at least 1", n)
	}
	end, err := c.beginName(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	var l *Locks
	err = c.outlast(ctx, func() error {
		l = &Locks{c: c, name: name, n: n, stride: c.node.Layout().Lock().Size}
		return c.attached(ctx, func(s *Session) error { return l.open(c.node, s.Port()) })
	})
	if err != nil {
		return nil, errors.Join(err, c.reclaimHalfMade())
	}
	return c.known(l), nil
}

// beginName begins to open or drop locks by their name, and returns what ends it: what is noted of a name is what is there.
func (c *Cluster) beginName(ctx context.Context) (end func(), err error) {
	select {
	case c.naming <- struct{}{}:
		return func() { <-c.naming }, nil
	case <-ctx.Done():
		return nil, cn.Ended(ctx)
	}
}

// DropLocks removes the name of locks. In this process they are ErrDropped from then on; what is held stays held until Unlock. Other processes are
// not notified: they must not use the locks any more, which do not exclude holders of locks that are made with the name later. The next Locks, of
// whatever name, that are as many use the memory again, if none of the dropped locks is held then: a process that uses dropped locks all the same
// never breaks the exclusion of the new ones, but may keep others waiting.
func (c *Cluster) DropLocks(ctx context.Context, name string) error {
	end, err := c.beginName(ctx)
	if err != nil {
		return err
	}
	defer end()
	err = c.outlastDrop(ctx,
		func(s *Session) error { return memory.Drop(s.Port(), c.memory(), name, memory.KindLocks) },
		func(*Session) error { return nil })
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.locks[name]; l != nil {
		l.dropped.Store(true)
		delete(c.locks, name)
	}
	return nil
}

// known returns the Locks of this process for locks that have been opened: the same at each call.
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

// replacedBy reports whether these locks have been dropped: others are there under the name, in memory that was not lost.
func (l *Locks) replacedBy(other *Locks) bool {
	for i := range min(len(l.base), len(other.base)) {
		a, b := fabric.Addr(l.base[i].Load()), fabric.Addr(other.base[i].Load())
		if a != 0 && b != 0 && a != b && a.Generation() == b.Generation() {
			return true
		}
	}
	return false
}

// open creates the locks on each memory node, or finds them there. The place of a lock depends on the numbers of locks and of nodes, which
// are recorded. Locks on memory nodes that are down are left for later.
func (l *Locks) open(node *cn.Node, p fabric.Port) error {
	var down error
	memory := node.Memory()
	l.base = make([]atomic.Uint64, len(memory))
	for i, m := range memory {
		l.nodes = append(l.nodes, m.ID)
		err := fmt.Errorf("%w: %v", fabric.ErrNodeDown, m.ID)
		if r := node.Region(m.ID); r != nil {
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

// find returns the address of a lock whose memory node was down when the LockID was made. If that is just being replaced, it waits until ctx ends, unless
// it is to try only.
func (l *Locks) find(ctx context.Context, s *Session, n int, try bool) (fabric.Addr, error) {
	i := n % len(l.base)
	if l.base[i].Load() == 0 {
		err := l.lookup(s, i, n)
		if err != nil && !try {
			err = l.c.outlast(ctx, func() error { return l.lookup(s, i, n) })
		}
		if err != nil {
			return 0, err
		}
	}
	return l.At(n).addr, nil
}

// lookup makes the locks on the i-th of their memory nodes, for the n-th lock, or finds them.
func (l *Locks) lookup(s *Session, i, n int) error {
	if err := s.s.Attach(); err != nil {
		return err
	}
	r := l.c.node.Region(l.nodes[i])
	if r == nil {
		return fmt.Errorf("%w: %v, which has lock %d of %q", fabric.ErrNodeDown, l.nodes[i], n, l.name)
	}
	return l.make(s.Port(), r, i)
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
		// Dropped locks that are still used exclude those of the new name.
		Reuse: func(e *memory.Entry) (bool, error) { return l.c.node.Idle(p, e.Addr, each) },
	})
	if err != nil {
		return err
	}
	if e.Info != want || e.Length != each*l.stride {
		return fmt.Errorf("%w: %q is %d locks on %d memory nodes, wanted %d on %d", ErrLocks, l.name, e.Info[0], e.Info[1], l.n, of)
	}
	if err := r.Settle(p, &e); err != nil {
		return err
	}
	l.base[i].Store(uint64(e.Addr))
	return nil
}

// remakeLocks makes locks again that a memory node has lost, or finds those that others have made.
func (c *Cluster) remakeLocks(s *Session, mn fabric.MemID) error {
	if err := lock.Renew(s.Locker(), mn); err != nil {
		return err
	}
	r := c.node.Region(mn)
	if r == nil {
		return nil
	}
	c.mu.Lock()
	open := slices.Collect(maps.Values(c.locks))
	c.mu.Unlock()
	slices.SortFunc(open, func(a, b *Locks) int { return cmp.Compare(a.name, b.name) })
	var errs []error
	for _, l := range open {
		for j := range l.base {
			if old := fabric.Addr(l.base[j].Load()); old.MN() == mn && old.Generation() != r.At(0).Generation() {
				errs = append(errs, l.make(s.Port(), r, j))
			}
		}
	}
	return errors.Join(errs...)
}

// Key returns the lock of a key: the same in all processes and at all times, as long as the locks are as many. Keys that are in no list of anyone's cost nothing. Several keys
// may have the same lock, the fewer the more locks there are: so take all that is needed at a time with LockAll, which acquires a lock that two keys have in common once. A goroutine that
// holds the lock of one key and locks another one by itself may wait for itself; in a Session that is lock.ErrDeadlock.
func (l *Locks) Key(key []byte) LockID {
	h := uint64(14695981039346656037) // FNV-1a, and then murmur's finalizer, since the number of locks is any
	for _, b := range key {
		h = (h ^ uint64(b)) * 1099511628211
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	hi, _ := bits.Mul64(h^h>>33, uint64(l.n))
	return l.At(int(hi))
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
