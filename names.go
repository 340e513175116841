package declock

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/objstore"
)

// Names are locks by name: two names never have the same lock, and a name that is not in use costs nothing. Any goroutine may use it.
//
// A name hashes to a bucket, which has some locks, its slots, and an object of a store that says which name each slot is bound to. To acquire a name is to acquire the lock of its
// slot, and to look again whether the slot is bound to it still. A name without a slot takes one that has none, or else one whose lock is free, and so of a name that is not in
// use. It does so while it holds the lock of that slot: what is held, or waited for, keeps its name. All of a bucket is on one memory node, which keeps it or loses it as a whole.
type Names struct {
	c       *Cluster
	name    string
	locks   *Locks
	perNode int // buckets
	stores  []atomic.Pointer[Store]
	held    atomic.Pointer[Store] // see records
}

const (
	namesLocks = ".names" // ends the name of the locks
	// defaultNames is how many names may be in use at a time, at least.
	defaultNames = 512
	// bucketSlots is how many locks a bucket has. It is made for a quarter of that: then none of the buckets of a table overflows in practice.
	bucketSlots = 64
	bucketNames = bucketSlots / 4
)

// ErrNames: too many names are in use at a time, or were when a process crashed.
var ErrNames = errors.New("declock: too many names of locks are in use")

// Names returns the table of named locks with a name, and makes it if it is not there, for n names that are in use at a time: locked, or waited for. There may be four times as many
// until ErrNames is to be expected. 0 is 512. All processes must use the same n for a table. It takes 4n locks, and 24 bytes for each of them once it has been used.
func (c *Cluster) Names(ctx context.Context, table string, n int) (*Names, error) {
	if n < 0 {
		return nil, fmt.Errorf("declock: names %q: %d names at a time: want at least 1", table, n)
	}
	if n == 0 {
		n = defaultNames
	}
	nodes := len(c.memory())
	x := &Names{c: c, name: table, perNode: (n + bucketNames*nodes - 1) / (bucketNames * nodes), stores: make([]atomic.Pointer[Store], nodes)}
	var err error
	x.locks, err = c.Locks(ctx, table+namesLocks, x.perNode*nodes*bucketSlots)
	return x, err
}

// Lock acquires the lock of a name exclusively, as [Cluster.Lock] does. One that is lost before Lock returns is acquired again. Take several in the order of their names.
func (x *Names) Lock(ctx context.Context, name string) (Guard, error) {
	return x.acquire(ctx, name, lock.Request{Mode: lock.Exclusive})
}

// RLock is Lock, shared with others.
func (x *Names) RLock(ctx context.Context, name string) (Guard, error) {
	return x.acquire(ctx, name, lock.Request{Mode: lock.Shared})
}

// TryLock acquires the lock of a name exclusively if it is free: else lock.ErrBusy.
func (x *Names) TryLock(ctx context.Context, name string) (Guard, error) {
	return x.acquire(ctx, name, lock.Request{Mode: lock.Exclusive, Try: true})
}

// TryRLock acquires the lock of a name shared unless it is held, or waited for, exclusively: then lock.ErrBusy.
func (x *Names) TryRLock(ctx context.Context, name string) (Guard, error) {
	return x.acquire(ctx, name, lock.Request{Mode: lock.Shared, Try: true})
}

// A nameKey is where a name belongs.
type nameKey struct {
	print  [printSize]byte // of the name: two that are used never have the same
	node   int             // the index of the memory node among the locks'
	bucket int             // there
}

func printOf(name string) [sha256.Size]byte { return sha256.Sum256([]byte(name)) }

func (x *Names) key(name string) (k nameKey) {
	sum := printOf(name)
	copy(k.print[:], sum[:])
	h := binary.LittleEndian.Uint64(sum[16:])
	k.node, k.bucket = int(h%uint64(len(x.stores))), int(h/uint64(len(x.stores))%uint64(x.perNode))
	return k
}

// slot returns the lock of a slot of a bucket.
func (x *Names) slot(k *nameKey, i int) LockID {
	return x.locks.At((k.bucket*bucketSlots+i)*len(x.stores) + k.node)
}

func (k *nameKey) object() []byte { return binary.LittleEndian.AppendUint32(nil, uint32(k.bucket)) }

// acquire acquires the lock of a name.
func (x *Names) acquire(ctx context.Context, name string, r lock.Request) (Guard, error) {
	k := x.key(name)
	for {
		b, err := x.read(ctx, &k)
		if err != nil {
			return Guard{}, x.failed(name, err)
		}
		var g Guard
		var ok bool
		if i, found := b.find(&k); found {
			g, ok, err = x.enter(ctx, &k, i, r)
		} else {
			g, ok, err = x.claim(ctx, &k, b, r.Mode)
		}
		// Where a promotion was waited for since the grant, another may have held the name meanwhile.
		if ok && err == nil && g.isLost() {
			ok, err = false, giveBack(g)
		}
		if ok && err == nil {
			x.c.held.add(g, x, &k, name, r.Mode)
		}
		if ok || err != nil {
			return g, x.failed(name, err)
		}
	}
}

func (x *Names) failed(name string, err error) error {
	if err != nil {
		err = fmt.Errorf("declock: name %.60q of %q: %w", name, x.name, err)
	}
	return err
}

// enter acquires a slot that is bound to the name, and reports whether it is still.
func (x *Names) enter(ctx context.Context, k *nameKey, i int, r lock.Request) (_ Guard, ok bool, err error) {
	waits, stop := x.whileBound(ctx, k, i)
	g, err := x.c.acquire(waits, x.slot(k, i), r)
	moved := stop()
	if errors.Is(err, lock.ErrBusy) {
		if b, again := x.read(ctx, k); again != nil || !b.bound(k, i) {
			return Guard{}, false, again
		}
	}
	if err != nil {
		if moved && ctx.Err() == nil {
			err = nil
		}
		return Guard{}, false, err
	}
	b, err := x.read(ctx, k)
	if err != nil || !b.bound(k, i) {
		return Guard{}, false, errors.Join(err, giveBack(g))
	}
	g.token += b.base(i)
	return g, true, nil
}

// errMoved ends the wait for a slot that was bound to another name before the wait was in the queue of its lock. Once it is, the slot keeps its name.
var errMoved = errors.New("declock: the name has another lock now")

// Pauses between two looks of whileBound.
const (
	firstLook = 2 * time.Millisecond
	lastLook  = time.Second
)

// whileBound returns a context that ends when the slot is bound to another name: who holds that may wait for what the caller holds.
func (x *Names) whileBound(ctx context.Context, k *nameKey, i int) (_ context.Context, stop func() (moved bool)) {
	ctx, cancel := context.WithCancelCause(ctx)
	looks := time.AfterFunc(firstLook, func() {
		for pause := 2 * firstLook; ; pause = min(2*pause, lastLook) {
			if b, err := x.read(ctx, k); err == nil && !b.bound(k, i) {
				cancel(errMoved)
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
		}
	})
	return ctx, func() bool {
		looks.Stop()
		moved := context.Cause(ctx) == errMoved
		cancel(nil)
		return moved
	}
}

// claim binds the name to a slot, and holds the lock of it. It is not ok if the name has got another slot meanwhile, or if the lock is to be shared: then the
// name has a slot now.
func (x *Names) claim(ctx context.Context, k *nameKey, b bucket, mode lock.Mode) (_ Guard, ok bool, err error) {
	i, g, err := x.freeSlot(ctx, k, b)
	if err != nil {
		return Guard{}, false, err
	}
	var base lock.Token
	st, err := x.store(ctx, k)
	if err == nil {
		err = st.Update(ctx, k.object(), objstore.Update{Read: -1, Apply: func(o *objstore.Object) objstore.Change {
			now := bucket(slices.Clone(o.Value))
			ok = false
			// If the slot is lost, its memory node has restarted, and so it is for this operation, too: others may hold it by the name that it has.
			if _, found := now.find(k); found || g.isLost() {
				return objstore.Change{}
			}
			now = now.bind(k, i, g.token)
			base, ok = now.base(i), true
			return objstore.Change{Action: objstore.Put, Value: now}
		}})
	}
	if ok = ok && err == nil && mode == lock.Exclusive; !ok {
		return Guard{}, false, errors.Join(err, giveBack(g))
	}
	g.token += base
	return g, true, nil
}

// giveBack releases what the caller has no use for.
func giveBack(g Guard) error {
	err := g.Unlock()
	if errors.Is(err, lock.ErrLost) {
		return nil
	}
	return err
}

// freeSlot acquires a slot of a bucket whose lock is free: one that is bound to no name, if there is one.
func (x *Names) freeSlot(ctx context.Context, k *nameKey, b bucket) (int, Guard, error) {
	first := int(rand.Uint32N(bucketSlots))
	for _, bound := range [...]bool{false, true} {
		for n := range bucketSlots {
			i := n
			if bound {
				i = (first + n) % bucketSlots
			}
			if b.taken(i) != bound {
				continue
			}
			if g, err := x.c.TryLock(ctx, x.slot(k, i)); !errors.Is(err, lock.ErrBusy) {
				return i, g, err
			}
		}
	}
	// A process that crashed may hold some of them: only a wait finds out.
	brief, cancel := context.WithTimeout(ctx, stallAfter)
	defer cancel()
	g, err := x.c.Lock(brief, x.slot(k, first))
	if err != nil && ctx.Err() == nil && brief.Err() != nil {
		err = ErrNames
	}
	return first, g, err
}

// store returns the store with the buckets of a memory node.
func (x *Names) store(ctx context.Context, k *nameKey) (*Store, error) {
	p := &x.stores[k.node]
	if st := p.Load(); st != nil && !st.Dropped() {
		return st, nil
	}
	mn := x.locks.nodes[k.node]
	st, err := x.c.Store(ctx, fmt.Sprintf("%s.names.%d", x.name, mn), StoreConfig{
		Nodes: []fabric.MemID{mn}, Objects: uint64(x.perNode), MaxValue: bucketHeader + bucketSlots*bucketEntry, NoEvict: true,
	})
	if err == nil {
		p.Store(st)
	}
	return st, err
}

// read returns the bucket of a name as it is now.
func (x *Names) read(ctx context.Context, k *nameKey) (bucket, error) {
	st, err := x.store(ctx, k)
	if err != nil {
		return nil, err
	}
	b, err := st.Get(ctx, k.object(), nil)
	if errors.Is(err, objstore.ErrNotFound) {
		return nil, nil
	}
	return b, err
}

// A bucket says which names its slots are bound to; one that is not there is empty.
//
//	offset    bytes
//	  0         8   names that have lost their slots had no greater tokens
//	  8+24i    16   of the name of slot i; 0: none
//	 24+24i     8   what is added to the tokens of the slot's lock
type bucket []byte

const (
	bucketHeader = 8
	bucketEntry  = 24
	printSize    = 16        // of a name
	basesAt      = printSize // in an entry
)

var noEntry [bucketEntry]byte

// entry returns what the bucket has of a slot.
func (b bucket) entry(i int) []byte {
	if at := bucketHeader + i*bucketEntry; at+bucketEntry <= len(b) {
		return b[at : at+bucketEntry]
	}
	return noEntry[:]
}

func (b bucket) base(i int) lock.Token {
	return lock.Token(binary.LittleEndian.Uint64(b.entry(i)[basesAt:]))
}

func (b bucket) taken(i int) bool { return !bytes.Equal(b.entry(i)[:basesAt], noEntry[:basesAt]) }

// bound reports whether a slot is that of a name.
func (b bucket) bound(k *nameKey, i int) bool { return bytes.Equal(b.entry(i)[:basesAt], k.print[:]) }

// find returns the slot of a name.
func (b bucket) find(k *nameKey) (i int, ok bool) {
	for i := range bucketSlots {
		if b.bound(k, i) {
			return i, true
		}
	}
	return 0, false
}

// bind binds a slot to a name, given the token of its lock, which the caller holds exclusively. Tokens of a name grow, whatever slots it has had.
func (b bucket) bind(k *nameKey, i int, token lock.Token) bucket {
	if end := bucketHeader + (i+1)*bucketEntry; len(b) < end {
		b = append(b, make(bucket, end-len(b))...)
	}
	e, high := b.entry(i), lock.Token(binary.LittleEndian.Uint64(b))
	if b.taken(i) {
		high = max(high, b.base(i)+token)
		binary.LittleEndian.PutUint64(b, uint64(high))
	}
	copy(e, k.print[:])
	base := lock.Token(0)
	if token <= high {
		base = high + 1 - token
	}
	binary.LittleEndian.PutUint64(e[basesAt:], uint64(base))
	return b
}
