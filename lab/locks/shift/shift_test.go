package shift_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/shift"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/lock/locktest"
)

const us = fabric.Microsecond

// join returns how a node gets locks of a variant.
func join(cfg shift.Config) locktest.Join[*shift.Locker] {
	return func(n fabric.Node) (func(fabric.Port) *shift.Locker, locktest.Agent) {
		if n.Caps().Fabric != "sim" {
			cfg.LeaseNs = 10 * fabric.Second // a loaded machine may stop a holder for longer than the paper's lease
		}
		return func(p fabric.Port) *shift.Locker { return shift.New(p, n, cfg) }, shift.NewAgent(n, cfg)
	}
}

func TestConformance(t *testing.T) {
	for name, cfg := range map[string]shift.Config{
		"letter":                              {},
		"artifact":                            {Artifact: true},
		"readers after each writer":           {Threshold: 1},
		"artifact, readers after two writers": {Artifact: true, Threshold: 2},
		"artifact, with pauses":               {Artifact: true, PauseNs: shift.PublishedPauseNs},
		"artifact, two tries, pauses":         {Artifact: true, PauseNs: shift.PublishedPauseNs, Tries: 2},
	} {
		m := locktest.Mechanism{Layout: shift.Layout, Start: join(cfg).Start, Atomic16: true, LeaseNs: 10 * fabric.Millisecond, FreeOps: [2]uint64{1, 1},
			StaleHolds: true, Corrupt: []byte{3: 0xff, 15: 0}}
		t.Run(name, func(t *testing.T) { locktest.Form(t, 3, m, name == "letter" || name == "artifact") })
	}
}

type actor = locktest.Actor[*shift.Locker]

// scene runs clients of a node each.
func scene(t testing.TB, cfg shift.Config, clients int, body func(*actor)) *locktest.Scene {
	t.Helper()
	return locktest.Play(t, clients, join(cfg), body)
}

// The words of a lock. Format: do not change.
func TestWordsGolden(t *testing.T) {
	scene(t, shift.Config{}, 1, func(k *actor) {
		var x, s, s2 lock.Hold
		k.Must(k.L.Acquire(&x, &lock.Request{Lock: k.Lock, Mode: lock.Exclusive}))
		k.Words("held exclusive by cn1/1", 0x0000_0000_0000_1001, 0)
		k.Must(k.L.Release(&x, nil))
		k.Words("free in the next epoch", 1<<63, 1)
		k.Must(k.L.Acquire(&s, &lock.Request{Lock: k.Lock, Mode: lock.Shared}))
		k.Must(k.L.Acquire(&s2, &lock.Request{Lock: k.Lock, Mode: lock.Shared}))
		k.Words("held by two readers", 1<<63|2<<40, 1)
		k.Must(k.L.Release(&s, nil))
		k.Must(k.L.Release(&s2, nil))
		k.Words("free after the readers", 1<<63, 3)
		k.Must(k.L.Acquire(&x, &lock.Request{Lock: k.Lock, Mode: lock.Exclusive}))
		k.Must(k.L.Release(&x, nil))
		k.Words("free in the next epoch but one", 0, 4)
		if s.Token != 1 || x.Token != 4 {
			t.Errorf("tokens %d, %d", s.Token, x.Token)
		}
	})
	if e, n, w, r := shift.Decode(1<<63|7<<40|0x2003, 9); !e || n != 7 || w != fabric.Client(2, 3) || r != 9 {
		t.Error(e, n, w, r)
	}
}

// A handover costs the holder an atomic and a message by the letter, and a message alone in the published code.
func TestHandover(t *testing.T) {
	for _, artifact := range []bool{false, true} {
		var tokens []lock.Token
		s := scene(t, shift.Config{Artifact: artifact}, 3, func(k *actor) {
			k.At(fabric.Time(k.I) * 5 * us)
			k.Acquire(lock.Exclusive)
			tokens = append(tokens, k.H.Token)
			k.After(20 * us)
			s := *k.P.Stats()
			k.Release()
			want := uint64(1)
			if artifact && k.I < 2 {
				want = 0
			}
			if n := k.P.Stats().Total() - s.Total(); n != want {
				t.Errorf("artifact %v, client %d: %d operations to release", artifact, k.I, n)
			}
		})
		if s.Words("at the end", 1<<63, 3); fmt.Sprint(tokens) != "[1 2 3]" {
			t.Errorf("artifact %v: tokens %v", artifact, tokens)
		}
	}
}

// A writer that finds the lock held tries as often again as the configuration says, and queues then; one that finds it free needs one operation.
func TestTriesBeforeTheQueue(t *testing.T) {
	for tries, want := range []uint64{0, 1, 2} {
		scene(t, shift.Config{Artifact: true, Tries: tries}, 2, func(k *actor) {
			k.At(fabric.Time(k.I) * 5 * us)
			k.Must(k.L.Acquire(&k.H, &lock.Request{Lock: k.Lock, Mode: lock.Exclusive}))
			k.After(50 * us)
			k.Release()
			c := k.L.Stats()
			if k.I == 1 && (c.Retries != want || c.Waits != 1 || c.Busy != 0) || k.I == 0 && (c.Retries != 0 || c.AcquireOps != 1) {
				t.Errorf("%d tries: client %d: %+v", tries, k.I, c)
			}
		})
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
		scene(t, cfg, len(modes), func(k *actor) {
			k.At(fabric.Time(k.I) * 3 * us)
			r := lock.Request{Lock: k.Lock, Mode: lock.Exclusive, Deadline: 5000 * us}
			if modes[k.I] == 's' {
				r.Mode = lock.Shared
			}
			if k.I > 4 {
				k.At(fabric.Time(55+k.I) * us) // during the second pair of writers
			}
			k.Must(k.L.Acquire(&k.H, &r))
			order += string(modes[k.I])
			k.After(20 * us)
			k.Release()
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
			scene(t, cfg, 6, func(k *actor) {
				switch {
				case k.I == 0: // a holder that lives, before the one that fails
					if dead[0] == 'h' {
						return
					}
					m := lock.Exclusive
					if dead == "waits x for readers" {
						m = lock.Shared
					}
					k.Acquire(m)
					k.At(50 * us)
					k.Release()
					return
				case k.I == 1:
					k.At(5 * us)
					m := lock.Exclusive
					if dead == "holds s" || dead == "waits s" {
						m = lock.Shared
					}
					k.Cluster.At(20*us, func() { k.Kill(k.Nodes[1]) })
					_ = k.L.Acquire(&k.H, &lock.Request{Lock: k.Lock, Mode: m})
					k.At(10000 * us)
					t.Error("the dead live")
					return
				}
				k.At(fabric.Time(25+5*k.I) * us)
				for n := range 3 {
					m := lock.Mode((k.I + n) % 2)
					k.Must(k.L.Acquire(&k.H, &lock.Request{Lock: k.Lock, Mode: m, Deadline: 20_000 * us}))
					if m == lock.Exclusive && k.H.Token <= last || k.H.Token < last {
						t.Errorf("%s fails: token %#x after %#x", dead, k.H.Token, last)
					}
					if m == lock.Exclusive {
						last = k.H.Token
					}
					k.After(10 * us)
					k.Release()
					grants++
				}
			})
			if grants != 12 {
				t.Errorf("%s fails: %d grants", dead, grants)
			}
		}
	}
}

// A lock whose holder has failed goes to another client no sooner than three leases after it has seen the lock unchanged.
func TestRecoveryAfterThreeLeases(t *testing.T) {
	const lease = 200 * us
	for _, mode := range []lock.Mode{lock.Exclusive, lock.Shared} {
		scene(t, shift.Config{LeaseNs: lease}, 3, func(k *actor) {
			switch k.I {
			case 1:
				k.Cluster.At(20*us, func() { k.Kill(k.Nodes[1]) })
				_ = k.L.Acquire(&k.H, &lock.Request{Lock: k.Lock, Mode: lock.Exclusive})
				k.At(10000 * us)
			case 2:
				k.At(25 * us)
				k.Must(k.L.Acquire(&k.H, &lock.Request{Lock: k.Lock, Mode: mode, Deadline: 20_000 * us}))
				if waited := k.L.Port().Now() - 25*us; waited < 3*lease || waited > 4*lease {
					t.Errorf("%v after %d ns, leases are %d", mode, waited, lease)
				}
				k.Release()
			}
		})
	}
}

// A writer's release that comes after a recovery of its lock changes nothing, however late it is.
func TestReleaseAfterRecovery(t *testing.T) {
	for _, waiting := range []bool{false, true} {
		scene(t, shift.Config{LeaseNs: 10_000 * us}, 3, func(k *actor) {
			k.At(fabric.Time(k.I) * 5 * us)
			switch k.I {
			case 0:
				k.Acquire(lock.Exclusive)
				k.At(50 * us)
				k.Poke(k.Lock, []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0}) // as the server does
				k.At(100 * us)
				head, rel := k.PeekWord(k.Lock), k.PeekWord(k.Lock.Add(8))
				if err := k.L.Release(&k.H, nil); !errors.Is(err, lock.ErrLost) {
					t.Errorf("release of a lock that was recovered: %v", err)
				}
				k.Words("after it", head, rel)
			case 1:
				if waiting {
					k.Acquire(lock.Exclusive)
					k.Release()
				}
			case 2: // holds after the recovery
				k.At(60 * us)
				k.Acquire(lock.Exclusive)
				k.At(150 * us)
				k.Release()
			}
		})
	}
}

// Waiters that give up, of each mode and at each place, keep no other waiting.
func TestGiveUp(t *testing.T) {
	for _, quitters := range []string{"ssssss", "xxxxxx", "sxsxsx", "xsxsxs"} {
		for _, holder := range []lock.Mode{lock.Shared, lock.Exclusive} {
			var done fabric.Time
			s := scene(t, shift.Config{Threshold: 2}, len(quitters)+3, func(k *actor) {
				k.At(fabric.Time(k.I) * 5 * us)
				r := lock.Request{Lock: k.Lock, Mode: lock.Exclusive}
				if k.I == 0 {
					r.Mode = holder
				}
				if k.I > 1 && k.I < len(quitters)+2 {
					r.Mode = lock.Exclusive
					if quitters[k.I-2] == 's' {
						r.Mode = lock.Shared
					}
					r.Deadline = fabric.Time(60+k.I) * us
				}
				err := k.L.Acquire(&k.H, &r)
				switch {
				case r.Deadline != 0:
					if !errors.Is(err, lock.ErrTimeout) || k.P.Now() > r.Deadline+20*us {
						t.Errorf("client %d at %d us: %v", k.I, k.P.Now()/us, err)
					}
				case err != nil:
					t.Error(err)
				default:
					k.After(100 * us)
					k.Release()
					done = k.P.Now()
				}
				k.At(1000 * us)
			})
			if done > 450*us {
				t.Errorf("%s gave up: the last is done at %d us", quitters, done/us)
			}
			if _, n, tail, _ := shift.Decode(s.PeekWord(s.Lock), s.PeekWord(s.Lock.Add(8))); n != 0 || tail != 0 {
				t.Errorf("%s gave up: %d readers, tail %v are left", quitters, n, tail)
			}
		}
	}
}

// As in the published code a reader pauses before each READ of the epoch, also the first, and a writer after each READ of RelCnt in vain, before the next. Without pauses one READ follows the other.
func TestPauseBetweenReads(t *testing.T) {
	for _, pause := range []fabric.Time{0, 20 * us} {
		for _, waits := range []lock.Mode{lock.Shared, lock.Exclusive} {
			scene(t, shift.Config{Artifact: true, PauseNs: pause}, 2, func(k *actor) {
				if k.I == 0 { // holds for 205 us
					k.Acquire(1 - waits)
					k.At(205 * us)
					k.Release()
					return
				}
				k.At(5 * us)
				before := k.P.Stats().Ops[fabric.OpRead]
				k.Acquire(waits)
				reads := k.P.Stats().Ops[fabric.OpRead] - before
				if waits == lock.Shared {
					reads -= 1 // which verifies the era
				}
				most, late := uint64(205/20+1), k.P.Now() > 205*us+2*pause+15*us
				if pause > 0 && (reads > most || reads < most/2) || pause == 0 && reads < 3*most || late {
					t.Errorf("a %v waits with pauses of %d us: %d READs, granted after %d us", waits, pause/us, reads, k.P.Now()/us)
				}
				k.Release()
			})
		}
	}
}
