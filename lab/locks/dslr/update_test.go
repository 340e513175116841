package dslr_test

import (
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/dslr"
	"github.com/declock/declock/lock"
)

// A client that releases an update lock beside a reader that has not seen yet that it holds, too, keeps no reader from its turn.
func TestUpdateReleasedBesideReaders(t *testing.T) {
	for delay := fabric.Time(1); delay < 12; delay++ {
		s := scene(t, dslr.Config{Plain: true}, 4, func(k *actor) {
			k.At(fabric.Time(k.I) * delay * us)
			switch k.I {
			case 0:
				k.Acquire(lock.Exclusive)
				k.At(60 * us)
			case 3:
				k.Acquire(lock.Update)
			default:
				k.Acquire(lock.Shared)
				k.After(30 * us)
			}
			k.Release()
			if n := k.L.Stats().Aborts; n > 0 {
				t.Errorf("delay %d us: client %d took itself for passed over %d times", delay, k.I, n)
			}
			k.At(1000 * us) // the agents give back what they have
		})
		if nX, nS, maxX, maxS := dslr.Counters(s.PeekWord(s.Lock)); nX != maxX || nS != maxS || s.Now() > 2000*us {
			t.Errorf("delay %d us: {%d %d %d %d} is left at %d us", delay, nX, nS, maxX, maxS, s.Now()/us)
		}
	}
}

// Nor does one that gives up while it waits for update, with others behind it.
func TestUpdateGivenUpBesideReaders(t *testing.T) {
	for delay := fabric.Time(1); delay < 12; delay++ {
		scene(t, dslr.Config{Plain: true}, 4, func(k *actor) {
			k.At(fabric.Time(k.I) * delay * us)
			switch k.I {
			case 0:
				k.Acquire(lock.Exclusive)
				k.At(60 * us)
			case 1:
				k.Acquire(lock.Shared)
				k.After(30 * us)
			case 2:
				if err := k.L.Acquire(&k.H, &lock.Request{Lock: k.Lock, Mode: lock.Update, Deadline: 50 * us}); !errors.Is(err, lock.ErrTimeout) {
					t.Errorf("delay %d us: acquire for update: %v", delay, err)
				}
				k.At(1000 * us)
				return
			case 3:
				k.Acquire(lock.Exclusive)
			}
			k.Release()
			if n := k.L.Stats(); n.Aborts+n.Resets > 0 {
				t.Errorf("delay %d us: client %d was passed over %d times, and took others for crashed %d times", delay, k.I, n.Aborts, n.Resets)
			}
			k.At(1000 * us) // the agents give back what they have
		})
	}
}

// Upgrades do not make leases longer: a client that waits for a crashed reader for longer than its lease loses the lock, and acquires it anew
// as a writer, which passes the crashed reader over.
func TestUpgradeWithinLease(t *testing.T) {
	const lease = 200 * us
	scene(t, dslr.Config{LeaseNs: lease}, 2, func(k *actor) {
		if k.I == 0 {
			k.Acquire(lock.Shared)
			return // with the lock
		}
		k.At(50 * us)
		k.Acquire(lock.Update)
		if err := k.L.Upgrade(&k.H, &lock.Request{Deadline: 10 * lease}); !errors.Is(err, lock.ErrLost) || k.H.Held || k.P.Now() > 50*us+lease+lease/2 {
			t.Errorf("upgrade beside a crashed reader at %d us: %v, held %v", k.P.Now()/us, err, k.H.Held)
		}
		k.Acquire(lock.Exclusive)
		k.Release()
	})
}

// A long reader chooses a longer lease: it draws several tickets, holds for as many leases, and others wait for it. With a fixed lease both it and those that wait
// for it lose the lock. If it crashes, the others go on after two leases for each of its tickets.
func TestMultiSlotLeases(t *testing.T) {
	const lease = 100 * us
	for _, c := range []struct {
		multi, crash bool
		mode         lock.Mode
		resets       uint64
		first, last  fabric.Time // when the other gets the lock
	}{
		{true, false, lock.Shared, 0, 350 * us, 600 * us},
		{true, false, lock.Exclusive, 0, 350 * us, 600 * us},
		{true, true, lock.Shared, 1, 800 * us, 1200 * us},
		{true, true, lock.Exclusive, 1, 800 * us, 1200 * us},
		{false, false, lock.Shared, 1, 200 * us, 340 * us},
	} {
		s := scene(t, dslr.Config{LeaseNs: lease, MultiSlot: c.multi}, 2, func(k *actor) {
			if k.I == 0 {
				k.Must(k.L.Acquire(&k.H, &lock.Request{Lock: k.Lock, Mode: c.mode, LeaseNs: 4*lease - 1}))
				k.At(350 * us)
				if c.crash {
					return
				}
				if err := k.L.Release(&k.H, nil); (err == nil) != c.multi || err != nil && !errors.Is(err, lock.ErrLost) {
					t.Errorf("%+v: release after 350 us: %v", c, err)
				}
				return
			}
			k.At(20 * us)
			k.Acquire(lock.Exclusive)
			if now := k.P.Now(); now < c.first || now > c.last || k.L.Stats().Resets != c.resets {
				t.Errorf("%+v: granted at %d us, after %d resets", c, now/us, k.L.Stats().Resets)
			}
			k.Release()
		})
		if nX, nS, maxX, maxS := dslr.Counters(s.PeekWord(s.Lock)); c.multi && (nX != maxX || nS != maxS || maxX+maxS < 5) {
			t.Errorf("%+v: {%d %d %d %d} is left", c, nX, nS, maxX, maxS)
		}
	}
}

// A client that is to reset the counters waits for a holder of several slots as long as that may hold.
func TestResetWaitsForSlots(t *testing.T) {
	const lease = 100 * us
	s := scene(t, dslr.Config{Plain: true, CountMax: 10, MultiSlot: true, LeaseNs: lease}, 2, func(k *actor) {
		k.At(fabric.Time(k.I) * 20 * us)
		k.Must(k.L.Acquire(&k.H, &lock.Request{Lock: k.Lock, Mode: lock.Shared, LeaseNs: 5 * lease}))
		if k.I == 0 {
			k.At(450 * us)
		}
		k.Release() // of the second, whose tickets are the last, it returns when the counters have been reset
	})
	s.Words("after the reset", 0)
}

// Tickets of several slots end a cycle of the counters wherever it is.
func TestCountersAreResetWithSlots(t *testing.T) {
	cfg := dslr.Config{Plain: true, CountMax: 64, MultiSlot: true, LeaseNs: 10 * us}
	inside, updates := 0, 0
	s := scene(t, cfg, 8, func(k *actor) {
		for n := range 60 {
			mode := lock.Mode((k.I + n) % 3)
			r := lock.Request{Lock: k.Lock, Mode: mode, LeaseNs: fabric.Time(1+n%7) * 20 * us}
			k.Must(k.L.Acquire(&k.H, &r))
			if mode == lock.Update && n%2 == 0 {
				k.Must(k.L.Upgrade(&k.H, &lock.Request{}))
			}
			if k.H.Mode == lock.Exclusive {
				if inside++; inside > 1 {
					t.Errorf("%d holders", inside)
				}
				updates++
				k.After(us)
				inside--
			}
			k.Release()
		}
		if n := k.L.Stats().Resets; n > 0 {
			t.Errorf("client %d has taken others for crashed %d times", k.I, n)
		}
		k.After(1000 * us)
	})
	if nX, nS, maxX, maxS := dslr.Counters(s.PeekWord(s.Lock)); nX != maxX || nS != maxS || updates == 0 {
		t.Errorf("{%d %d %d %d} is left after %d changes", nX, nS, maxX, maxS, updates)
	}
}
