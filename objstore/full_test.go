package objstore

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/cas"
)

// A store that is full evicts objects that no client has used for long.
func TestEviction(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 8<<20, 1)
	cfg := w.config()
	cfg.Objects, cfg.MemoryLimit, cfg.AccessRefreshS = 4000, 1<<20, 1
	c := w.client(0, w.open(0, cfg))
	value := make([]byte, 400)
	const hot = 100
	now := uint32(1000)
	for i := range 20_000 {
		if i%100 == 0 {
			now++
			c.SetNow(now)
			for k := range hot {
				if _, err := c.Get(keyOf(k)); err != nil && i > hot {
					t.Fatalf("hot key %d after %d sets: %v", k, i, err)
				}
			}
		}
		if _, err := c.Get(keyOf(i)); i > hot && !errors.Is(err, ErrNotFound) {
			t.Fatal(err)
		}
		wantErr(t, "set", c.Set(keyOf(i), value, Options{}), nil)
	}
	r := mustBeSound(t, c)
	n := r.Nodes[0]
	if n.ChunkBytes < 9*cfg.MemoryLimit/10 || n.ChunkBytes > cfg.MemoryLimit || c.Stats().Evictions < 15_000 || n.Elsewhere != 0 {
		t.Fatalf("%v%+v", r, *c.Stats())
	}
	// What is left is mostly young.
	young := 0
	for i := 18_000; i < 20_000; i++ {
		if _, err := c.Get(keyOf(i)); err == nil {
			young++
		}
	}
	t.Logf("%d of the last 2000 keys are left, of %d objects; %+v", young, n.Objects, *c.Stats())
	if young < 1400 {
		t.Errorf("%d of the last 2000 keys are left", young)
	}

	c.s.cfg.NoEvict = true
	var err error
	for i := 0; err == nil && i < 2000; i++ {
		err = c.Set(fmt.Append(nil, "more", i), value, Options{})
	}
	wantErr(t, "set in a full store without eviction", err, ErrNoSpace)
	mustBeSound(t, c)
}

// When all memory is in chunks of one class, others get memory from it: runs that are evicted as a whole.
func TestClassesShareMemory(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 8<<20, 1)
	cfg := w.config()
	cfg.MemoryLimit = 1 << 20
	c := w.client(0, w.open(0, cfg))
	for i := range 400 {
		wantErr(t, "set", c.Set(keyOf(i), make([]byte, 4000), Options{}), nil)
	}
	for i := range 400 {
		wantErr(t, "small set", c.Set(keyOf(1000+i), b("small"), Options{}), nil)
		wantValue(t, c, string(keyOf(1000+i)), "small")
	}
	wantErr(t, "large set", c.Set(b("large"), make([]byte, 100_000), Options{}), nil)
	if it, err := c.Get(b("large")); err != nil || len(it.Value) != 100_000 {
		t.Fatalf("%d bytes, %v", len(it.Value), err)
	}
	for i := range 400 {
		wantErr(t, "set", c.Set(keyOf(i), make([]byte, 4000), Options{}), nil)
	}
	r := mustBeSound(t, c)
	if n := r.Nodes[0]; n.Elsewhere != 0 || n.ExtentBytes > cfg.MemoryLimit {
		t.Fatal(r)
	}
	t.Logf("%+v", *c.Stats())
}

// fill sets objects of a size until there is no room, and returns how many there are.
func fill(t *testing.T, c *Client, size, most int) (n int) {
	t.Helper()
	value := make([]byte, size)
	for ; n < most; n++ {
		if err := c.Set(fmt.Append(nil, size, "-", n), value, Options{}); err != nil {
			wantErr(t, "set", err, ErrNoSpace)
			return n
		}
	}
	t.Fatalf("room for %d objects of %d B", n, size)
	return 0
}

func deleteAll(t *testing.T, c *Client, size, n int) {
	t.Helper()
	for i := range n {
		wantErr(t, "delete", c.Delete(fmt.Append(nil, size, "-", i)), nil)
	}
}

// A store that was full of objects of one size, which were deleted, takes as many of another size as one that is new: 95 % at
// least. All compute nodes help to fill and to delete.
func TestEverySizeGetsTheMemory(t *testing.T) {
	const size = 8 << 20
	sizes := []int{1000, 4000, 100, 1000, 30_000, 300}
	world := func() (*world, []*Client) {
		w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, size, 2)
		cfg := w.config()
		cfg.Objects, cfg.NoEvict = 15_000, true
		return w, []*Client{w.client(0, w.open(0, cfg)), w.client(1, w.open(1, cfg))}
	}
	_, c := world()
	for i, b := range sizes {
		w, fresh := world()
		want := fill(t, fresh[0], b, size)
		w.c.Close()
		got := fill(t, c[i%2], b, size)
		t.Logf("%d B: %d objects, %d in a new store", b, got, want)
		if got < want*95/100 {
			t.Errorf("%d B: %d objects, %d in a new store\n%v%+v", b, got, want, mustBeSound(t, c[i%2]), *c[i%2].Stats())
		}
		deleteAll(t, c[i%2], b, got)
		wantErr(t, "drain", c[i%2].Drain(), nil)
	}
	mustBeSound(t, c[0])
}

// Where values of 1,000 B fill the memory, at least 80 % of it are values: index, keys, headers and what is left over are the rest.
func TestCapacity(t *testing.T) {
	const size = 32 << 20
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, size, 1)
	cfg := w.config()
	cfg.Objects, cfg.NoEvict = 28_000, true
	c := w.client(0, w.open(0, cfg))
	n := fill(t, c, 1000, size)
	t.Logf("%d objects: %.1f %% of the memory\n%v", n, float64(n)*1000/size*100, mustBeSound(t, c))
	if n*1000 < size*805/1000 {
		t.Errorf("%d objects of 1000 B in %d B", n, size)
	}
}

// Sizes drift from 300 B to 30 KB in a store that is full: every set succeeds, and others go.
func TestDriftingSizes(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 8<<20, 2)
	cfg := w.config()
	cfg.Objects = 10_000
	const sets = 10_000
	var all []*Client
	for cn := range 2 {
		all = append(all, w.client(cn, w.open(cn, cfg)))
	}
	for cn, c := range all {
		w.c.GoOn(c.port, "drift", func(fabric.Port) {
			r := rand.New(rand.NewPCG(1, uint64(cn)))
			for i := range sets {
				median := 300 * math.Pow(100, float64(i)/sets)
				size := int(median * math.Exp(r.NormFloat64()/2))
				c.SetNow(uint32(1000 + i/100))
				key := keyOf(r.IntN(20_000))
				if err := c.Set(key, make([]byte, min(size, 100_000)), Options{}); err != nil {
					t.Errorf("set %d of %d B: %v", i, size, err)
				}
			}
		})
	}
	wantErr(t, "run", w.c.Run(), nil)
	n := mustBeSound(t, all[0]).Nodes[0]
	t.Logf("%+v\n%+v\n%+v", n, *all[0].Stats(), *all[1].Stats())
	if n.KeyBytes+n.ValueBytes < n.ExtentBytes/2 {
		t.Errorf("of %d B %d are used", n.ExtentBytes, n.KeyBytes+n.ValueBytes)
	}
}

// A set that finds no room costs little, also when nothing has changed for long.
func TestRefusalIsCheap(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 4<<20, 1)
	cfg := w.config()
	cfg.NoEvict = true
	p := &hookPort{Port: w.port(0)}
	c, err := w.open(0, cfg).Client(cas.New(p, cas.Config{}))
	wantErr(t, "client", err, nil)
	fill(t, c, 1000, 1<<20)
	for _, size := range []int{4000, 1000, 100_000} {
		wantErr(t, "set", ignore(c.Set(b("k"), make([]byte, size), Options{}), ErrNoSpace), nil)
		p.until = 0
		wantErr(t, "set", c.Set(b("k"), make([]byte, size), Options{}), ErrNoSpace)
		if -p.until > 3 {
			t.Errorf("%d chains to refuse %d B", -p.until, size)
		}
	}
}

// Expired objects go before all others.
func TestEvictionPrefersExpired(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 8<<20, 1)
	cfg := w.config()
	cfg.MemoryLimit = 256 << 10
	c := w.client(0, w.open(0, cfg))
	c.SetNow(100)
	n := 0
	for c.Stats().Evictions == 0 {
		wantErr(t, "set", c.Set(keyOf(n), make([]byte, 400), Options{TTL: uint32(n%2) * 10}), nil)
		n++
	}
	c.SetNow(200)
	for i := range n / 4 {
		wantErr(t, "set", c.Set(fmt.Append(nil, "new", i), make([]byte, 400), Options{}), nil)
	}
	if s := c.Stats(); s.Evictions > 3 || s.Expired < uint64(n/4-2) {
		t.Errorf("%+v", *s)
	}
	mustBeSound(t, c)
}

// What one compute node frees, another uses.
func TestMemoryMovesBetweenNodes(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 8<<20, 2)
	cfg := w.config()
	cfg.MemoryLimit, cfg.NoEvict = 2<<20, true
	c, d := w.client(0, w.open(0, cfg)), w.client(1, w.open(1, cfg))
	for round := range 10 {
		a, b := c, d
		if round%2 == 1 {
			a, b = d, c
		}
		for i := range 3000 {
			wantErr(t, "set", a.Set(keyOf(i), make([]byte, 400), Options{}), nil)
		}
		for i := range 3000 {
			wantErr(t, "delete", b.Delete(keyOf(i)), nil)
		}
	}
	wantErr(t, "drain", c.Drain(), nil)
	wantErr(t, "drain", d.Drain(), nil)
	r := mustBeSound(t, c)
	if n := r.Nodes[0]; n.Elsewhere != 0 || n.FreeCentral+overflowSize*n.Overflows+n.Rest != n.ExtentBytes || n.Objects != 0 {
		t.Fatal(r)
	}
}

// Objects spread over several memory nodes, and every compute node finds them.
func TestSeveralNodes(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 3, 8<<20, 2)
	c, d := w.client(0, w.open(0, w.config())), w.client(1, w.open(1, w.config()))
	for i := range 1500 {
		wantErr(t, "set", c.Set(keyOf(i), keyOf(i), Options{}), nil)
	}
	for i := range 1500 {
		wantValue(t, d, string(keyOf(i)), string(keyOf(i)))
	}
	for _, n := range mustBeSound(t, d).Nodes {
		if n.Objects < 400 || n.Objects > 600 {
			t.Errorf("%v has %d of 1500 objects", n.Node, n.Objects)
		}
	}
}

func TestOpen(t *testing.T) {
	w := newWorld(t, sim.Config{}, 2, 8<<20, 4)
	stores := make([]*Store, 4)
	for i, n := range w.cns {
		p, err := n.Open()
		wantErr(t, "port", err, nil)
		w.c.GoOn(p, n.String(), func(fabric.Port) {
			stores[i], err = Open(p, w.config())
			wantErr(t, "open", err, nil)
		})
	}
	wantErr(t, "run", w.c.Run(), nil)
	for _, s := range stores {
		if s.geo != stores[0].geo {
			t.Fatalf("%+v, %+v", s.geo, stores[0].geo)
		}
	}
	p := w.port(0)
	cfg := w.config()
	cfg.Objects = 50 // whatever: the store is there
	_, err := Open(p, cfg)
	wantErr(t, "open with other Objects", err, nil)
	cfg.MaxValue = 1000
	_, err = Open(p, cfg)
	wantErr(t, "other MaxValue", err, ErrGeometry)
	cfg = w.config()
	cfg.Lock.Size = 72
	_, err = Open(p, cfg)
	wantErr(t, "other lock", err, ErrGeometry)
	cfg = w.config()
	cfg.Nodes = w.mns[:1]
	_, err = Open(p, cfg)
	wantErr(t, "fewer nodes", err, ErrGeometry)
	cfg.Nodes = []fabric.MemID{1, 0}
	_, err = Open(p, cfg)
	wantErr(t, "other order", err, ErrGeometry)
	for _, bad := range []func(*Config){
		func(c *Config) { c.Nodes = nil }, func(c *Config) { c.MaxValue = MaxValueBytes + 1 }, func(c *Config) { c.Segment = 100 }, func(c *Config) { c.Lock.Size = 0 },
	} {
		cfg = w.config()
		bad(&cfg)
		_, err = Open(p, cfg)
		wantErr(t, "bad config", err, ErrConfig)
	}
}

// A hookPort calls a function before one of its chains.
type hookPort struct {
	fabric.Port
	until int
	hook  func()
}

func (p *hookPort) Do(ops []fabric.Op) error {
	if p.until--; p.until == 0 {
		p.hook()
	}
	return p.Port.Do(ops)
}

func (p *hookPort) Post(ops []fabric.Op) (fabric.Pending, error) {
	if p.until--; p.until == 0 {
		p.hook()
	}
	return p.Port.Post(ops)
}

// Between READ and CAS of a take, another compute node takes all blocks of the run, changes its class, and gives some of the new ones back: the
// bits are the same, and yet what is taken is no chunk of the class that it was.
func TestRunChangesWhileItIsTakenFrom(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 1<<20, 2)
	hooked := &hookPort{Port: w.port(0)}
	cfg := w.config()
	cfg.MemoryLimit, cfg.NoEvict = 1<<10, true // one run
	c, err := w.open(0, cfg).Client(cas.New(hooked, cas.Config{}))
	wantErr(t, "client", err, nil)
	d := w.client(1, w.open(1, cfg))
	n, dn := c.s.h.Parts[0], d.s.h.Parts[0]
	ch, err := c.take(n, 1) // 128 B
	wantErr(t, "take", err, nil)
	c.free(n, ch)
	wantErr(t, "drain", c.Drain(), nil)
	var odd []chunk
	hooked.until, hooked.hook = 5, func() { // line, change word, page table, free bits, CAS
		var even []chunk
		for range 16 { // 64 B
			ch, err := d.take(dn, 0)
			wantErr(t, "take", err, nil)
			if ch.off64%2 == 0 {
				even = append(even, ch)
			} else {
				odd = append(odd, ch)
			}
		}
		for _, ch := range even {
			d.free(dn, ch)
		}
		wantErr(t, "drain", d.Drain(), nil)
	}
	_, err = c.take(n, 1)
	wantErr(t, "take", err, ErrNoSpace)
	if len(odd) != 8 || d.Stats().Collected != 1 {
		t.Fatalf("%d chunks, %+v", len(odd), *d.Stats())
	}
	for _, ch := range odd {
		d.free(dn, ch)
	}
	if r := mustBeSound(t, d); r.Nodes[0].Elsewhere != 0 {
		t.Fatal(r)
	}
}
