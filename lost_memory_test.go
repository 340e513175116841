package declock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/btree"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/shm"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/objstore"
)

// lostAt are memory nodes that lose their memory.
type lostAt struct {
	t *testing.T
	o shm.Options
	m interface{ Close() error }
}

func serveLosing(t *testing.T, o shm.Options) *lostAt {
	x := &lostAt{t: t, o: o, m: serve(t, o)}
	t.Cleanup(func() { x.m.Close() })
	return x
}

// lose has the memory node restart without its memory.
func (x *lostAt) lose() {
	x.t.Helper()
	if err := x.m.Close(); err != nil {
		x.t.Fatal(err)
	}
	x.m = serve(x.t, x.o)
}

// Locks whose memory was lost: the holder is told, each session that goes on hears of it once, and then the locks are there again, with tokens
// that go on growing. A LockID of before is refused for ever. It holds for several losses.
func TestLocksGoOnWithoutTheirMemory(t *testing.T) {
	ctx := context.Background()
	o := shm.Options{Name: "locks", Dir: t.TempDir(), Size: 16 << 20, Sparse: true}
	m := serveLosing(t, o)
	losses, memories := make(chan lock.Loss, 10), make(chan fabric.MemID, 10)
	c, err := declock.Open(ctx, "shm:locks", declock.WithDir(o.Dir), declock.WithOnLoss(func(l lock.Loss) { losses <- l }),
		declock.WithOnMemoryLost(func(mn fabric.MemID) { memories <- mn }))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	elsewhere := opened(t, "locks", o.Dir)
	l, err := c.Locks(ctx, "l", 3)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := elsewhere.Locks(ctx, "l", 3)
	if err != nil {
		t.Fatal(err)
	}
	holder, idle, other := session(t, c), session(t, c), session(t, elsewhere)
	for range 3 {
		before, theirsBefore := l.At(1), theirs.At(1)
		g, err := holder.Lock(ctx, before)
		if err != nil {
			t.Fatal(err)
		}
		m.lose()
		for _, s := range []*declock.Session{idle, other} {
			at, before := l, before
			if s == other {
				at, before = theirs, theirsBefore
			}
			if _, err := s.Lock(ctx, at.At(1)); !errors.Is(err, declock.ErrMemoryLost) {
				t.Fatalf("the first Lock after the loss: %v", err)
			}
			if _, err := s.Lock(ctx, before); !errors.Is(err, declock.ErrMemoryLost) {
				t.Fatalf("Lock of a LockID of before: %v", err)
			}
		}
		if l.At(1) == before || l.At(1).Addr() != theirs.At(1).Addr() {
			t.Fatalf("locks at %v, elsewhere at %v, before at %v", l.At(1), theirs.At(1), before)
		}
		if loss := <-losses; loss.Lock != before.Addr() || loss.Token != g.Token() || !errors.Is(loss.Err, lock.ErrLost) {
			t.Errorf("told of %+v, held %v with %v", loss, before, g.Token())
		}
		if _, err := holder.Lock(ctx, l.At(1)); !errors.Is(err, lock.ErrLost) {
			t.Errorf("Lock by a session that holds a lock that was lost: %v", err)
		}
		if err := g.Unlock(); !errors.Is(err, lock.ErrLost) {
			t.Errorf("Unlock of a lock that was lost: %v", err)
		}
		if _, err := holder.Lock(ctx, l.At(1)); !errors.Is(err, declock.ErrMemoryLost) {
			t.Errorf("the holder's first Lock: %v", err)
		}
		if mn := <-memories; mn != 0 || len(memories) > 0 {
			t.Errorf("told of the memory of %v, and of %d more", mn, len(memories))
		}
		token := g.Token()
		for _, s := range []*declock.Session{holder, idle, other} {
			at := l
			if s == other {
				at = theirs
			}
			g, err := s.Lock(ctx, at.At(1))
			if err != nil {
				t.Fatal(err)
			}
			if g.Token() <= token {
				t.Errorf("token %#x after %#x", g.Token(), token)
			}
			token = g.Token()
			if err := g.Unlock(); err != nil {
				t.Error(err)
			}
		}
	}
}

// A store and a tree whose memory was lost: each client hears it once, from an operation, and goes on with what is empty, and has
// the configuration that it had. So do clients of other processes, whoever comes first.
func TestStoresAndTreesGoOnWithoutTheirMemory(t *testing.T) {
	ctx := context.Background()
	o := shm.Options{Name: "goon", Dir: t.TempDir(), Size: 64 << 20, Sparse: true}
	m := serveLosing(t, o)
	var caches []*objstore.Client
	var trees []*btree.Client
	for i := range 4 { // two in each of two processes
		if i%2 == 0 {
			opened(t, "goon", o.Dir)
		}
		c := opened(t, "goon", o.Dir)
		st, err := c.Store(ctx, "s", declock.StoreConfig{Objects: 1000, MaxValue: 5000})
		if err != nil {
			t.Fatal(err)
		}
		k, err := st.Client(session(t, c))
		if err != nil {
			t.Fatal(err)
		}
		caches = append(caches, k)
		tree, err := c.Tree(ctx, "t", declock.TreeConfig{MaxKey: 40})
		if err != nil {
			t.Fatal(err)
		}
		b, err := tree.Client(session(t, c))
		if err != nil {
			t.Fatal(err)
		}
		trees = append(trees, b)
	}
	for range 2 {
		var cas uint64
		for i := range 500 {
			key := fmt.Appendf(nil, "key%d", i)
			if err := caches[i%4].Set(key, bytes.Repeat(key, 20), objstore.Options{}); err != nil {
				t.Fatal(err)
			}
			if err := trees[i%4].Put(key, key); err != nil {
				t.Fatal(err)
			}
		}
		if it, err := caches[0].Get([]byte("key7")); err == nil {
			cas = it.CAS
		}
		m.lose()
		for i := range 4 {
			if _, err := caches[i].Get([]byte("key7")); !errors.Is(err, declock.ErrMemoryLost) {
				t.Fatalf("the first Get of cache %d: %v", i, err)
			}
			if _, err := trees[i].Get([]byte("key7")); !errors.Is(err, declock.ErrMemoryLost) {
				t.Fatalf("the first Get of tree %d: %v", i, err)
			}
			if i > 0 {
				continue
			}
			settled(t, caches[i], trees[i])
		}
		for i := range 500 {
			k, b := settled(t, caches[i%4], trees[i%4])
			if _, err := k.Get(fmt.Appendf(nil, "key%d", i)); !errors.Is(err, objstore.ErrNotFound) {
				t.Fatalf("key%d of before: %v", i, err)
			}
			if err := k.Set(fmt.Appendf(nil, "new%d", i), bytes.Repeat([]byte("n"), 1000), objstore.Options{}); err != nil {
				t.Fatal(err)
			}
			if err := b.Put(fmt.Appendf(nil, "new%d", i), []byte("n")); err != nil {
				t.Fatal(err)
			}
		}
		if err := caches[1].Set([]byte("key7"), []byte("v"), objstore.Options{}); err != nil {
			t.Fatal(err)
		}
		if err := caches[0].CompareAndSwap([]byte("key7"), []byte("w"), objstore.Options{}, cas); !errors.Is(err, objstore.ErrExists) {
			t.Errorf("CompareAndSwap with the unique of an object that was lost: %v", err)
		}
		if err := caches[2].Set([]byte("k"), make([]byte, 5001), objstore.Options{}); !errors.Is(err, objstore.ErrValueSize) {
			t.Errorf("a value that is too large: %v", err)
		}
		if r, err := caches[3].Check(objstore.CheckOptions{}); err != nil || !r.Sound() {
			t.Errorf("store: %v, %v", r, err)
		}
		if r, err := trees[3].Check(btree.CheckOptions{}); err != nil || !r.Sound() || r.Keys != 500 {
			t.Errorf("tree: %+v, %v", r, err)
		}
	}
}

// settled returns clients that have been told of all losses. (Who finds a loss out is told as a session and as a client; and while another
// client of the compute node makes the store again, everybody is.)
func settled(t *testing.T, k *objstore.Client, b *btree.Client) (*objstore.Client, *btree.Client) {
	t.Helper()
	goesOn(t, objstore.ErrNotFound, func() error { _, err := k.Get([]byte("no")); return err })
	goesOn(t, btree.ErrNotFound, func() error { _, err := b.Get([]byte("no")); return err })
	return k, b
}

// goesOn calls f until it is told of no loss any more. It must end with want then.
func goesOn(t *testing.T, want error, f func() error) {
	t.Helper()
	err := f()
	for errors.Is(err, declock.ErrMemoryLost) {
		err = f()
	}
	if !errors.Is(err, want) {
		t.Fatalf("%v, want %v", err, want)
	}
}

// One of two memory nodes loses its memory: the objects of the other are there still, and its memory is used on; a tree is
// gone as a whole. Whichever of them it is.
func TestOneMemoryOfTwoIsLost(t *testing.T) {
	for which := range 2 {
		t.Run(fmt.Sprintf("memory node %d", which), func(t *testing.T) { oneOfTwo(t, which) })
	}
}

func oneOfTwo(t *testing.T, which int) {
	ctx := context.Background()
	o := shm.Options{Name: "two", Dir: t.TempDir(), Size: 32 << 20, Sparse: true}
	var mns []*lostAt
	for range 2 {
		mns = append(mns, serveLosing(t, o))
		o.Mem++
	}
	c, late := opened(t, "two", o.Dir), opened(t, "two", o.Dir)
	st, err := c.Store(ctx, "s", declock.StoreConfig{})
	if err != nil {
		t.Fatal(err)
	}
	k, err := st.Client(session(t, c))
	if err != nil {
		t.Fatal(err)
	}
	tree, err := c.Tree(ctx, "t", declock.TreeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := tree.Client(session(t, c))
	if err != nil {
		t.Fatal(err)
	}
	const objects = 400
	key := func(i int) []byte { return fmt.Appendf(nil, "key%d", i) }
	for i := range objects {
		if err := errors.Join(k.Set(key(i), key(i), objstore.Options{}), b.Put(key(i), key(i))); err != nil {
			t.Fatal(err)
		}
	}
	mns[which].lose()
	told := 0
	kept := 0
	for i := range objects {
		mn, _ := st.Locate(key(i))
		it, err := k.Get(key(i))
		for errors.Is(err, declock.ErrMemoryLost) {
			told++
			it, err = k.Get(key(i))
		}
		switch {
		case int(mn) == which && !errors.Is(err, objstore.ErrNotFound):
			t.Fatalf("%s on %v: %v", key(i), mn, err)
		case int(mn) != which && (err != nil || !bytes.Equal(it.Value, key(i))):
			t.Fatalf("%s on %v: %q, %v", key(i), mn, it.Value, err)
		case int(mn) != which:
			kept++
		}
	}
	if told == 0 || kept == 0 || kept == objects {
		t.Errorf("told %d times; %d objects kept", told, kept)
	}
	if _, err := b.Get(key(0)); !errors.Is(err, declock.ErrMemoryLost) {
		t.Errorf("the tree: %v", err)
	}
	_, b = settled(t, k, b)
	theirs, err := late.Store(ctx, "s", declock.StoreConfig{})
	if err != nil {
		t.Fatal(err)
	}
	k2, err := theirs.Client(session(t, late))
	if err != nil {
		t.Fatal(err)
	}
	for i := range objects {
		if err := errors.Join(k2.Set(key(i), key(i+1), objstore.Options{}), b.Put(key(i), key(i+2))); err != nil {
			t.Fatal(err)
		}
		if it, err := k.Get(key(i)); err != nil || !bytes.Equal(it.Value, key(i+1)) {
			t.Fatalf("%s: %q, %v", key(i), it.Value, err)
		}
	}
	if r, err := k.Check(objstore.CheckOptions{}); err != nil || !r.Sound() {
		t.Errorf("store: %v, %v", r, err)
	}
	if r, err := b.Check(btree.CheckOptions{}); err != nil || !r.Sound() || r.Keys != objects {
		t.Errorf("tree: %+v, %v", r, err)
	}
}

// A memory node restarts without its memory, and others make a store in the new memory. A process of before, which has
// a tree and a store open, does nothing to it: not in a new session, whose Port is in the new generation from the start, not
// if it had not used a lock before, and not when it closes.
func TestLostMemoryOfOthersIsNotTouched(t *testing.T) {
	for _, used := range []bool{true, false} {
		t.Run(fmt.Sprintf("locks used before %v", used), func(t *testing.T) { lostMemory(t, used) })
	}
}

func lostMemory(t *testing.T, used bool) {
	ctx := context.Background()
	o := shm.Options{Name: "lost", Dir: t.TempDir(), Size: 64 << 20, Sparse: true}
	m := serveLosing(t, o)
	old, err := declock.Open(ctx, "shm:lost", declock.WithDir(o.Dir))
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	tree, err := old.Tree(ctx, "t", declock.TreeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	store, err := old.Store(ctx, "before", declock.StoreConfig{})
	if err != nil {
		t.Fatal(err)
	}
	large := bytes.Repeat([]byte("x"), 60000)
	if used { // the compute node has an extent of large values, and of chunks
		usedBefore(t, old, tree, store, large)
	}
	m.lose()
	others, err := declock.Open(ctx, "shm:lost", declock.WithDir(o.Dir))
	if err != nil {
		t.Fatal(err)
	}
	defer others.Close()
	const objects = 3000
	theirs := fill(t, others, objects)

	s := session(t, old)
	b, err := tree.Client(s)
	if err == nil { // nobody had looked yet
		_, err = b.Get([]byte("k")) // the session is told
		_, _ = b.Get([]byte("k"))   // and the client
	}
	if !errors.Is(err, declock.ErrMemoryLost) { // whether the keeper was faster or not
		t.Errorf("Client of the tree: %v", err)
	}
	if _, err := store.Client(s); !errors.Is(err, declock.ErrMemoryLost) {
		t.Errorf("Client of the store: %v", err)
	}
	usedBefore(t, old, tree, store, large)
	if _, err := old.Tree(ctx, "another", declock.TreeConfig{}); err != nil {
		t.Errorf("Tree: %v", err)
	}
	if _, err := old.Locks(ctx, "l", 1); err != nil {
		t.Errorf("Locks: %v", err)
	}
	if err := old.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if r, err := theirs.Check(objstore.CheckOptions{}); err != nil || !r.Sound() {
		t.Errorf("the store of others: %+v, %v", r, err)
	}
	for i := range objects {
		if item, err := theirs.Get(fmt.Appendf(nil, "key%d", i)); err != nil || len(item.Value) != 500 {
			t.Fatalf("key%d of the store of others: %d bytes, %v", i, len(item.Value), err)
		}
	}
}

// usedBefore has a process take memory of a tree and of a store.
func usedBefore(t *testing.T, c *declock.Cluster, tree *declock.Tree, store *declock.Store, value []byte) {
	t.Helper()
	s := session(t, c)
	goesOn(t, nil, func() error {
		k, err := tree.Client(s)
		if err != nil {
			return err
		}
		return k.Put([]byte("k"), value)
	})
	goesOn(t, nil, func() error {
		k, err := store.Client(s)
		if err != nil {
			return err
		}
		return k.Set([]byte("k"), value, objstore.Options{})
	})
}

// fill makes a store with objects.
func fill(t *testing.T, c *declock.Cluster, objects int) *objstore.Client {
	t.Helper()
	st, err := c.Store(context.Background(), "theirs", declock.StoreConfig{})
	if err != nil {
		t.Fatal(err)
	}
	k, err := st.Client(session(t, c))
	if err != nil {
		t.Fatal(err)
	}
	for i := range objects {
		if err := k.Set(fmt.Appendf(nil, "key%d", i), bytes.Repeat([]byte("v"), 500), objstore.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	return k
}

// A lock is not passed on from one session of a process to another when its memory node has restarted: nobody has to do an
// operation there to find out.
func TestRestartedLockIsNotHandedOver(t *testing.T) {
	ctx := context.Background()
	o := shm.Options{Name: "handover", Dir: t.TempDir(), Size: 16 << 20, Sparse: true}
	m := serveLosing(t, o)
	losses := make(chan lock.Loss, 10)
	c, err := declock.Open(ctx, "shm:handover", declock.WithDir(o.Dir), declock.WithPolicy("local-prefer"), declock.WithOnLoss(func(l lock.Loss) { losses <- l }))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	l, err := c.Locks(ctx, "l", 1)
	if err != nil {
		t.Fatal(err)
	}
	g, err := session(t, c).Lock(ctx, l.At(0))
	if err != nil {
		t.Fatal(err)
	}
	second, got := session(t, c), make(chan error, 1)
	go func() {
		_, err := second.Lock(ctx, l.At(0))
		got <- err
	}()
	time.Sleep(20 * time.Millisecond) // it waits
	m.lose()
	if err := g.Unlock(); !errors.Is(err, lock.ErrLost) {
		t.Errorf("Unlock: %v", err)
	}
	if err := <-got; err == nil {
		t.Error("another session was granted the lock of before")
	}
	if lost := <-losses; lost.Token != g.Token() {
		t.Errorf("told of token %v, and had %v", lost.Token, g.Token())
	}
}
