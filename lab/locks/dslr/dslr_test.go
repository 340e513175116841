package dslr_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/dslr"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/lock/locktest"
)

const us = fabric.Microsecond

// join returns how a node gets locks of a variant.
func join(cfg dslr.Config) locktest.Join[*dslr.Locker] {
	return func(n fabric.Node) (func(fabric.Port) *dslr.Locker, locktest.Agent) {
		if n.Caps().Fabric != "sim" {
			cfg.LeaseNs = 10 * fabric.Second // a loaded machine may stop a holder for longer than the paper's lease
		}
		return func(p fabric.Port) *dslr.Locker { return dslr.New(p, cfg) }, dslr.NewAgent(n, cfg)
	}
}

func TestConformance(t *testing.T) {
	for name, cfg := range map[string]dslr.Config{
		"dynamic":                                {},
		"plain":                                  {Plain: true},
		"truncated":                              {Wait: dslr.Truncated},
		"overflowing":                            {Wait: dslr.Overflowing},
		"counters reset all the time":            {CountMax: 20},
		"counters reset all the time, truncated": {CountMax: 24, Wait: dslr.Truncated},
		"tickets withdrawn":                      {CountMax: 20, Withdraw: true},
	} {
		m := locktest.Mechanism{Layout: cfg.Layout(), NoTokens: cfg.Plain, Start: join(cfg).Start, LeaseNs: 10 * fabric.Millisecond, FreeOps: [2]uint64{2, 1},
			StaleHolds: true}
		if cfg.Plain {
			m.FreeOps[0] = 1
		}
		t.Run(name, func(t *testing.T) { locktest.Form(t, 3, m, name == "dynamic" || name == "truncated") })
	}
}

type actor = locktest.Actor[*dslr.Locker]

// scene runs clients of a node each.
func scene(t testing.TB, cfg dslr.Config, clients int, body func(*actor)) *locktest.Scene {
	t.Helper()
	return locktest.Play(t, clients, join(cfg), body)
}

// The word of a lock. Format: do not change.
func TestWordGolden(t *testing.T) {
	scene(t, dslr.Config{}, 1, func(k *actor) {
		var x, s lock.Hold
		k.Must(k.L.Acquire(&x, &lock.Request{Lock: k.Lock, Mode: lock.Exclusive}))
		k.Words("held exclusive", 0x0000_0000_0001_0000)
		k.Must(k.L.Release(&x, nil))
		k.Words("free after a writer", 0x0001_0000_0001_0000)
		k.Must(k.L.Acquire(&s, &lock.Request{Lock: k.Lock, Mode: lock.Shared}))
		k.Words("held shared", 0x0001_0000_0001_0001)
		k.Must(k.L.Release(&s, nil))
		k.Words("free after a reader", 0x0001_0001_0001_0001)
		k.Words("free", 0x0001_0001_0001_0001, 1)
		if x.Token != 1 || s.Token != 1 {
			t.Errorf("tokens %d, %d", x.Token, s.Token)
		}
	})
	nX, nS, maxX, maxS := dslr.Counters(0x0001_0002_0003_0004)
	if nX != 1 || nS != 2 || maxX != 3 || maxS != 4 {
		t.Error(nX, nS, maxX, maxS)
	}
}

// Fig. 6: who draws the last ticket resets the counters when all have left.
func TestCountersAreReset(t *testing.T) {
	for _, last := range []lock.Mode{lock.Shared, lock.Exclusive} {
		s := scene(t, dslr.Config{CountMax: 4}, 1, func(k *actor) {
			for i := range 4 {
				k.Words(fmt.Sprintf("after %d", i), map[lock.Mode]uint64{lock.Shared: 0x1_0000_0001, lock.Exclusive: 0x1_0000_0001_0000}[last]*uint64(i))
				k.Acquire(last)
				k.Release()
			}
		})
		s.Words("after the last ticket", 0)
	}
}

// With Withdraw, what is drawn at the limit is taken back before the pause; else it stays until the reset.
func TestWithdraw(t *testing.T) {
	for _, withdraw := range []bool{false, true} {
		s := scene(t, dslr.Config{Plain: true, CountMax: 3, Withdraw: withdraw, ResetMaxNs: 10 * us}, 2, func(k *actor) {
			if k.I == 1 {
				k.At(300 * us)
				k.Acquire(lock.Exclusive)
				k.Release()
				return
			}
			for range 2 {
				k.Acquire(lock.Exclusive)
				k.Release()
			}
			k.Acquire(lock.Exclusive)
			k.At(500 * us)
			inVain := map[bool]uint16{false: 1}
			for range 50 { // what is taken back is there for two round trips of a try
				k.After(us)
				_, _, maxX, _ := dslr.Counters(k.PeekWord(k.Lock))
				inVain[true] = max(inVain[true], maxX-3)
				inVain[false] = min(inVain[false], maxX-3)
			}
			if inVain[true] != 1 || (inVain[false] == 0) != withdraw {
				t.Errorf("withdraw %v: %d to %d tickets drawn in vain", withdraw, inVain[false], inVain[true])
			}
			k.Release()
		})
		s.Words("after the reset, and one writer", 0x0001_0000_0001_0000)
	}
}

// With Withdraw, the pause behind each ticket that was taken back is drawn from twice the time (appendix A.3): a client that waits for 5 ms at the limit draws some 20 tickets, and some 500 if it paused for
// up to 10 us each time.
func TestWithdrawBacksOff(t *testing.T) {
	draws, there := 0, false
	scene(t, dslr.Config{Plain: true, CountMax: 3, Withdraw: true, ResetMaxNs: 1000 * us}, 2, func(k *actor) {
		if k.I == 1 {
			k.At(300 * us)
			k.Acquire(lock.Exclusive)
			k.Release()
			return
		}
		for range 2 {
			k.Acquire(lock.Exclusive)
			k.Release()
		}
		k.Acquire(lock.Exclusive)
		k.At(300 * us)
		for range 10_000 { // one that is taken back is there for a round trip of 2 us
			k.After(us / 2)
			_, _, maxX, _ := dslr.Counters(k.PeekWord(k.Lock))
			if now := maxX > 3; now != there {
				if there = now; now {
					draws++
				}
			}
		}
		k.Release()
	})
	if draws < 7 || draws > 60 {
		t.Errorf("%d tickets were drawn in vain in 5 ms, with pauses that double from 10 us to 1 ms", draws)
	}
}

// A reset is done soon, however many readers draw tickets in vain meanwhile: each client draws one at most, and the reset takes these along.
func TestResetBesideManyReaders(t *testing.T) {
	const clients, each, countMax = 64, 200, 1024
	cfg := dslr.Config{Plain: true, CountMax: countMax, LeaseNs: 50 * us}
	var retries uint64
	s := scene(t, cfg, clients, func(k *actor) {
		for range each {
			k.Acquire(lock.Shared)
			k.Release()
		}
		retries += k.L.Stats().Retries
		if n := k.L.Stats().Resets; n > 0 {
			t.Errorf("client %d has taken others for crashed %d times", k.I, n)
		}
	})
	s.Words("after 12.5 cycles", clients*each%countMax*0x1_0000_0001)
	if resets := uint64(clients * each / countMax); retries > resets*clients*8 {
		t.Errorf("%d looks at a full lock in %d resets: more than 8 for each client", retries, resets)
	}
}

// The order of grants is that of the tickets, whatever the modes; readers between two
// writers hold together.
func TestFirstComeFirstServed(t *testing.T) {
	for _, w := range []dslr.Wait{dslr.Dynamic, dslr.Truncated, dslr.Overflowing} {
		var order []string
		modes := []lock.Mode{lock.Exclusive, lock.Shared, lock.Shared, lock.Exclusive, lock.Shared, lock.Exclusive}
		scene(t, dslr.Config{Wait: w}, len(modes), func(k *actor) {
			k.At(fabric.Time(k.I) * 5 * us)
			k.Acquire(modes[k.I])
			order = append(order, fmt.Sprint("+", k.I))
			k.After(100 * us)
			order = append(order, fmt.Sprint("-", k.I))
			k.Release()
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
	scene(t, dslr.Config{}, 3, func(k *actor) {
		switch k.I {
		case 0:
			k.Acquire(lock.Exclusive)
			k.At(19 * us) // just after the first reader has looked
			k.Release()
		case 1:
			k.At(5 * us)
			k.Acquire(lock.Shared)
			granted = k.P.Now()
			k.Release()
		case 2: // comes when the lock is free
			k.At(20500)
			k.Acquire(lock.Shared)
			k.Release()
		}
	})
	if granted > 60*us {
		t.Errorf("granted at %d us", granted/us)
	}
}

// Holders that die, of each mode, are passed over by waiters of each mode after two leases; the waiters
// after the one that resets the lock keep their tickets (Fig. 5).
func TestCrashedHolder(t *testing.T) {
	cfg := dslr.Config{LeaseNs: 200 * us}
	for _, dead := range []lock.Mode{lock.Shared, lock.Exclusive} {
		for _, wait := range [][]lock.Mode{
			{lock.Exclusive}, {lock.Exclusive, lock.Exclusive}, {lock.Exclusive, lock.Shared},
			{lock.Exclusive, lock.Shared, lock.Shared, lock.Exclusive}, {lock.Shared, lock.Exclusive, lock.Shared},
		} {
			left, holders := 0, 0
			scene(t, cfg, 1+len(wait), func(k *actor) {
				if k.I == 0 {
					k.Acquire(dead)
					return // and never releases
				}
				k.At(fabric.Time(k.I) * 5 * us)
				k.Acquire(wait[k.I-1])
				if holders++; wait[k.I-1] == lock.Exclusive && holders != 1 {
					t.Errorf("dead %v, %v wait: client %d is no only holder", dead, wait, k.I)
				}
				k.After(20 * us)
				holders--
				k.Release()
				left++
				if now := k.P.Now(); now > 5000*us {
					t.Errorf("dead %v, %v wait: client %d is done at %d us", dead, wait, k.I, now/us)
				}
			})
			if left != len(wait) {
				t.Errorf("dead %v: %d of %v got the lock", dead, left, wait)
			}
		}
	}
}

// A client that asks for that fails where others have passed it over, or it has reset the lock itself, as in the paper, and pauses for a random time, of up to 10 us at first and of twice as much with each
// failure in a row. Others draw the next ticket.
func TestFailPassed(t *testing.T) {
	for _, fail := range []bool{false, true} {
		scene(t, dslr.Config{LeaseNs: 200 * us}, 3, func(k *actor) {
			k.At(fabric.Time(k.I) * 5 * us)
			switch k.I {
			case 0:
				k.Acquire(lock.Exclusive)
				return // and never releases
			case 1: // is patient, so that the next loses patience first
				k.L = dslr.New(k.P, dslr.Config{LeaseNs: 5000 * us})
			}
			if fail {
				k.L.FailPassed()
			}
			var h lock.Hold
			ask, failed := func() error { return k.L.Acquire(&h, &lock.Request{Lock: k.Lock, Mode: lock.Exclusive}) }, 0
			err := ask()
			for ; errors.Is(err, dslr.ErrPassed); err = ask() {
				failed++
			}
			if passed := k.L.Stats().Aborts; err != nil || passed != 1 || (failed == 1) != fail {
				t.Errorf("fail %v, client %d: %d failed acquisitions, %d passed over: %v", fail, k.I, failed, passed, err)
			}
			k.Must(k.L.Release(&h, nil))
		})
	}
	scene(t, dslr.Config{}, 1, func(k *actor) {
		for c, most := range map[int]fabric.Time{1: 10 * us, 3: 40 * us, 11: 10_000 * us, 100: 10_000 * us} {
			longest := fabric.Time(0)
			for range 200 {
				longest = max(longest, k.L.Backoff(c))
			}
			if longest > most || longest < most*9/10 {
				t.Errorf("the %d-th backoff is at most %d us, want some %d", c, longest/us, most/us)
			}
		}
	})
}

// The client that is to reset the counters dies: those who come do it.
func TestCrashedResetter(t *testing.T) {
	cfg := dslr.Config{LeaseNs: 200 * us, CountMax: 3}
	for _, m := range []lock.Mode{lock.Shared, lock.Exclusive} {
		grants := 0
		scene(t, cfg, 3, func(k *actor) {
			if k.I == 0 {
				for range 3 {
					k.Acquire(m)
					if k.L.Stats().Acquires < 3 {
						k.Release()
					}
				}
				return
			}
			k.At(50 * us)
			for range 10 {
				k.Acquire(lock.Mode(k.I % 2))
				k.Release()
				grants++
			}
		})
		if grants != 20 {
			t.Errorf("%v: %d grants", m, grants)
		}
	}
}

// Waiters that give up keep no other waiting: the last in line takes its ticket back, the agents hold the others'.
func TestGiveUp(t *testing.T) {
	for _, m := range []lock.Mode{lock.Shared, lock.Exclusive} {
		var done fabric.Time
		s := scene(t, dslr.Config{}, 5, func(k *actor) {
			k.At(fabric.Time(k.I) * 5 * us)
			r := lock.Request{Lock: k.Lock, Mode: lock.Exclusive}
			if k.I == 1 || k.I == 3 || k.I == 4 {
				r.Mode, r.Deadline = m, fabric.Time(60+k.I)*us
			}
			err := k.L.Acquire(&k.H, &r)
			if r.Deadline != 0 {
				if !errors.Is(err, lock.ErrTimeout) || k.P.Now() > r.Deadline+10*us {
					t.Errorf("client %d at %d us: %v", k.I, k.P.Now()/us, err)
				}
			} else {
				k.Must(err)
				k.After(100 * us)
				k.Release()
				done = k.P.Now()
			}
			k.At(1000 * us)
		})
		if done > 300*us {
			t.Errorf("%v gave up: the last is done at %d us", m, done/us)
		}
		nX, nS, maxX, maxS := dslr.Counters(s.PeekWord(s.Lock))
		if nX != maxX || nS != maxS {
			t.Errorf("%v gave up: {%d %d %d %d} is left", m, nX, nS, maxX, maxS)
		}
	}
}

// The backoff that is doubled without a bound becomes 0, and the polls go up.
func TestOverflowingBackoffPollsMore(t *testing.T) {
	polls := map[dslr.Wait]uint64{}
	for _, w := range []dslr.Wait{dslr.Truncated, dslr.Overflowing} {
		scene(t, dslr.Config{Wait: w, Plain: true}, 2, func(k *actor) {
			k.At(fabric.Time(k.I) * us)
			k.Acquire(lock.Exclusive)
			if k.I == 0 {
				k.At(3000 * us)
			}
			k.Release()
			polls[w] += k.L.Stats().Retries
		})
	}
	if a, b := polls[dslr.Truncated], polls[dslr.Overflowing]; b < a*3/2 {
		t.Errorf("%d polls truncated, %d overflowing", a, b)
	}
}

// An agent gives tickets back for clients of its own node only.
func TestAgentRefusesTicketsOfStrangers(t *testing.T) {
	scene(t, dslr.Config{Plain: true}, 2, func(k *actor) {
		if k.I == 0 {
			k.Acquire(lock.Exclusive)
			k.At(500 * fabric.Microsecond)
			k.Release()
			return
		}
		k.At(100 * fabric.Microsecond)
		before := k.PeekWord(k.Lock)
		// "I have left the first exclusive ticket: give it back when it is its turn."
		m := fabric.Message{Kind: fabric.MsgLock + 0x30, Body: [7]uint64{uint64(k.Lock), 0, 0, uint64(lock.Exclusive)}}
		k.Must(k.P.Send(fabric.AgentOf(1), &m))
		k.At(300 * fabric.Microsecond)
		if after := k.PeekWord(k.Lock); after != before {
			t.Errorf("a stranger has given a holder's ticket back: %#x, then %#x", before, after)
		}
	})
}

// A waiter pauses in proportion to the tickets before its own, of readers and writers: the more there are, the seldomer it looks. With the truncated backoff of DSLR+ it pauses for 3.2 us and up to 2 us by chance
// after a few looks, however many there are.
func TestPauseByTickets(t *testing.T) {
	for wait, pause := range map[dslr.Wait]func(i int) float64{dslr.Dynamic: func(i int) float64 { return 5 * float64(i) }, dslr.Truncated: func(int) float64 { return 4.2 }} {
		var looks [5]uint64
		scene(t, dslr.Config{Wait: wait, WaitNs: 5 * us}, len(looks), func(k *actor) {
			k.At(fabric.Time(k.I) * us)
			k.Acquire([...]lock.Mode{lock.Exclusive, lock.Shared}[k.I%2])
			looks[k.I] = k.L.Stats().Retries
			if k.I == 0 {
				k.After(400 * us)
			}
			k.Release()
		})
		for i := 1; i < len(looks); i++ { // a pause, and a round trip
			if want := 400 / (pause(i) + 2); float64(looks[i]) < want*3/4 || float64(looks[i]) > want*5/4+4 {
				t.Errorf("%v: with %d tickets before its own a client looks %d times, want some %.0f: %v", wait, i, looks[i], want, looks)
			}
		}
	}
}

// In the published code of ShiftLock a reader pauses for the writers' tickets before its own alone, and a writer for all.
func TestPauseForWriters(t *testing.T) {
	var looks [4]uint64
	scene(t, dslr.Config{WaitNs: 5 * us, ForWriters: true}, len(looks), func(k *actor) {
		k.At(fabric.Time(k.I) * us)
		k.Acquire([...]lock.Mode{lock.Exclusive, lock.Shared, lock.Shared, lock.Exclusive}[k.I])
		looks[k.I] = k.L.Stats().Retries
		if k.I == 0 {
			k.After(400 * us)
		}
		k.Release()
	})
	for i, tickets := range []int{0, 1, 1, 3} {
		if want := 400 / (5*tickets + 2); i > 0 && (int(looks[i]) < want*3/4 || int(looks[i]) > want*5/4+4) {
			t.Errorf("client %d, with %d tickets to pause for, looks %d times, want some %d: %v", i, tickets, looks[i], want, looks)
		}
	}
}
