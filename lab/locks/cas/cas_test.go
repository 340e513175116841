package cas_test

import (
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/cas"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/lock/locktest"
)

func TestConformance(t *testing.T) {
	for name, cfg := range map[string]cas.Config{
		"tokens":  {},
		"plain":   {Plain: true},
		"backoff": {BackoffMinNs: 500, BackoffMaxNs: 20_000},
		"CAS":     {ReleaseByCAS: true},
		"SMART":   {BackoffMinNs: 500, BackoffMaxNs: 20_000, Adaptive: true},
	} {
		m := locktest.Mechanism{Layout: cfg.Layout(), NoTokens: cfg.Plain, Start: join(cfg).Start, FreeOps: [2]uint64{2, 1}, Corrupt: []byte{7: 0xff}}
		if cfg.Plain {
			m.FreeOps[0] = 1
		}
		// Of the others, lab/locks runs those that are registered everywhere.
		t.Run(name, func(t *testing.T) { locktest.Form(t, 3, m, name == "tokens") })
	}
}

func join(cfg cas.Config) locktest.Join[*cas.Locker] {
	return func(fabric.Node) (func(fabric.Port) *cas.Locker, locktest.Agent) {
		return func(p fabric.Port) *cas.Locker { return cas.New(p, cfg) }, nil
	}
}

type actor = locktest.Actor[*cas.Locker]

// The word of a lock, as it is held. Format: do not change.
func TestWordGolden(t *testing.T) {
	s := locktest.Play(t, 2, join(cas.Config{}), func(k *actor) {
		k.At(fabric.Time(1-k.I) * fabric.Millisecond) // the second comes first
		if k.I == 1 {
			k.Acquire(lock.Exclusive)
			k.Words("held by cn2/1", 0x2001_0000_0000, 1)
		} else {
			k.Acquire(lock.Shared)
			k.Words("held by one reader", 1, 1)
		}
		if k.H.Token != 1 {
			t.Errorf("client %d has token %d", k.I, k.H.Token)
		}
		k.Release()
	})
	s.Words("free", 0, 1)
	if id, n := cas.Owner(0x2001_0000_0000); id != fabric.Client(2, 1) || n != 0 {
		t.Error(id, n)
	}
}

// A writer that releases by CAS tries again for each reader that has come; the readers stay counted.
func TestReleaseByCAS(t *testing.T) {
	s := locktest.Play(t, 3, join(cas.Config{Plain: true, ReleaseByCAS: true}), func(k *actor) {
		k.At(fabric.Time(k.I) * 100 * fabric.Microsecond)
		if k.I > 0 {
			// It waits for the writer.
			k.Must(k.L.Acquire(&k.H, &lock.Request{Lock: k.Lock, Mode: lock.Shared, Deadline: 4 * fabric.Millisecond}))
			k.After(fabric.Millisecond)
			k.Words("held by both readers", 2)
			k.At(5 * fabric.Millisecond)
			k.Release()
			return
		}
		k.Acquire(lock.Exclusive)
		k.At(400 * fabric.Microsecond)
		before := k.L.Port().Stats().Total()
		k.Release()
		if ops := k.L.Port().Stats().Total() - before; ops != 2 {
			t.Errorf("%d operations for a release beside two readers, want 2", ops)
		}
	})
	s.Words("free", 0)
}

// A holder learns at release that its lock was cleared, and does not harm the word.
func TestLost(t *testing.T) {
	for _, cfg := range []cas.Config{{}, {ReleaseByCAS: true}} {
		testLost(t, cfg)
	}
}

func testLost(t *testing.T, cfg cas.Config) {
	for mode := lock.Shared; mode <= lock.Exclusive; mode++ {
		locktest.Play(t, 2, join(cfg), func(k *actor) {
			if k.I == 1 {
				k.At(100 * fabric.Microsecond)
				k.Acquire(lock.Exclusive)
				k.After(200 * fabric.Microsecond)
				k.Release()
				return
			}
			k.Acquire(mode)
			k.Poke(k.Lock, make([]byte, 8))
			k.At(200 * fabric.Microsecond)
			k.Words("held by the other", 0x2001_0000_0000)
			if err := k.L.Release(&k.H, nil); !errors.Is(err, lock.ErrLost) {
				t.Errorf("%v: release of a lost lock: %v", mode, err)
			}
			k.Words("after the release of the lost lock", 0x2001_0000_0000)
		})
	}
}

// The longest backoff adapts to tries in vain, as SMART's does: from the shortest on it is doubled once a millisecond while most tries are in vain, and halved while hardly any are.
func TestBackoffAdapts(t *testing.T) {
	const us, ms = fabric.Microsecond, fabric.Millisecond
	tries := func(k *actor, free fabric.Time) uint64 { // of an acquisition that takes 320 us
		k.At(free - 320*us)
		before := k.L.Stats().Retries
		k.Acquire(lock.Exclusive)
		return k.L.Stats().Retries - before
	}
	var got []uint64
	locktest.Play(t, 2, join(cas.Config{BackoffMinNs: 8 * us, BackoffMaxNs: 32 * us, Adaptive: true}), func(k *actor) {
		if k.I == 0 {
			for i := range fabric.Time(5) { // holds until 2, 4, 6, 8 and, after a time in which it leaves the lock alone, 30 ms
				free := 2*ms + 2*i*ms
				if i == 4 {
					free = 30 * ms
				}
				k.At(free - 400*us)
				k.Acquire(lock.Exclusive)
				k.At(free)
				k.Release()
			}
			return
		}
		for i := range fabric.Time(4) {
			got = append(got, tries(k, 2*ms+2*i*ms))
			k.Release()
		}
		for range 15 {
			k.After(ms)
			for range 20 {
				k.Acquire(lock.Exclusive)
				k.Release()
			}
		}
		got = append(got, tries(k, 30*ms))
		k.Release()
	})
	// Pauses are of the bound and up to 8 us more, so a try takes some 14, then 22, then 38 us with a round trip.
	for i, least := range []uint64{18, 11, 7, 7, 18} {
		if most := least * 3 / 2; got[i] < least || got[i] > most {
			t.Errorf("acquisition %d: %d tries in 320 us, want %d to %d: %v", i, got[i], least, most, got)
		}
	}
}
