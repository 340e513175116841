package drtm_test

import (
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/drtm"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/lock/locktest"
)

const us = fabric.Microsecond

// join returns how a node gets locks of a variant.
func join(cfg drtm.Config) locktest.Join[*drtm.Locker] {
	return func(n fabric.Node) (func(fabric.Port) *drtm.Locker, locktest.Agent) {
		if n.Caps().Fabric != "sim" { // a loaded machine may stop a reader for longer than the usual lease
			cfg.LeaseNs, cfg.Half, cfg.UncertaintyNs, cfg.RetryNs = 100*fabric.Millisecond, true, us, 50*us
		}
		return func(p fabric.Port) *drtm.Locker { return drtm.New(p, n, cfg) }, nil
	}
}

func TestConformance(t *testing.T) {
	for name, cfg := range map[string]drtm.Config{
		"tokens": {},
		"plain":  {Plain: true},
		"half":   {Half: true},
		"pauses": {LeaseNs: 400 * us, UncertaintyNs: 10 * us, RetryNs: 5 * us},
	} {
		m := locktest.Mechanism{Layout: cfg.Layout(), NoTokens: cfg.Plain, Start: join(cfg).Start, Lasts: true, Corrupt: []byte{0: 1, 7: 0}}
		if cfg == (drtm.Config{}) {
			t.Run(name, func(t *testing.T) { locktest.All(t, 3, m) })
		} else {
			t.Run(name, func(t *testing.T) { locktest.Run(t, locktest.Sim(1), m) })
		}
	}
}

type actor = locktest.Actor[*drtm.Locker]

// The word of a lock, as it is held. Format: do not change.
func TestWordGolden(t *testing.T) {
	s := locktest.Play(t, 2, join(drtm.Config{}), func(k *actor) {
		if k.I == 1 { // a writer of cn2
			k.Acquire(lock.Exclusive)
			k.Words("held by cn2, the third node that has joined", 3<<9|2<<1|1, 1)
			k.Release()
			k.Words("free", 0, 1)
			return
		}
		k.At(100 * us)
		k.Acquire(lock.Shared)
		k.Words("leased for 1 ms", 1100<<9, 1)
		before := k.P.Stats().Total()
		k.Release()
		if ops := k.P.Stats().Total() - before; ops != 0 {
			t.Errorf("%d operations for a reader's release", ops)
		}
	})
	s.Words("a lease that its reader does not need any more", 1100<<9, 1)
	if cn, end := drtm.Decode(1100 << 9); cn != 0 || end != 1100*us {
		t.Error(cn, end)
	}
}

// A reader joins a lease that is valid, or only one of which half is left, and waits for a new one otherwise.
func TestReadersJoin(t *testing.T) {
	for half, cases := range map[bool]map[fabric.Time]fabric.Time{
		false: {100 * us: 1000, 460 * us: 1000, 940 * us: 1000, 960 * us: 2050},
		true:  {100 * us: 1000, 440 * us: 1000, 460 * us: 2050, 900 * us: 2050},
	} {
		for at, want := range cases {
			locktest.Play(t, 2, join(drtm.Config{Half: half}), func(k *actor) {
				k.At(fabric.Time(k.I) * at)
				k.Acquire(lock.Shared)
				if _, end := drtm.Decode(k.PeekWord(k.Lock)); k.I == 1 && end/us/10 != want/10 {
					t.Errorf("half %v: a reader that comes at %d us has a lease until %d us, want %d", half, at/us, end/us, want)
				}
				k.Release()
			})
		}
	}
}

// A reader whose lease is over before the writers' clocks can say so is notified at its release, which executes nothing.
func TestReaderAfterLease(t *testing.T) {
	s := locktest.Play(t, 1, join(drtm.Config{}), func(k *actor) {
		data := k.Lock.Add(64)
		for _, held := range []fabric.Time{949 * us, 950 * us} {
			k.At(k.P.Now() + 2*fabric.Millisecond)
			k.Acquire(lock.Shared)
			_, end := drtm.Decode(k.PeekWord(k.Lock))
			k.At(end - fabric.Millisecond + held)
			err := k.L.Release(&k.H, []fabric.Op{fabric.FAA(data, 1)})
			if lost := held == 950*us; errors.Is(err, lock.ErrLost) != lost || k.H.Held {
				t.Errorf("release after %d us: %v", held/us, err)
			}
		}
	})
	if n := s.PeekWord(s.Lock.Add(64)); n != 1 {
		t.Errorf("%d of two releases have executed their operation, want 1", n)
	}
}

// A writer whose node has left the view is replaced; one whose lock was taken is notified.
func TestCrashedWriter(t *testing.T) {
	grants := 0
	locktest.Play(t, 2, join(drtm.Config{}), func(k *actor) {
		if k.I == 0 {
			k.Acquire(lock.Exclusive)
			return // with the lock: of this run, cn1 is live
		}
		k.At(10 * us)
		err := k.L.Acquire(&k.H, &lock.Request{Lock: k.Lock, Mode: lock.Exclusive, Deadline: 100 * us})
		if !errors.Is(err, lock.ErrTimeout) {
			t.Errorf("beside a live writer: %v", err)
		}
		k.Poke(k.Lock, []byte{0: 9<<1 | 1, 7: 0}) // a writer of cn9, which is none
		for mode := lock.Shared; mode <= lock.Exclusive; mode++ {
			k.Acquire(mode)
			k.Release()
			grants++
			k.Poke(k.Lock, []byte{0: 9<<1 | 1, 7: 0})
		}
		k.Poke(k.Lock, make([]byte, 8))
		k.Acquire(lock.Exclusive)
		k.Poke(k.Lock, make([]byte, 8))
		if err := k.L.Release(&k.H, nil); !errors.Is(err, lock.ErrLost) {
			t.Errorf("release of a lock that was taken: %v", err)
		}
	})
	if grants != 2 {
		t.Errorf("%d grants after a crash, want 2", grants)
	}
}

// A reader that has joined a lease holds until that ends, and not for a lease of its own.
func TestJoinedLeaseEndsForAll(t *testing.T) {
	locktest.Play(t, 2, join(drtm.Config{}), func(k *actor) {
		k.At(fabric.Time(k.I) * 400 * us) // the lease is until 1000 us
		k.Acquire(lock.Shared)
		if k.I == 0 {
			k.Release()
			return
		}
		k.At(960 * us)
		if err := k.L.Release(&k.H, nil); !errors.Is(err, lock.ErrLost) {
			t.Errorf("release of a joined lease 40 us before its end: %v", err)
		}
	})
}

// failingReads is a Port whose READs fail, if nothing else is in their chain.
type failingReads struct{ fabric.Port }

func (p failingReads) Do(ops []fabric.Op) error {
	if len(ops) > 0 && ops[0].Kind == fabric.OpRead {
		return &fabric.ChainError{Err: fabric.ErrNodeDown}
	}
	return p.Port.Do(ops)
}

// A writer that was granted the lock after a wait, and whose READs fail then, does not keep it.
func TestReadsFailAfterWait(t *testing.T) {
	failing := func(n fabric.Node) (func(fabric.Port) *drtm.Locker, locktest.Agent) {
		return func(p fabric.Port) *drtm.Locker { return drtm.New(failingReads{p}, n, drtm.Config{Plain: true}) }, nil
	}
	s := locktest.Play(t, 2, failing, func(k *actor) {
		if k.I == 0 {
			k.Acquire(lock.Exclusive)
			k.At(100 * us)
			k.Release()
			return
		}
		k.At(50 * us)
		reads := []fabric.Op{fabric.Load(k.Lock.Add(64))}
		if err := k.L.Acquire(&k.H, &lock.Request{Lock: k.Lock, Mode: lock.Exclusive, Reads: reads}); !errors.Is(err, fabric.ErrNodeDown) || k.H.Held {
			t.Errorf("READs that fail: %v", err)
		}
	})
	s.Words("free", 0)
}

// failsBehind is a Port whose chains end after a CAS that is first.
type failsBehind struct{ fabric.Port }

func (p failsBehind) Do(ops []fabric.Op) error {
	if len(ops) < 2 || ops[0].Kind != fabric.OpCAS {
		return p.Port.Do(ops)
	}
	if err := p.Port.Do(ops[:1]); err != nil {
		return err
	}
	return &fabric.ChainError{Index: 1, Op: ops[1], Err: fabric.ErrNodeDown}
}

// A writer whose READs have failed behind its CAS gives back the lock that the CAS has acquired, and no other's.
func TestReadsFailBehindCAS(t *testing.T) {
	failing := func(n fabric.Node) (func(fabric.Port) *drtm.Locker, locktest.Agent) {
		return func(p fabric.Port) *drtm.Locker { return drtm.New(failsBehind{p}, n, drtm.Config{Plain: true}) }, nil
	}
	locktest.Play(t, 1, failing, func(k *actor) {
		const held = 1<<1 | 1 // by a client of cn1
		for _, word := range []uint64{0, held} {
			k.Poke(k.Lock, []byte{0: byte(word), 7: 0})
			reads := []fabric.Op{fabric.Load(k.Lock.Add(64))}
			if err := k.L.Acquire(&k.H, &lock.Request{Lock: k.Lock, Mode: lock.Exclusive, Reads: reads}); !errors.Is(err, fabric.ErrNodeDown) || k.H.Held {
				t.Errorf("READs that fail: %v", err)
			}
			k.Words("as it was", word)
		}
		k.Poke(k.Lock, make([]byte, 8))
	})
}

// Clocks must be off by less than half of the lease, or a quarter if a reader joins only a lease of which half is left.
func TestUncertaintyIsBounded(t *testing.T) {
	for _, x := range []struct {
		cfg drtm.Config
		ok  bool
	}{
		{drtm.Config{}, true}, {drtm.Config{Half: true}, true}, {drtm.Config{LeaseNs: 90 * us}, false}, {drtm.Config{LeaseNs: 100 * us}, false}, {drtm.Config{LeaseNs: 101 * us}, true},
		{drtm.Config{LeaseNs: 90 * us, UncertaintyNs: 44 * us}, true}, {drtm.Config{LeaseNs: 200 * us, Half: true}, false}, {drtm.Config{LeaseNs: 201 * us, Half: true}, true}, {drtm.Config{UncertaintyNs: 500 * us}, false},
	} {
		if err := x.cfg.Check(); (err == nil) != x.ok || err != nil && !errors.Is(err, lock.ErrMisuse) {
			t.Errorf("%+v: %v", x.cfg, err)
		}
	}
}
