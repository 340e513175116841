package btree

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
)

// The table in doc.go: chains (round trips) and operations on memory nodes of each
// operation without contention, with lab/locks/cas as Plain (one operation to acquire, one to release).
func TestRoundTrips(t *testing.T) {
	large := make([]byte, 1000)
	for _, x := range []struct {
		name        string
		chains, ops uint64
		more        [2]uint64 // chains and operations for each backup
		f           func(c *Client) error
	}{
		{"get", 1, 1, [2]uint64{}, func(c *Client) error { _, err := c.Get(keyOf(7)); return err }},
		{"get of a key that is not there", 1, 1, [2]uint64{}, func(c *Client) error { _, err := c.Get(keyOf(1000)); return ignore(err, ErrNotFound) }},
		{"get of a large value", 2, 2, [2]uint64{}, func(c *Client) error { _, err := c.Get([]byte("large")); return err }},
		{"put", 2, 5, [2]uint64{1, 4}, func(c *Client) error { return c.Put(keyOf(7), []byte("new")) }},
		{"insert", 2, 5, [2]uint64{1, 4}, func(c *Client) error { return c.Insert([]byte("k000007a"), []byte("new")) }},
		{"insert of a key that is there", 2, 3, [2]uint64{}, func(c *Client) error { return ignore(c.Insert(keyOf(7), nil), ErrExists) }},
		{"compare and put", 2, 5, [2]uint64{1, 4}, func(c *Client) error { return c.CompareAndPut(keyOf(7), valueOf(7, 0), []byte("new")) }},
		{"delete", 2, 5, [2]uint64{1, 4}, func(c *Client) error { return c.Delete(keyOf(7)) }},
		{"put of a large value", 3, 6, [2]uint64{2, 5}, func(c *Client) error { return c.Put([]byte("large"), large) }},
		{"scan of one leaf", 1, 1, [2]uint64{}, func(c *Client) error {
			return c.Each(Range{From: keyOf(7), Limit: 2}, func(_, _ []byte) bool { return true })
		}},
	} {
		for _, copies := range []uint64{0, 2, 3} {
			t.Run(fmt.Sprintf("%s/%d", x.name, copies), func(t *testing.T) {
				backups := max(copies, 1) - 1
				wantTrips(t, int(copies), x.chains+backups*x.more[0], x.ops+backups*x.more[1], x.f)
			})
		}
	}
}

// wantTrips counts the chains and operations of one operation on a tree, of which there are so many copies.
func wantTrips(t *testing.T, copies int, chains, ops uint64, f func(c *Client) error) {
	t.Helper()
	large := make([]byte, 1000)
	w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 1<<20, 1, copies)
	cfg := w.config()
	cfg.NodeSize = 512
	c := w.client(0, w.open(0, cfg))
	for i := range 100 { // in two levels, with room in the leaves
		wantErr(t, "put", c.Put(keyOf(i), valueOf(i, 0)), nil)
	}
	for range 2 {
		wantErr(t, "put", c.Put([]byte("large"), large), nil)
	}
	for i := range 20 {
		wantErr(t, "delete", c.Delete(keyOf(5*i)), nil)
	}
	if _, err := c.Get(keyOf(7)); err != nil {
		t.Fatal(err)
	}
	n := &c.n
	items, err := n.sorted(nil)
	m := c.renew(n, items)
	wantErr(t, "sorted", err, nil)
	wantErr(t, "lock", c.lock(n, c.leaf, n.self), nil)
	wantErr(t, "rewrite", c.rewrite(n, &m, len(n.b)), nil) // there is room
	before := *c.port.Stats()
	wantErr(t, "operation", f(c), nil)
	after := c.port.Stats()
	if got, of := after.Chains-before.Chains, after.Total()-before.Total(); got != chains || of != ops {
		t.Errorf("%d chains of %d operations, want %d of %d", got, of, chains, ops)
	}
}

func ignore(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

// A put that finds no room writes the node anew in the chain of the release.
func TestRoundTripsMakingRoom(t *testing.T) {
	_, c := one(t, 1, nil)
	key := []byte("key")
	for range 100 {
		rewrites, before := c.stats.Rewrites, *c.port.Stats()
		wantErr(t, "put", c.Put(key, []byte("0123456789abcdef")), nil)
		if after := c.port.Stats(); c.stats.Rewrites > rewrites {
			if chains, ops := after.Chains-before.Chains, after.Total()-before.Total(); chains != 2 || ops != 7 {
				t.Errorf("%d chains of %d operations, want 2 of 7", chains, ops)
			}
			return
		}
	}
	t.Fatal("no put made room")
}

// A put that splits a leaf writes both halves in the chain of the release, if the new one is on the same memory node; the separator is an
// insert on the level above, which looks first whether the new node is there.
func TestRoundTripsOfASplit(t *testing.T) {
	_, c := one(t, 1, func(cfg *Config) { cfg.NodeSize = 512 })
	counts := map[[2]uint64]int{} // of chains and operations
	for i := range 2000 {
		st, before := c.stats, *c.port.Stats()
		wantErr(t, "put", c.Put(keyOf(i*7919%2000), valueOf(i, 0)), nil)
		if after := c.port.Stats(); c.stats.Splits == st.Splits+1 && c.stats.Completed == st.Completed+1 {
			counts[[2]uint64{after.Chains - before.Chains, after.Total() - before.Total()}]++
		}
	}
	splits := 0
	for _, n := range counts {
		splits += n
	}
	if want := [2]uint64{2 + 3, 8 + 6}; 2*counts[want] < splits { // some find no copy of the inner node, or split that too
		t.Errorf("most splits should take %v chains and operations: %v", want, counts)
	}
}

func TestNoAllocations(t *testing.T) {
	_, c := one(t, 1, nil)
	for i := range 200 {
		wantErr(t, "put", c.Put(keyOf(i), valueOf(i, 0)), nil)
	}
	key, other, value := keyOf(17), []byte("k000017a"), []byte("xyz")
	n := testing.AllocsPerRun(50, func() {
		if _, err := c.Get(key); err != nil {
			t.Fatal(err)
		}
		wantErr(t, "get", ignore(c.get(other), ErrNotFound), nil)
		wantErr(t, "put", c.Put(key, value), nil)
		wantErr(t, "insert", c.Insert(other, value), nil)
		wantErr(t, "delete", c.Delete(other), nil)
	})
	if n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func (c *Client) get(key []byte) error { _, err := c.Get(key); return err }

// The extremes of keys: empty, zeros, 0xff, of maximal length, with long common prefixes.
func TestExtremeKeys(t *testing.T) {
	for _, maxKey := range []int{16, 128, 512} {
		t.Run(fmt.Sprint(maxKey), func(t *testing.T) {
			_, c := one(t, 2, func(cfg *Config) { cfg.MaxKey, cfg.NodeSize, cfg.MaxInline = maxKey, 0, 0 })
			m := model{}
			long := bytes.Repeat([]byte("p"), maxKey-2)
			keys := []string{"", "\x00", "\x00\x00", "\xff", "\xff\xff", "\xff\x00", string(bytes.Repeat([]byte{0xff}, maxKey)), string(bytes.Repeat([]byte{0}, maxKey))}
			for i := range 256 {
				keys = append(keys, string(long)+string([]byte{byte(i * 37), byte(i)}), string(long[:maxKey/2])+string([]byte{byte(i)}))
			}
			for i, k := range keys {
				v := strings.Repeat("v", i%40)
				wantErr(t, "put", c.Put([]byte(k), []byte(v)), nil)
				m[k] = v
			}
			for k, v := range m {
				wantValue(t, c, k, v)
			}
			for _, r := range []Range{{}, {Descending: true}, {From: long}, {From: []byte{0xff, 0xff}, Descending: true}, {From: []byte{}, To: []byte{}}} {
				if got, want := all(t, c, r), m.scan(r); !slices.Equal(got, want) {
					t.Errorf("scan %+v: %d pairs, want %d", r, len(got), len(want))
				}
			}
			if r := mustBeSound(t, c); !r.Clean() || r.Keys != uint64(len(m)) {
				t.Error(r)
			}
			for k := range m { // in another order each time
				wantErr(t, "delete", c.Delete([]byte(k)), nil)
				wantMiss(t, c, k)
			}
			mustBeSound(t, c)
			// In some orders the separator of a node that has gone is left to the next visitor.
			if r, err := c.Check(CheckOptions{Repair: true}); err != nil || !r.Clean() || r.Keys != 0 || r.Levels[0].Nodes > 1 {
				t.Errorf("all keys are deleted: %v, %v", r, err)
			}
			wantErr(t, "long key", c.Put(make([]byte, maxKey+1), nil), ErrKeySize)
			wantErr(t, "long value", c.Put([]byte("k"), make([]byte, MaxValueSize+1)), ErrValueSize)
			wantErr(t, "longest value", c.Put([]byte("k"), make([]byte, MaxValueSize)), nil)
			wantValue(t, c, "k", string(make([]byte, MaxValueSize)))
		})
	}
}

// Keys and values may lie in what Get returned.
func TestArgumentsMayAliasResults(t *testing.T) {
	_, c := one(t, 1, nil)
	for i := range 100 {
		wantErr(t, "put", c.Put(keyOf(i), keyOf(i+1)), nil)
	}
	v := keyOf(0)
	for i := range 100 {
		var err error
		if v, err = c.Get(v); err != nil || !bytes.Equal(v, keyOf(i+1)) {
			t.Fatalf("step %d: %q, %v", i, v, err)
		}
	}
	v, _ = c.Get(keyOf(3))
	wantErr(t, "put", c.Put(keyOf(99), v), nil)
	wantValue(t, c, string(keyOf(99)), string(keyOf(4)))
	v, _ = c.Get(keyOf(3))
	wantErr(t, "compare", c.CompareAndPut(keyOf(99), v, v), nil)
}

// Large values fill the memory, and are deleted; then nodes come to lie where they were, and work.
func TestNodesWhereValuesWere(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 64<<10, 1)
	c := w.client(0, w.open(0, w.config()))
	n := 0
	for ; ; n++ {
		if err := c.Put(keyOf(n), bytes.Repeat([]byte{0xff}, 900)); err != nil {
			wantErr(t, "put", err, ErrNoSpace)
			break
		}
	}
	for i := range n {
		wantErr(t, "delete", c.Delete(keyOf(i)), nil)
	}
	locks := 0
	for i := 0; ; i++ {
		if err := c.Put(keyOf(i*7919%100000), keyOf(i)); err != nil {
			wantErr(t, "put", err, ErrNoSpace)
			break
		}
		locks = i
	}
	m := c.t.h.Parts[0]
	p, err := m.Region.Pages(c.port)
	wantErr(t, "pages", err, nil)
	p.Runs(&m.Entry, func(x memory.Run) {
		if x.Tag != uint8(classNode)+1 {
			return
		}
		for off := x.Off; off+c.t.stride <= x.Off+x.Size; off += c.t.stride {
			if v := w.c.PeekWord(m.Zero.Add(off)); v != 0 {
				t.Fatalf("nobody holds the lock of the node at %#x, and it is %#x", off, v)
			}
		}
	})
	if n < 20 || locks < 200 {
		t.Errorf("%d values, then %d keys", n, locks)
	}
}

// When memory is full, a put says so, the tree is as it was, and keys can be deleted and put again.
func TestFullMemory(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 2, 64<<10, 2)
	c := w.client(0, w.open(0, w.config()))
	m := model{}
	var err error
	for i := 0; err == nil; i++ {
		k, v := keyOf(i*7919%100000), strings.Repeat("v", i%300)
		if err = c.Put(k, []byte(v)); err == nil {
			m[string(k)] = v
		}
	}
	wantErr(t, "put", err, ErrNoSpace)
	if !strings.Contains(err.Error(), "no space left on memory node") {
		t.Errorf("the error does not say which memory is full: %v", err)
	}
	check := func() {
		t.Helper()
		if got := all(t, c, Range{}); !slices.Equal(got, m.scan(Range{})) {
			t.Fatalf("%d pairs, want %d", len(got), len(m))
		}
		if r, err := c.Check(CheckOptions{}); err != nil || !r.Sound() {
			t.Fatal(r, err)
		}
	}
	check()
	late := w.client(1, w.open(1, w.config())) // also for a client that opens it now
	for k, v := range m {
		wantValue(t, late, k, v)
	}
	wantErr(t, "put of another client", late.Put([]byte("more"), make([]byte, 200)), ErrNoSpace)
	for k := range m {
		wantErr(t, "delete", c.Delete([]byte(k)), nil)
		delete(m, k)
		if len(m) == 0 {
			break
		}
	}
	check()
	for i := range 100 {
		k, v := keyOf(i), strings.Repeat("w", i)
		wantErr(t, "put", c.Put(k, []byte(v)), nil)
		m[string(k)] = v
	}
	check()
	if r, err := c.Check(CheckOptions{Repair: true}); err != nil || !r.Clean() {
		t.Fatal(r, err)
	}
}

func pairsOf(n int) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		for i := range n {
			if !yield(keyOf(i), valueOf(i, 0)) {
				return
			}
		}
	}
}

func TestBulkLoad(t *testing.T) {
	for _, n := range []int{0, 1, 5, 9, 10, 100, 5000} {
		for _, percent := range []int{0, 50, 100} {
			_, c := one(t, 2, nil)
			wantErr(t, "load", c.BulkLoad(pairsOf(n), BulkOptions{FillPercent: percent}), nil)
			r := mustBeSound(t, c)
			if !r.Clean() || r.Keys != uint64(n) {
				t.Fatalf("%d keys: %v", n, r)
			}
			if got := all(t, c, Range{}); len(got) != n {
				t.Fatalf("%d of %d keys", len(got), n)
			}
			for i := 0; i < n; i += 7 {
				wantValue(t, c, string(keyOf(i)), string(valueOf(i, 0)))
				wantErr(t, "put", c.Put(append(keyOf(i), 'a'), []byte("new")), nil)
			}
			if r := mustBeSound(t, c); !r.Clean() {
				t.Fatal(r)
			}
		}
	}
}

func TestBulkLoadRefuses(t *testing.T) {
	_, c := one(t, 1, nil)
	two := func(a, b string) iter.Seq2[[]byte, []byte] {
		return func(yield func(k, v []byte) bool) { _ = yield([]byte(a), nil) && yield([]byte(b), nil) }
	}
	wantErr(t, "order", c.BulkLoad(two("b", "a"), BulkOptions{}), ErrOrder)
	wantErr(t, "twice", c.BulkLoad(two("a", "a"), BulkOptions{}), ErrOrder)
	wantErr(t, "key", c.BulkLoad(two("a", strings.Repeat("b", 17)), BulkOptions{}), ErrKeySize)
	wantErr(t, "percent", c.BulkLoad(two("a", "b"), BulkOptions{FillPercent: 101}), ErrConfig)
	wantErr(t, "load", c.BulkLoad(two("a", "b"), BulkOptions{}), nil)
	wantErr(t, "again", c.BulkLoad(two("c", "d"), BulkOptions{}), ErrNotEmpty)
	wantErr(t, "put", c.Put([]byte("c"), nil), nil)
	if r := mustBeSound(t, c); r.Keys != 3 {
		t.Fatal(r)
	}
}

func TestInspect(t *testing.T) {
	_, c := one(t, 1, nil)
	for i := range 30 {
		wantErr(t, "put", c.Put(keyOf(i), valueOf(i, 0)), nil)
	}
	d, err := c.Inspect(keyOf(3), 0)
	if err != nil || d.State != "alive" || !strings.Contains(d.String(), `"k000003"`) {
		t.Error(d, err)
	}
	d, err = c.Inspect(keyOf(3), 1)
	if err != nil || d.Level != 1 || len(d.Entries) < 2 || d.Entries[0].Kind != "child" {
		t.Error(d, err)
	}
	_, err = c.Inspect(keyOf(3), 7)
	wantErr(t, "level", err, ErrLevel)
}

// The index cache keeps to its bound, and serves searches.
func TestCacheBound(t *testing.T) {
	_, c := one(t, 1, func(cfg *Config) { cfg.CacheBytes = 8000 })
	wantErr(t, "load", c.BulkLoad(pairsOf(5000), BulkOptions{}), nil)
	for i := range 5000 {
		k := i * 7919 % 5000
		if i%5 > 0 {
			k %= 100
		}
		wantValue(t, c, string(keyOf(k)), string(valueOf(k, 0)))
	}
	s := c.t.CacheStats()
	if s.Bytes > 8000 || s.Bytes < 3000 || s.Nodes == 0 || s.Evicted == 0 {
		t.Errorf("%+v", s)
	}
	if c.stats.CacheHits < 3000 || c.stats.CacheMisses == 0 {
		t.Errorf("%+v", c.stats)
	}
}

// Two compute nodes whose caches disagree: one changes the tree from end to end, the other has
// seen it before.
func TestCachesDisagree(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 2, 16<<20, 2)
	cfg := w.config()
	a, b := w.client(0, w.open(0, cfg)), w.client(1, w.open(1, cfg))
	m := model{}
	for round := range 6 {
		for i := range 400 {
			k := keyOf(i)
			switch {
			case round%2 == 0:
				wantErr(t, "put", a.Put(k, valueOf(i, round)), nil)
				m[string(k)] = string(valueOf(i, round))
			case i%50 != 0:
				wantErr(t, "delete", a.Delete(k), nil)
				delete(m, string(k))
			}
		}
		for i := range 400 {
			k := string(keyOf(i * 7919 % 400))
			if v, ok := m[k]; ok {
				wantValue(t, b, k, v)
			} else {
				wantMiss(t, b, k)
			}
		}
		if got := all(t, b, Range{Descending: true}); !slices.Equal(got, m.scan(Range{Descending: true})) {
			t.Fatalf("round %d: %d pairs, want %d", round, len(got), len(m))
		}
		a, b = b, a
	}
	if a.stats.CacheStale+b.stats.CacheStale == 0 || a.stats.Unlinked+b.stats.Unlinked == 0 {
		t.Errorf("nothing was stale: %+v", a.stats)
	}
	mustBeSound(t, a)
}

// Memory of deleted keys is used again: putting and deleting for long takes no more and more.
func TestMemoryIsReused(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 1<<20, 1)
	c := w.client(0, w.open(0, w.config()))
	for i := range 20000 { // a queue: put at one end, delete at the other
		wantErr(t, "put", c.Put(keyOf(i), make([]byte, i%400)), nil)
		if i >= 100 {
			wantErr(t, "delete", c.Delete(keyOf(i-100)), nil)
		}
	}
	r := mustBeSound(t, c)
	if !r.Clean() || r.Keys != 100 || r.Memory[0].Bytes > 400<<10 || r.Memory[0].Elsewhere != 0 {
		t.Error(r)
	}
}

// Who lost the lock finds that out by its token before it changes anything.
func TestStaleToken(t *testing.T) {
	_, c := one(t, 1, nil)
	wantErr(t, "put", c.Put([]byte("a"), nil), nil)
	wantErr(t, "lock", c.lock(&c.n, c.leaf, c.t.first), nil)
	c.hold.Token = 7 // a later holder writes it whole
	m := c.renew(&c.n, nil)
	wantErr(t, "rewrite", c.rewrite(&c.n, &m, len(c.n.b)), nil)
	c.l = &tokenLocker{c.l, 6}
	wantErr(t, "put", c.Put([]byte("b"), nil), lock.ErrLost)
	c.l = &tokenLocker{c.l.(*tokenLocker).Locker, 8}
	wantErr(t, "put", c.Put([]byte("b"), nil), nil)
}

// A tokenLocker gives every grant one token.
type tokenLocker struct {
	lock.Locker
	token lock.Token
}

func (l *tokenLocker) Acquire(h *lock.Hold, r *lock.Request) error {
	err := l.Locker.Acquire(h, r)
	h.Token = l.token
	return err
}

func TestOpenRefuses(t *testing.T) {
	w, c := one(t, 2, nil)
	cfg := w.config()
	again := func(f func(*Config)) error {
		x := cfg
		f(&x)
		_, err := Open(c.port, x)
		return err
	}
	wantErr(t, "same", again(func(x *Config) {}), nil)
	wantErr(t, "as it is", again(func(x *Config) { x.MaxKey, x.NodeSize, x.MaxInline = 0, 0, 0 }), nil)
	wantErr(t, "keys", again(func(x *Config) { x.MaxKey = 8 }), ErrGeometry)
	wantErr(t, "lock", again(func(x *Config) { x.Lock.Size = 64 }), ErrGeometry)
	wantErr(t, "nodes", again(func(x *Config) { x.Nodes = x.Nodes[:1] }), ErrGeometry)
	wantErr(t, "order", again(func(x *Config) { x.Nodes = []fabric.MemID{x.Nodes[1], x.Nodes[0]} }), ErrGeometry)
	wantErr(t, "no nodes", again(func(x *Config) { x.Nodes = nil }), ErrConfig)
	wantErr(t, "small nodes", again(func(x *Config) { x.NodeSize = 64 }), ErrConfig)
	wantErr(t, "large keys", again(func(x *Config) { x.MaxKey = 513 }), ErrConfig)
}
