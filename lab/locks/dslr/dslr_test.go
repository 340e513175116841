package dslr_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/fabrictest"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/dslr"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/lock/locktest"
)

const us = fabric.Microsecond

var variants = []struct {
	name string
	cfg  dslr.Config
}{
	{"dynamic", dslr.Config{}},
	{"plain", dslr.Config{Plain: true}},
	{"truncated", dslr.Config{Wait: dslr.Truncated}},
	{"overflowing", dslr.Config{Wait: dslr.Overflowing}},
	{"counters reset all the time", dslr.Config{CountMax: 20}},
	{"counters reset all the time, truncated", dslr.Config{CountMax: 24, Wait: dslr.Truncated}},
}

func mechanism(cfg dslr.Config) locktest.Mechanism {
	return locktest.Mechanism{
		Layout: cfg.Layout(), NoTokens: cfg.Plain,
		Start: func(t testing.TB, cl fabrictest.Cluster, nodes int) locktest.Session {
			return locktest.Agents(t, cl, nodes,
				func(_ int, n fabric.Node) locktest.Agent { return dslr.NewAgent(n, cfg) },
				func(_ int, p fabric.Port) lock.Locker { return dslr.New(p, cfg) })
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

// scene runs clients of a node each, with agents, and returns the cluster and the lock.
func scene(t testing.TB, cfg dslr.Config, clients int, body func(i int, l *dslr.Locker, c *sim.Cluster, a fabric.Addr)) (*sim.Cluster, fabric.Addr) {
	t.Helper()
	c := sim.New(sim.Config{NIC: sim.Ideal()})
	t.Cleanup(func() { c.Close() })
	a := fabric.At(c.AddMN(1<<20), 4096)
	for i := range clients {
		n := c.AddCN()
		c.GoAgent(n, func(fabric.Port) {
			if err := dslr.NewAgent(n, cfg).Run(func(err error) { t.Error(err) }); err != nil {
				t.Error(err)
			}
		})
		c.Go(n, fmt.Sprint(i), func(p fabric.Port) { body(i, dslr.New(p, cfg), c, a) })
	}
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	return c, a
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

func at(l *dslr.Locker, when fabric.Time) { _ = l.Port().Pause(when) }

func wantWord(t testing.TB, c *sim.Cluster, a fabric.Addr, want uint64, when string) {
	t.Helper()
	if got := c.PeekWord(a); got != want {
		t.Errorf("%s: %#016x, want %#016x", when, got, want)
	}
}

// The word of a lock. Format: do not change.
func TestWordGolden(t *testing.T) {
	scene(t, dslr.Config{}, 1, func(_ int, l *dslr.Locker, c *sim.Cluster, a fabric.Addr) {
		var x, s lock.Hold
		must(t, l.Acquire(&x, &lock.Request{Lock: a, Mode: lock.Exclusive}))
		wantWord(t, c, a, 0x0000_0000_0001_0000, "held exclusive")
		must(t, l.Release(&x, nil))
		wantWord(t, c, a, 0x0001_0000_0001_0000, "free after a writer")
		must(t, l.Acquire(&s, &lock.Request{Lock: a, Mode: lock.Shared}))
		wantWord(t, c, a, 0x0001_0000_0001_0001, "held shared")
		must(t, l.Release(&s, nil))
		wantWord(t, c, a, 0x0001_0001_0001_0001, "free after a reader")
		if x.Token != 1 || s.Token != 1 || c.PeekWord(a.Add(8)) != 1 {
			t.Errorf("tokens %d, %d, word %d", x.Token, s.Token, c.PeekWord(a.Add(8)))
		}
	})
	nX, nS, maxX, maxS := dslr.Counters(0x0001_0002_0003_0004)
	if nX != 1 || nS != 2 || maxX != 3 || maxS != 4 {
		t.Error(nX, nS, maxX, maxS)
	}
}

// A free lock is acquired and released in a chain each.
func TestRoundTrips(t *testing.T) {
	for _, plain := range []bool{false, true} {
		scene(t, dslr.Config{Plain: plain}, 1, func(_ int, l *dslr.Locker, _ *sim.Cluster, a fabric.Addr) {
			var h lock.Hold
			s := l.Port().Stats()
			for m := lock.Shared; m <= lock.Exclusive; m++ {
				chains, ops := s.Chains, s.Total()
				must(t, l.Acquire(&h, &lock.Request{Lock: a, Mode: m}))
				must(t, l.Release(&h, nil))
				want := uint64(3)
				if plain {
					want = 2
				}
				if s.Chains-chains != 2 || s.Total()-ops != want {
					t.Errorf("%v, plain %v: %d chains, %d operations", m, plain, s.Chains-chains, s.Total()-ops)
				}
			}
		})
	}
}

// Fig. 6: who draws the last ticket resets the counters when all have left.
func TestCountersAreReset(t *testing.T) {
	for _, last := range []lock.Mode{lock.Shared, lock.Exclusive} {
		c, a := scene(t, dslr.Config{CountMax: 4}, 1, func(_ int, l *dslr.Locker, c *sim.Cluster, a fabric.Addr) {
			var h lock.Hold
			for i := range 4 {
				wantWord(t, c, a, map[lock.Mode]uint64{lock.Shared: 0x1_0000_0001, lock.Exclusive: 0x1_0000_0001_0000}[last]*uint64(i), fmt.Sprintf("after %d", i))
				must(t, l.Acquire(&h, &lock.Request{Lock: a, Mode: last}))
				must(t, l.Release(&h, nil))
			}
		})
		wantWord(t, c, a, 0, "after the last ticket")
	}
}

// The order of grants is that of the tickets, whatever the modes; readers between two
// writers hold together.
func TestFirstComeFirstServed(t *testing.T) {
	for _, w := range []dslr.Wait{dslr.Dynamic, dslr.Truncated, dslr.Overflowing} {
		var order []string
		modes := []lock.Mode{lock.Exclusive, lock.Shared, lock.Shared, lock.Exclusive, lock.Shared, lock.Exclusive}
		scene(t, dslr.Config{Wait: w}, len(modes), func(i int, l *dslr.Locker, _ *sim.Cluster, a fabric.Addr) {
			var h lock.Hold
			at(l, fabric.Time(i)*5*us)
			must(t, l.Acquire(&h, &lock.Request{Lock: a, Mode: modes[i]}))
			order = append(order, fmt.Sprint("+", i))
			at(l, l.Port().Now()+100*us)
			order = append(order, fmt.Sprint("-", i))
			must(t, l.Release(&h, nil))
		})
		at := map[string]int{}
		for i, s := range order {
			at[s] = i
		}
		for _, p := range [][2]string{{"-0", "+1"}, {"-0", "+2"}, {"+1", "-2"}, {"+2", "-1"}, {"-1", "+3"}, {"-2", "+3"}, {"-3", "+4"}, {"-4", "+5"}} {
			if at[p[0]] > at[p[1]] {
				t.Errorf("%v: %v is after %v in %v", w, p[0], p[1], order)
			}
		}
	}
}

// A reader that looks late is granted, though readers behind it have left already: by line 3 of Algorithm 2
// it would have failed, and its ticket been lost until the leases were over.
func TestReadersPassEachOther(t *testing.T) {
	var granted fabric.Time
	scene(t, dslr.Config{}, 3, func(i int, l *dslr.Locker, _ *sim.Cluster, a fabric.Addr) {
		var h lock.Hold
		switch i {
		case 0:
			must(t, l.Acquire(&h, &lock.Request{Lock: a, Mode: lock.Exclusive}))
			at(l, 19*us) // just after the first reader has looked
			must(t, l.Release(&h, nil))
		case 1:
			at(l, 5*us)
			must(t, l.Acquire(&h, &lock.Request{Lock: a, Mode: lock.Shared}))
			granted = l.Port().Now()
			must(t, l.Release(&h, nil))
		case 2: // comes when the lock is free
			at(l, 20500)
			must(t, l.Acquire(&h, &lock.Request{Lock: a, Mode: lock.Shared}))
			must(t, l.Release(&h, nil))
		}
	})
	if granted > 60*us {
		t.Errorf("granted at %d us", granted/us)
	}
}

// Holders that die, of each mode, are passed over by waiters of each mode after two leases; the waiters
// after the one that resets the lock keep their tickets (Fig. 5).
func TestDeadHolder(t *testing.T) {
	cfg := dslr.Config{LeaseNs: 200 * us}
	for _, dead := range []lock.Mode{lock.Shared, lock.Exclusive} {
		for _, wait := range [][]lock.Mode{
			{lock.Exclusive}, {lock.Exclusive, lock.Exclusive}, {lock.Exclusive, lock.Shared},
			{lock.Exclusive, lock.Shared, lock.Shared, lock.Exclusive}, {lock.Shared, lock.Exclusive, lock.Shared},
		} {
			left, holders := 0, 0
			_, _ = scene(t, cfg, 1+len(wait), func(i int, l *dslr.Locker, _ *sim.Cluster, a fabric.Addr) {
				var h lock.Hold
				if i == 0 {
					must(t, l.Acquire(&h, &lock.Request{Lock: a, Mode: dead}))
					return // and never releases
				}
				at(l, fabric.Time(i)*5*us)
				must(t, l.Acquire(&h, &lock.Request{Lock: a, Mode: wait[i-1]}))
				if holders++; wait[i-1] == lock.Exclusive && holders != 1 {
					t.Errorf("dead %v, %v wait: client %d is no only holder", dead, wait, i)
				}
				at(l, l.Port().Now()+20*us)
				holders--
				must(t, l.Release(&h, nil))
				left++
				if now := l.Port().Now(); now > 5000*us {
					t.Errorf("dead %v, %v wait: client %d is done at %d us", dead, wait, i, now/us)
				}
			})
			if left != len(wait) {
				t.Errorf("dead %v: %d of %v got the lock", dead, left, wait)
			}
		}
	}
}

// The client that is to reset the counters dies: those who come do it.
func TestDeadResetter(t *testing.T) {
	cfg := dslr.Config{LeaseNs: 200 * us, CountMax: 3}
	for _, m := range []lock.Mode{lock.Shared, lock.Exclusive} {
		grants := 0
		scene(t, cfg, 3, func(i int, l *dslr.Locker, _ *sim.Cluster, a fabric.Addr) {
			var h lock.Hold
			if i == 0 {
				for range 3 {
					must(t, l.Acquire(&h, &lock.Request{Lock: a, Mode: m}))
					if l.Stats().Acquires < 3 {
						must(t, l.Release(&h, nil))
					}
				}
				return
			}
			at(l, 50*us)
			for range 10 {
				must(t, l.Acquire(&h, &lock.Request{Lock: a, Mode: lock.Mode(i % 2)}))
				must(t, l.Release(&h, nil))
				grants++
			}
		})
		if grants != 20 {
			t.Errorf("%v: %d grants", m, grants)
		}
	}
}

// A holder whose lease has expired learns it, and writes nothing.
func TestExpiredLease(t *testing.T) {
	scene(t, dslr.Config{LeaseNs: 100 * us}, 1, func(_ int, l *dslr.Locker, c *sim.Cluster, a fabric.Addr) {
		var h lock.Hold
		must(t, l.Acquire(&h, &lock.Request{Lock: a, Mode: lock.Exclusive}))
		at(l, 150*us)
		data := a.Add(512)
		if err := l.Release(&h, []fabric.Op{fabric.Store(data, 7)}); !errors.Is(err, lock.ErrLost) || h.Held {
			t.Errorf("release after the lease: %v", err)
		}
		if v := c.PeekWord(data); v != 0 {
			t.Error("what an expired holder wrote has reached memory")
		}
		wantWord(t, c, a, 1<<16, "after an expired release")
	})
}

// Waiters that give up keep nobody waiting: the last in line takes its ticket back, the agents hold the others'.
func TestGiveUp(t *testing.T) {
	for _, m := range []lock.Mode{lock.Shared, lock.Exclusive} {
		var done fabric.Time
		c, a := scene(t, dslr.Config{}, 5, func(i int, l *dslr.Locker, _ *sim.Cluster, a fabric.Addr) {
			var h lock.Hold
			at(l, fabric.Time(i)*5*us)
			r := lock.Request{Lock: a, Mode: lock.Exclusive}
			if i == 1 || i == 3 || i == 4 {
				r.Mode, r.Deadline = m, fabric.Time(60+i)*us
			}
			err := l.Acquire(&h, &r)
			if r.Deadline != 0 {
				if !errors.Is(err, lock.ErrTimeout) || l.Port().Now() > r.Deadline+10*us {
					t.Errorf("client %d at %d us: %v", i, l.Port().Now()/us, err)
				}
			} else {
				must(t, err)
				at(l, l.Port().Now()+100*us)
				must(t, l.Release(&h, nil))
				done = l.Port().Now()
			}
			at(l, 1000*us)
		})
		if done > 300*us {
			t.Errorf("%v gave up: the last is done at %d us", m, done/us)
		}
		nX, nS, maxX, maxS := dslr.Counters(c.PeekWord(a))
		if nX != maxX || nS != maxS {
			t.Errorf("%v gave up: {%d %d %d %d} is left", m, nX, nS, maxX, maxS)
		}
	}
}

// The backoff that is doubled without a bound becomes 0, and the polls go up.
func TestOverflowingBackoffPollsMore(t *testing.T) {
	polls := map[dslr.Wait]uint64{}
	for _, w := range []dslr.Wait{dslr.Truncated, dslr.Overflowing} {
		scene(t, dslr.Config{Wait: w, Plain: true}, 2, func(i int, l *dslr.Locker, _ *sim.Cluster, a fabric.Addr) {
			var h lock.Hold
			at(l, fabric.Time(i)*us)
			must(t, l.Acquire(&h, &lock.Request{Lock: a, Mode: lock.Exclusive}))
			if i == 0 {
				at(l, 3000*us)
			}
			must(t, l.Release(&h, nil))
			polls[w] += l.Stats().Retries
		})
	}
	if a, b := polls[dslr.Truncated], polls[dslr.Overflowing]; b < a*3/2 {
		t.Errorf("%d polls truncated, %d overflowing", a, b)
	}
}

// An agent gives tickets back for clients of its own node only.
func TestAgentRefusesTicketsOfStrangers(t *testing.T) {
	_, _ = scene(t, dslr.Config{Plain: true}, 2, func(i int, l *dslr.Locker, c *sim.Cluster, a fabric.Addr) {
		p := l.Port()
		var h lock.Hold
		if i == 0 {
			must(t, l.Acquire(&h, &lock.Request{Lock: a, Mode: lock.Exclusive}))
			_ = p.Pause(500 * fabric.Microsecond)
			must(t, l.Release(&h, nil))
			return
		}
		_ = p.Pause(100 * fabric.Microsecond)
		before := c.PeekWord(a)
		// "I have left the first exclusive ticket: give it back when it is its turn."
		m := fabric.Message{Kind: fabric.MsgLock + 0x30, Body: [7]uint64{uint64(a), 0, 0, uint64(lock.Exclusive)}}
		must(t, p.Send(fabric.AgentOf(1), &m))
		_ = p.Pause(300 * fabric.Microsecond)
		if after := c.PeekWord(a); after != before {
			t.Errorf("a stranger has given a holder's ticket back: %#x, then %#x", before, after)
		}
	})
}
