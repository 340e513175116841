package shift_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/fabrictest"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/shift"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/lock/locktest"
)

const us = fabric.Microsecond

var variants = []struct {
	name string
	cfg  shift.Config
}{
	{"letter", shift.Config{}},
	{"artifact", shift.Config{Artifact: true}},
	{"readers after each writer", shift.Config{Threshold: 1}},
	{"artifact, readers after two writers", shift.Config{Artifact: true, Threshold: 2}},
}

func mechanism(cfg shift.Config) locktest.Mechanism {
	return locktest.Mechanism{
		Layout: shift.Layout,
		Start: func(t testing.TB, cl fabrictest.Cluster, nodes int) locktest.Session {
			if !cl.Node(0).Caps().Atomic16 {
				t.Skip("the fabric has no 16-byte atomics here")
			}
			return locktest.Agents(t, cl, nodes,
				func(_ int, n fabric.Node) locktest.Agent { return shift.NewAgent(n, cfg) },
				func(i int, p fabric.Port) lock.Locker { return shift.New(p, cl.Node(i), cfg) })
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

// A world is a simulated cluster and its compute nodes.
type world struct {
	*sim.Cluster
	nodes []*sim.Node
}

// scene runs clients of a node each, with agents, and returns the cluster and the lock.
func scene(t testing.TB, cfg shift.Config, clients int, body func(i int, l *shift.Locker, c *world, a fabric.Addr)) (*world, fabric.Addr) {
	t.Helper()
	c := &world{Cluster: sim.New(sim.Config{NIC: sim.Ideal()})}
	t.Cleanup(func() { c.Close() })
	a := fabric.At(c.AddMN(1<<20), 4096)
	for i := range clients {
		n := c.AddCN()
		c.nodes = append(c.nodes, n)
		c.GoAgent(n, func(fabric.Port) {
			if err := shift.NewAgent(n, cfg).Run(func(err error) { t.Error(err) }); err != nil {
				t.Error(err)
			}
		})
		c.Go(n, fmt.Sprint(i), func(p fabric.Port) { body(i, shift.New(p, n, cfg), c, a) })
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

func at(l *shift.Locker, when fabric.Time) { _ = l.Port().Pause(when) }

func wantWords(t testing.TB, c *world, a fabric.Addr, head, rel uint64, when string) {
	t.Helper()
	if h, r := c.PeekWord(a), c.PeekWord(a.Add(8)); h != head || r != rel {
		t.Errorf("%s: %#016x %#x, want %#016x %#x", when, h, r, head, rel)
	}
}

// The words of a lock. Format: do not change.
func TestWordsGolden(t *testing.T) {
	scene(t, shift.Config{}, 1, func(_ int, l *shift.Locker, c *world, a fabric.Addr) {
		var x, s, s2 lock.Hold
		must(t, l.Acquire(&x, &lock.Request{Lock: a, Mode: lock.Exclusive}))
		wantWords(t, c, a, 0x0000_0000_0000_1001, 0, "held exclusive by cn1/1")
		must(t, l.Release(&x, nil))
		wantWords(t, c, a, 1<<63, 1, "free in the next epoch")
		must(t, l.Acquire(&s, &lock.Request{Lock: a, Mode: lock.Shared}))
		must(t, l.Acquire(&s2, &lock.Request{Lock: a, Mode: lock.Shared}))
		wantWords(t, c, a, 1<<63|2<<40, 1, "held by two readers")
		must(t, l.Release(&s, nil))
		must(t, l.Release(&s2, nil))
		wantWords(t, c, a, 1<<63, 3, "free after the readers")
		must(t, l.Acquire(&x, &lock.Request{Lock: a, Mode: lock.Exclusive}))
		must(t, l.Release(&x, nil))
		wantWords(t, c, a, 0, 4, "free in the next epoch but one")
		if s.Token != 1 || x.Token != 4 {
			t.Errorf("tokens %d, %d", s.Token, x.Token)
		}
	})
	if e, n, w, r := shift.Decode(1<<63|7<<40|0x2003, 9); !e || n != 7 || w != fabric.Client(2, 3) || r != 9 {
		t.Error(e, n, w, r)
	}
}

// Design goal G1: one round trip to acquire, one to release, when nobody is in the way.
func TestRoundTrips(t *testing.T) {
	scene(t, shift.Config{}, 1, func(_ int, l *shift.Locker, _ *world, a fabric.Addr) {
		var h lock.Hold
		for m := lock.Shared; m <= lock.Exclusive; m++ {
			s := *l.Port().Stats()
			must(t, l.Acquire(&h, &lock.Request{Lock: a, Mode: m}))
			must(t, l.Release(&h, nil))
			if e := l.Port().Stats(); e.Chains-s.Chains != 2 || e.Total()-s.Total() != 2 || e.Sent != 0 {
				t.Errorf("%v: %d chains, %d operations, %d messages", m, e.Chains-s.Chains, e.Total()-s.Total(), e.Sent)
			}
		}
	})
}

// A handover costs the holder an atomic and a message by the letter, and a message alone in the published code.
func TestHandover(t *testing.T) {
	for _, artifact := range []bool{false, true} {
		var tokens []lock.Token
		c, a := scene(t, shift.Config{Artifact: artifact}, 3, func(i int, l *shift.Locker, _ *world, a fabric.Addr) {
			var h lock.Hold
			at(l, fabric.Time(i)*5*us)
			must(t, l.Acquire(&h, &lock.Request{Lock: a, Mode: lock.Exclusive}))
			tokens = append(tokens, h.Token)
			at(l, l.Port().Now()+20*us)
			s := *l.Port().Stats()
			must(t, l.Release(&h, nil))
			want := uint64(1)
			if artifact && i < 2 {
				want = 0
			}
			if n := l.Port().Stats().Total() - s.Total(); n != want {
				t.Errorf("artifact %v, client %d: %d operations to release", artifact, i, n)
			}
		})
		if fmt.Sprint(tokens) != "[1 2 3]" || c.PeekWord(a.Add(8)) != 3 || c.PeekWord(a) != 1<<63 {
			t.Errorf("artifact %v: tokens %v, left %#x %d", artifact, tokens, c.PeekWord(a), c.PeekWord(a.Add(8)))
		}
	}
}

// After so many writers in a row come the readers that wait by then, all of them; and the next writer
// after them. A writer that flipped the epoch it saw when it came, as Algorithm 2 has it, would let
// the second group of readers wait for ever.
func TestEpochIsHandedOver(t *testing.T) {
	for _, cfg := range []shift.Config{{Threshold: 2}, {Threshold: 2, Artifact: true}} {
		var order string
		modes := "xxxxsss" // in order of arrival; the last two readers come after the first has been granted
		left := 0
		scene(t, cfg, len(modes), func(i int, l *shift.Locker, _ *world, a fabric.Addr) {
			var h lock.Hold
			at(l, fabric.Time(i)*3*us)
			r := lock.Request{Lock: a, Mode: lock.Exclusive, Deadline: 5000 * us}
			if modes[i] == 's' {
				r.Mode = lock.Shared
			}
			if i > 4 {
				at(l, fabric.Time(55+i)*us) // during the second pair of writers
			}
			must(t, l.Acquire(&h, &r))
			order += string(modes[i])
			at(l, l.Port().Now()+20*us)
			must(t, l.Release(&h, nil))
			left++
		})
		if order != "xxsxxss" || left != len(modes) {
			t.Errorf("%+v: order %q, %d are done", cfg, order, left)
		}
	}
}

// A client that fails while it holds or waits, of each mode, does not keep the lock: the server recovers it, and
// tokens grow across that.
func TestRecovery(t *testing.T) {
	cfg := shift.Config{LeaseNs: 200 * us}
	for _, dead := range []string{"holds x", "holds s", "waits x", "waits x for readers", "waits s"} {
		for _, artifact := range []bool{false, true} {
			cfg.Artifact = artifact
			var last lock.Token
			grants := 0
			scene(t, cfg, 6, func(i int, l *shift.Locker, c *world, a fabric.Addr) {
				var h lock.Hold
				switch {
				case i == 0: // a holder that lives, before the one that fails
					if dead[0] == 'h' {
						return
					}
					m := lock.Exclusive
					if dead == "waits x for readers" {
						m = lock.Shared
					}
					must(t, l.Acquire(&h, &lock.Request{Lock: a, Mode: m}))
					at(l, 50*us)
					must(t, l.Release(&h, nil))
					return
				case i == 1:
					at(l, 5*us)
					m := lock.Exclusive
					if dead == "holds s" || dead == "waits s" {
						m = lock.Shared
					}
					c.At(20*us, func() { c.Kill(c.nodes[1]) })
					_ = l.Acquire(&h, &lock.Request{Lock: a, Mode: m})
					at(l, 10000*us)
					t.Error("the dead live")
					return
				}
				at(l, fabric.Time(25+5*i)*us)
				for k := range 3 {
					m := lock.Mode((i + k) % 2)
					must(t, l.Acquire(&h, &lock.Request{Lock: a, Mode: m, Deadline: 20_000 * us}))
					if m == lock.Exclusive && h.Token <= last || h.Token < last {
						t.Errorf("%s fails: token %#x after %#x", dead, h.Token, last)
					}
					if m == lock.Exclusive {
						last = h.Token
					}
					at(l, l.Port().Now()+10*us)
					must(t, l.Release(&h, nil))
					grants++
				}
			})
			if grants != 12 {
				t.Errorf("%s fails: %d grants", dead, grants)
			}
		}
	}
}

// A holder whose lease has expired learns it, and neither writes nor releases.
func TestExpiredLease(t *testing.T) {
	for m := lock.Shared; m <= lock.Exclusive; m++ {
		scene(t, shift.Config{LeaseNs: 100 * us}, 2, func(i int, l *shift.Locker, c *world, a fabric.Addr) {
			var h lock.Hold
			data := a.Add(512)
			at(l, fabric.Time(i)*5*us)
			if i == 1 {
				must(t, l.Acquire(&h, &lock.Request{Lock: a, Mode: lock.Exclusive}))
				at(l, l.Port().Now()+50*us)
				must(t, l.Release(&h, nil))
				return
			}
			must(t, l.Acquire(&h, &lock.Request{Lock: a, Mode: m}))
			at(l, 700*us)
			if err := l.Release(&h, []fabric.Op{fabric.Store(data, 7)}); !errors.Is(err, lock.ErrLost) || h.Held {
				t.Errorf("%v: release after the lease: %v", m, err)
			}
			if v := c.PeekWord(data); v != 0 {
				t.Errorf("%v: what an expired holder wrote has reached memory", m)
			}
		})
	}
}

// A writer's release that comes after a recovery of its lock changes nothing, however late it is.
func TestReleaseAfterRecovery(t *testing.T) {
	for _, waiting := range []bool{false, true} {
		scene(t, shift.Config{LeaseNs: 10_000 * us}, 3, func(i int, l *shift.Locker, c *world, a fabric.Addr) {
			var h lock.Hold
			at(l, fabric.Time(i)*5*us)
			switch i {
			case 0:
				must(t, l.Acquire(&h, &lock.Request{Lock: a, Mode: lock.Exclusive}))
				at(l, 50*us)
				c.Poke(a, []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0}) // as the server does
				at(l, 100*us)
				head, rel := c.PeekWord(a), c.PeekWord(a.Add(8))
				if err := l.Release(&h, nil); !errors.Is(err, lock.ErrLost) {
					t.Errorf("release of a lock that was recovered: %v", err)
				}
				wantWords(t, c, a, head, rel, "after it")
			case 1:
				if waiting {
					must(t, l.Acquire(&h, &lock.Request{Lock: a, Mode: lock.Exclusive}))
					must(t, l.Release(&h, nil))
				}
			case 2: // holds after the recovery
				at(l, 60*us)
				must(t, l.Acquire(&h, &lock.Request{Lock: a, Mode: lock.Exclusive}))
				at(l, 150*us)
				must(t, l.Release(&h, nil))
			}
		})
	}
}

// Waiters that give up, of each mode and at each place, keep nobody waiting.
func TestGiveUp(t *testing.T) {
	for _, quitters := range []string{"ssssss", "xxxxxx", "sxsxsx", "xsxsxs"} {
		for _, holder := range []lock.Mode{lock.Shared, lock.Exclusive} {
			var done fabric.Time
			c, a := scene(t, shift.Config{Threshold: 2}, len(quitters)+3, func(i int, l *shift.Locker, _ *world, a fabric.Addr) {
				var h lock.Hold
				at(l, fabric.Time(i)*5*us)
				r := lock.Request{Lock: a, Mode: lock.Exclusive}
				if i == 0 {
					r.Mode = holder
				}
				if i > 1 && i < len(quitters)+2 {
					r.Mode = lock.Exclusive
					if quitters[i-2] == 's' {
						r.Mode = lock.Shared
					}
					r.Deadline = fabric.Time(60+i) * us
				}
				err := l.Acquire(&h, &r)
				switch {
				case r.Deadline != 0:
					if !errors.Is(err, lock.ErrTimeout) || l.Port().Now() > r.Deadline+20*us {
						t.Errorf("client %d at %d us: %v", i, l.Port().Now()/us, err)
					}
				case err != nil:
					t.Error(err)
				default:
					at(l, l.Port().Now()+100*us)
					must(t, l.Release(&h, nil))
					done = l.Port().Now()
				}
				at(l, 1000*us)
			})
			if done > 450*us {
				t.Errorf("%s gave up: the last is done at %d us", quitters, done/us)
			}
			if _, n, tail, _ := shift.Decode(c.PeekWord(a), c.PeekWord(a.Add(8))); n != 0 || tail != 0 {
				t.Errorf("%s gave up: %d readers, tail %v are left", quitters, n, tail)
			}
		}
	}
}

func TestCorruptAndUnsupported(t *testing.T) {
	c := &world{Cluster: sim.New(sim.Config{NIC: sim.Ideal()})}
	defer c.Close()
	a := fabric.At(c.AddMN(1<<20), 4096)
	c.Poke(a, []byte{0, 0, 0, 0xff})
	n := c.AddCN()
	c.Go(n, "client", func(p fabric.Port) {
		for m := lock.Shared; m <= lock.Exclusive; m++ {
			var h lock.Hold
			if err := shift.New(p, n, shift.Config{}).Acquire(&h, &lock.Request{Lock: a, Mode: m}); !errors.Is(err, lock.ErrCorrupt) || h.Held {
				t.Errorf("corrupt entry: %v", err)
			}
			wantWords(t, c, a, 0xff00_0000, 0, "corrupt entry")
		}
	})
	must(t, c.Run())
	d := sim.New(sim.Config{NIC: sim.CXL()})
	defer d.Close()
	m, mn := d.AddCN(), d.AddMN(1<<20)
	d.Go(m, "client", func(p fabric.Port) {
		for mode := lock.Shared; mode <= lock.Exclusive; mode++ {
			var h lock.Hold
			err := shift.New(p, m, shift.Config{}).Acquire(&h, &lock.Request{Lock: fabric.At(mn, 4096), Mode: mode})
			if !errors.Is(err, fabric.ErrUnsupported) || h.Held {
				t.Errorf("a fabric without 16-byte atomics: %v", err)
			}
		}
	})
	must(t, d.Run())
}
