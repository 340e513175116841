package mcs_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/fabrictest"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/mcs"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/lock/locktest"
)

var variants = []struct {
	name string
	cfg  mcs.Config
}{{"tokens", mcs.Config{}}, {"plain", mcs.Config{Plain: true}}}

func mechanism(cfg mcs.Config) locktest.Mechanism {
	return locktest.Mechanism{
		Layout: cfg.Layout(), NoTokens: cfg.Plain, ExclusiveOnly: true,
		Start: func(t testing.TB, cl fabrictest.Cluster, nodes int) locktest.Session {
			return locktest.Agents(t, cl, nodes,
				func(_ int, n fabric.Node) locktest.Agent { return mcs.NewAgent(n, cfg) },
				func(_ int, p fabric.Port) lock.Locker { return mcs.New(p, cfg) })
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

// scene is a simulated cluster of one client on each of some nodes, with their agents.
func scene(t testing.TB, clients int, body func(i int, l *mcs.Locker, a fabric.Addr)) *sim.Cluster {
	t.Helper()
	c := sim.New(sim.Config{NIC: sim.Ideal()})
	t.Cleanup(func() { c.Close() })
	a := fabric.At(c.AddMN(1<<20), 4096)
	for i := range clients {
		n := c.AddCN()
		c.GoAgent(n, func(fabric.Port) {
			if err := mcs.NewAgent(n, mcs.Config{}).Run(func(err error) { t.Error(err) }); err != nil {
				t.Error(err)
			}
		})
		c.Go(n, fmt.Sprint(i), func(p fabric.Port) { body(i, mcs.New(p, mcs.Config{}), a) })
	}
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	if w := c.PeekWord(a); w != 0 {
		t.Errorf("the lock is left with tail %v", mcs.Tail(w))
	}
	return c
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The words of a lock, held and left. Format: do not change.
func TestWordsGolden(t *testing.T) {
	c := sim.New(sim.Config{NIC: sim.Ideal()})
	defer c.Close()
	a := fabric.At(c.AddMN(1<<20), 4096)
	c.Go(c.AddCN(), "client", func(p fabric.Port) {
		l := mcs.New(p, mcs.Config{})
		var h lock.Hold
		for range 2 {
			must(t, l.Acquire(&h, &lock.Request{Lock: a, Mode: lock.Exclusive}))
			if w := c.PeekWord(a); w != 0x1001 || mcs.Tail(w) != fabric.Client(1, 1) {
				t.Errorf("held by cn1/1: %#x", w)
			}
			must(t, l.Release(&h, nil))
		}
		if w, n := c.PeekWord(a), c.PeekWord(a.Add(8)); w != 0 || n != 2 || h.Token != 2 {
			t.Errorf("free after 2 grants: %#x, token %d, of the last hold %d", w, n, h.Token)
		}
	})
	must(t, c.Run())
}

// A free lock takes one chain to acquire and one to release; a handover takes none:
// a waiter enters the queue once, and is notified.
func TestRoundTrips(t *testing.T) {
	scene(t, 1, func(_ int, l *mcs.Locker, a fabric.Addr) {
		var h lock.Hold
		s := l.Port().Stats()
		must(t, l.Acquire(&h, &lock.Request{Lock: a, Mode: lock.Exclusive}))
		if s.Chains != 1 || l.Stats().AcquireOps != 2 {
			t.Errorf("acquire: %d chains, %d operations", s.Chains, l.Stats().AcquireOps)
		}
		must(t, l.Release(&h, nil))
		if s.Chains != 2 || s.Sent != 0 {
			t.Errorf("release: %d chains, %d messages", s.Chains, s.Sent)
		}
	})
	scene(t, 2, func(i int, l *mcs.Locker, a fabric.Addr) {
		var h lock.Hold
		p := l.Port()
		_ = p.Pause(fabric.Time(i) * 5 * fabric.Microsecond)
		must(t, l.Acquire(&h, &lock.Request{Lock: a, Mode: lock.Exclusive}))
		if i == 0 {
			_ = p.Pause(20 * fabric.Microsecond)
		}
		before := p.Stats().Chains
		must(t, l.Release(&h, nil))
		if i == 0 && (p.Stats().Chains != before || p.Stats().Sent != 1) {
			t.Errorf("handover: %d chains, %d messages", p.Stats().Chains-before, p.Stats().Sent)
		}
		if i == 1 && (p.Stats().Chains != 2 || h.Token != 2) {
			t.Errorf("waiter: %d chains, token %d", p.Stats().Chains, h.Token)
		}
	})
}

// Grants come in the order of the fetch-and-stores, with waiters that give up in the middle of the queue.
func TestOrderWithCancellations(t *testing.T) {
	var order []int
	scene(t, 6, func(i int, l *mcs.Locker, a fabric.Addr) {
		p := l.Port()
		var h lock.Hold
		_ = p.Pause(fabric.Time(i) * 5 * fabric.Microsecond)
		r := lock.Request{Lock: a, Mode: lock.Exclusive}
		if i%2 == 1 {
			r.Deadline = 40 * fabric.Microsecond
		}
		switch err := l.Acquire(&h, &r); {
		case i%2 == 1:
			if !errors.Is(err, lock.ErrTimeout) {
				t.Errorf("client %d: %v", i, err)
			}
		case err != nil:
			t.Errorf("client %d: %v", i, err)
		default:
			order = append(order, i)
			_ = p.Pause(60 * fabric.Microsecond)
			must(t, l.Release(&h, nil))
		}
		_ = p.Pause(500 * fabric.Microsecond) // so that agents have time
	})
	if fmt.Sprint(order) != "[0 2 4]" {
		t.Errorf("order %v", order)
	}
}

// A client that gives one lock up while it holds another has a new ID; the other is released all the same.
func TestReleaseUnderAnOldName(t *testing.T) {
	second := uint64(64)
	grants := 0
	c := scene(t, 3, func(i int, l *mcs.Locker, a fabric.Addr) {
		p := l.Port()
		b := a.Add(second)
		var h, g lock.Hold
		switch i {
		case 0: // holds a, gives b up, and has a waiter on a when it releases
			must(t, l.Acquire(&h, &lock.Request{Lock: a, Mode: lock.Exclusive}))
			_ = p.Pause(20 * fabric.Microsecond)
			if err := l.Acquire(&g, &lock.Request{Lock: b, Mode: lock.Exclusive, Deadline: 40 * fabric.Microsecond}); !errors.Is(err, lock.ErrTimeout) {
				t.Errorf("b: %v", err)
			}
			_ = p.Pause(60 * fabric.Microsecond)
			must(t, l.Release(&h, nil))
		case 1: // holds b for long
			must(t, l.Acquire(&g, &lock.Request{Lock: b, Mode: lock.Exclusive}))
			_ = p.Pause(100 * fabric.Microsecond)
			must(t, l.Release(&g, nil))
		case 2: // comes to a after client 0 has its new ID
			_ = p.Pause(50 * fabric.Microsecond)
			must(t, l.Acquire(&h, &lock.Request{Lock: a, Mode: lock.Exclusive}))
			grants++
			must(t, l.Release(&h, nil))
		}
		_ = p.Pause(500 * fabric.Microsecond)
	})
	if w := c.PeekWord(fabric.At(0, 4096+second)); w != 0 || grants != 1 {
		t.Errorf("second lock %#x, %d grants of the first", w, grants)
	}
}

func TestCorruptAndUnsupported(t *testing.T) {
	c := sim.New(sim.Config{NIC: sim.Ideal()})
	defer c.Close()
	a := fabric.At(c.AddMN(1<<20), 4096)
	c.Poke(a, []byte{0, 0, 0, 0, 0, 0, 0, 0xff})
	c.Go(c.AddCN(), "client", func(p fabric.Port) {
		var h lock.Hold
		if err := mcs.New(p, mcs.Config{}).Acquire(&h, &lock.Request{Lock: a}); !errors.Is(err, lock.ErrCorrupt) || h.Held {
			t.Errorf("corrupt word: %v", err)
		}
	})
	must(t, c.Run())
	d := sim.New(sim.Config{NIC: sim.CXL()})
	defer d.Close()
	mn := d.AddMN(1 << 20)
	d.Go(d.AddCN(), "client", func(p fabric.Port) {
		var h lock.Hold
		if err := mcs.New(p, mcs.Config{}).Acquire(&h, &lock.Request{Lock: fabric.At(mn, 4096)}); !errors.Is(err, fabric.ErrUnsupported) || h.Held {
			t.Errorf("a fabric without masked atomics: %v", err)
		}
	})
	must(t, d.Run())
}
