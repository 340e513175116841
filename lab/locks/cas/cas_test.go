package cas_test

import (
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/fabrictest"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/cas"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/lock/locktest"
)

var variants = []struct {
	name string
	cfg  cas.Config
}{
	{"tokens", cas.Config{}},
	{"plain", cas.Config{Plain: true}},
	{"backoff", cas.Config{BackoffMinNs: 500, BackoffMaxNs: 20_000}},
}

func mechanism(cfg cas.Config) locktest.Mechanism {
	return locktest.Mechanism{
		Layout:   cfg.Layout(),
		NoTokens: cfg.Plain,
		Start: func(testing.TB, fabrictest.Cluster, int) locktest.Session {
			return locktest.Lockers(func(_ int, p fabric.Port) lock.Locker { return cas.New(p, cfg) })
		},
	}
}

func TestConformance(t *testing.T) {
	for _, v := range variants {
		for seed := range uint64(3) {
			t.Run(fmt.Sprintf("%s/seed %d", v.name, seed), func(t *testing.T) {
				locktest.Run(t, locktest.Sim(seed), mechanism(v.cfg))
			})
		}
	}
}

// world returns a simulated memory node, and clients of as many compute nodes.
func world(t testing.TB, cfg cas.Config, clients int) (*sim.Cluster, fabric.MemID, []*cas.Locker) {
	t.Helper()
	c := sim.New(sim.Config{NIC: sim.Ideal()})
	t.Cleanup(func() { c.Close() })
	mn := c.AddMN(1 << 20)
	var ls []*cas.Locker
	for range clients {
		p, err := c.AddCN().Open()
		if err != nil {
			t.Fatal(err)
		}
		ls = append(ls, cas.New(p, cfg))
	}
	return c, mn, ls
}

// The word of a lock, as it is held. Format: do not change.
func TestWordGolden(t *testing.T) {
	c, mn, ls := world(t, cas.Config{}, 2)
	a := fabric.At(mn, 4096)
	var w, r lock.Hold
	must(t, ls[1].Acquire(&w, &lock.Request{Lock: a, Mode: lock.Exclusive}))
	if got := c.PeekWord(a); got != 0x2001_0000_0000 {
		t.Errorf("held by cn2/1: %#x", got)
	}
	if id, n := cas.Owner(c.PeekWord(a)); id != fabric.Client(2, 1) || n != 0 {
		t.Error(id, n)
	}
	if w.Token != 1 || c.PeekWord(a.Add(8)) != 1 {
		t.Errorf("token %d, word %d", w.Token, c.PeekWord(a.Add(8)))
	}
	must(t, ls[1].Release(&w, nil))
	must(t, ls[0].Acquire(&r, &lock.Request{Lock: a, Mode: lock.Shared}))
	if got := c.PeekWord(a); got != 1 || r.Token != 1 {
		t.Errorf("held by one reader: %#x, token %d", got, r.Token)
	}
	must(t, ls[0].Release(&r, nil))
	if got := c.PeekWord(a); got != 0 {
		t.Errorf("free: %#x", got)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Round trips and operations without contention: one chain each way.
func TestRoundTrips(t *testing.T) {
	for _, x := range []struct {
		cfg          cas.Config
		mode         lock.Mode
		acquire, rel uint64
	}{
		{cas.Config{}, lock.Exclusive, 2, 1},
		{cas.Config{}, lock.Shared, 2, 1},
		{cas.Config{Plain: true}, lock.Exclusive, 1, 1},
		{cas.Config{Plain: true}, lock.Shared, 1, 1},
	} {
		_, mn, ls := world(t, x.cfg, 1)
		l := ls[0]
		var h lock.Hold
		s := l.Port().Stats()
		must(t, l.Acquire(&h, &lock.Request{Lock: fabric.At(mn, 4096), Mode: x.mode}))
		if s.Chains != 1 || s.Total() != x.acquire || l.Stats().AcquireOps != x.acquire {
			t.Errorf("%+v %v acquire: %d chains, %d operations", x.cfg, x.mode, s.Chains, s.Total())
		}
		must(t, l.Release(&h, nil))
		if s.Chains != 2 || s.Total() != x.acquire+x.rel {
			t.Errorf("%+v %v release: %d chains, %d operations", x.cfg, x.mode, s.Chains, s.Total())
		}
	}
}

// A holder learns at release that its lock was cleared, and does not harm the word.
func TestLost(t *testing.T) {
	c, mn, ls := world(t, cas.Config{}, 2)
	a := fabric.At(mn, 4096)
	var h, g lock.Hold
	for _, mode := range []lock.Mode{lock.Exclusive, lock.Shared} {
		must(t, ls[0].Acquire(&h, &lock.Request{Lock: a, Mode: mode}))
		c.Poke(a, make([]byte, 8))
		must(t, ls[1].Acquire(&g, &lock.Request{Lock: a, Mode: lock.Exclusive}))
		before := c.PeekWord(a)
		if err := ls[0].Release(&h, nil); !is(err, lock.ErrLost) {
			t.Errorf("%v: release of a lost lock: %v", mode, err)
		}
		if got := c.PeekWord(a); got != before {
			t.Errorf("%v: word is %#x, was %#x", mode, got, before)
		}
		must(t, ls[1].Release(&g, nil))
	}
}

func TestCorrupt(t *testing.T) {
	c, mn, ls := world(t, cas.Config{}, 1)
	a := fabric.At(mn, 4096)
	c.Poke(a, []byte{0, 0, 0, 0, 0, 0, 0, 0xff})
	var h lock.Hold
	for _, mode := range []lock.Mode{lock.Exclusive, lock.Shared} {
		if err := ls[0].Acquire(&h, &lock.Request{Lock: a, Mode: mode}); !is(err, lock.ErrCorrupt) || h.Held {
			t.Errorf("%v: %v", mode, err)
		}
		if got := c.PeekWord(a); got != 0xff<<56 {
			t.Errorf("%v: word is %#x", mode, got)
		}
	}
}
