package objstore

import (
	"errors"
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lock/cas"
)

// A store that is full evicts objects that nobody has used for long.
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

// When all memory is in chunks of one class, others are served by eviction: smaller
// objects get the larger chunks; for larger objects there is no room, and it says so.
func TestClassExhaustion(t *testing.T) {
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
	wantErr(t, "large set", c.Set(b("large"), make([]byte, 100_000), Options{}), ErrNoSpace)
	wantMiss(t, c, "large")
	// Chunks are not cut: the objects of before can come back.
	for i := range 400 {
		wantErr(t, "set", c.Set(keyOf(i), make([]byte, 4000), Options{}), nil)
	}
	if r := mustBeSound(t, c); r.Nodes[0].Elsewhere != 0 {
		t.Fatal(r)
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
	if n := r.Nodes[0]; n.Elsewhere != 0 || n.FreeCentral+overflowSize*n.Overflows != n.ExtentBytes || n.Objects != 0 {
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
		func(c *Config) { c.Nodes = nil }, func(c *Config) { c.MaxValue = 8 << 20 }, func(c *Config) { c.Lock.Size = 0 },
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
	left int
	hook func()
}

func (p *hookPort) Do(ops []fabric.Op) error {
	if p.left--; p.left == 0 {
		p.hook()
	}
	return p.Port.Do(ops)
}

// Between READ and CAS of a pop, another compute node takes the first batch and
// the second, and gives the first back: the head is the same, and yet the pop
// must not succeed.
func TestFreeListABA(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 8<<20, 2)
	hooked := &hookPort{Port: w.port(0)}
	c, err := w.open(0, w.config()).Client(cas.New(hooked, cas.Config{}))
	wantErr(t, "client", err, nil)
	d := w.client(1, w.open(1, w.config()))
	n, dn := c.s.nodes[0], d.s.nodes[0]
	for range 2 {
		ch, err := c.takeExtent(n, 0)
		wantErr(t, "extent", err, nil)
		wantErr(t, "push", c.pushCentral(n, 0, []uint64{ch.off64}), nil)
	}
	var held chunk
	hooked.left, hooked.hook = 3, func() { // Load, READ, CAS
		first, err := d.popCentral(dn, 0)
		wantErr(t, "pop", err, nil)
		held, err = d.popCentral(dn, 0)
		wantErr(t, "pop", err, nil)
		wantErr(t, "push", d.pushCentral(dn, 0, []uint64{first.off64}), nil)
	}
	mine, err := c.popCentral(n, 0)
	wantErr(t, "pop", err, nil)
	left, err := c.popCentral(n, 0)
	if err != nil || mine.none() || held.none() || mine == held || !left.none() {
		t.Fatalf("one has %v, the other %v, left is %v (%v)", mine, held, left, err)
	}
}
