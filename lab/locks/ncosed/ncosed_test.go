package ncosed_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/ncosed"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/lock/locktest"
)

const us = fabric.Microsecond

// join returns how a node gets locks of a variant.
func join(cfg ncosed.Config) locktest.Join[*ncosed.Locker] {
	return func(n fabric.Node) (func(fabric.Port) *ncosed.Locker, locktest.Agent) {
		home := ncosed.HomeOf(n)
		return func(p fabric.Port) *ncosed.Locker { return ncosed.New(p, home, cfg) }, ncosed.NewAgent(n, home, cfg)
	}
}

func TestConformance(t *testing.T) {
	for name, cfg := range map[string]ncosed.Config{"tokens": {}, "plain": {Plain: true}, "homes": {Homes: 2}} {
		m := locktest.Mechanism{Layout: cfg.Layout(), NoTokens: cfg.Plain, Start: join(cfg).Start, Corrupt: []byte{7: 0xff}}
		t.Run(name, func(t *testing.T) { locktest.All(t, 3, m) })
	}
}

type actor = locktest.Actor[*ncosed.Locker]

// The word of a lock, as it is held and left. Format: do not change.
func TestWordGolden(t *testing.T) {
	s := locktest.Play(t, 3, join(ncosed.Config{}), func(k *actor) {
		k.At(fabric.Time(k.I) * 10 * us)
		if k.I == 0 {
			k.Acquire(lock.Exclusive)
			k.Words("held by cn1/1", 0x1001_0000_0000, 1)
			k.At(50 * us)
			k.Words("with two readers behind it", 0x1001_0000_0002, 1)
			k.Release()
			return
		}
		k.Acquire(lock.Shared)
		k.Words("held by two readers", 2, 1)
		k.Release()
	})
	s.Words("after two readers", 2, 1)
	if tail, readers := ncosed.Decode(0x1001_0000_0002); tail != fabric.Client(1, 1) || readers != 2 {
		t.Error(tail, readers)
	}
}

// Writers and readers are granted in the order in which they changed the word; readers between two writers together.
func TestOrder(t *testing.T) {
	var order []int
	modes := []lock.Mode{lock.Exclusive, lock.Shared, lock.Shared, lock.Exclusive, lock.Exclusive, lock.Shared}
	locktest.Play(t, len(modes), join(ncosed.Config{}), func(k *actor) {
		k.At(fabric.Time(k.I) * 10 * us)
		k.Acquire(modes[k.I])
		order = append(order, k.I)
		k.After(100 * us)
		k.Release()
	})
	if got := fmt.Sprint(order); got != "[0 1 2 3 4 5]" && got != "[0 2 1 3 4 5]" {
		t.Errorf("grants in the order %v", got)
	}
}

// Of a lock that readers had last, the word has their count; a writer, and one that only tries, learns from the home that all have released.
func TestWriterAfterReaders(t *testing.T) {
	locktest.Play(t, 2, join(ncosed.Config{}), func(k *actor) {
		if k.I == 0 {
			for range 3 {
				k.Acquire(lock.Shared)
				k.Release()
			}
			k.Acquire(lock.Shared)
			k.At(200 * us)
			k.Release()
			k.At(300 * us)
			k.Words("after the writer", 0)
			return
		}
		k.At(100 * us)
		r := lock.Request{Lock: k.Lock, Mode: lock.Exclusive, Try: true}
		if err := k.L.Acquire(&k.H, &r); !errors.Is(err, lock.ErrBusy) {
			t.Errorf("beside one of four readers: %v", err)
		}
		k.At(250 * us)
		k.Must(k.L.Acquire(&k.H, &r))
		k.Words("held by the writer", 0x2001_0000_0000)
		k.Release()
	})
}

// What clients that give up have queued for is passed on by their agents: readers and a writer stand behind them.
func TestGiveUp(t *testing.T) {
	for mode := lock.Shared; mode <= lock.Exclusive; mode++ {
		done := 0
		locktest.Play(t, 5, join(ncosed.Config{}), func(k *actor) {
			k.At(fabric.Time(k.I) * 10 * us)
			r := lock.Request{Lock: k.Lock, Mode: lock.Mode(k.I+1) % 2}
			if k.I == 1 {
				r.Mode, r.Deadline = mode, 60*us
			}
			switch err := k.L.Acquire(&k.H, &r); {
			case k.I == 1:
				if !errors.Is(err, lock.ErrTimeout) {
					t.Error(err)
				}
			case err != nil:
				t.Error(err)
			default:
				k.After(100 * us)
				k.Release()
				done++
			}
		})
		if done != 4 {
			t.Errorf("%v gave up: %d of the 4 others are done", mode, done)
		}
	}
}

// A writer that only tries does not wait for one reader either.
func TestTryBesideOneReader(t *testing.T) {
	locktest.Play(t, 2, join(ncosed.Config{}), func(k *actor) {
		if k.I == 0 {
			k.Acquire(lock.Shared)
			k.At(200 * us)
			k.Release()
			return
		}
		k.At(50 * us)
		err := k.L.Acquire(&k.H, &lock.Request{Lock: k.Lock, Mode: lock.Exclusive, Try: true})
		if !errors.Is(err, lock.ErrBusy) || k.P.Now() > 100*us {
			t.Errorf("beside a reader, at %d us: %v", k.P.Now()/us, err)
		}
		k.Words("the reader's still", 1)
	})
}

// After a crash of the home free locks that no reader has had can be acquired; but the release of a reader fails, and so does a writer after it.
func TestHomeCrashes(t *testing.T) {
	c := sim.New(sim.Config{NIC: sim.Ideal(), DetectDelay: 50 * us})
	defer c.Close()
	a, got := fabric.At(c.AddMN(1<<20), 4096), []error(nil)
	var nodes []*sim.Node
	var locker func(fabric.Port) *ncosed.Locker
	for range 2 {
		n := c.AddCN()
		of, agent := join(ncosed.Config{})(n)
		c.GoAgent(n, func(fabric.Port) { _ = agent.Run(nil) })
		nodes, locker = append(nodes, n), of
	}
	c.Go(nodes[1], "client", func(p fabric.Port) {
		l := locker(p)
		_ = p.Pause(200 * us)
		for _, r := range []lock.Request{{Lock: a, Mode: lock.Exclusive}, {Lock: a, Mode: lock.Shared}, {Lock: a, Mode: lock.Exclusive}} {
			var h lock.Hold
			r.Deadline = p.Now() + 100*us
			err := l.Acquire(&h, &r)
			if got = append(got, err); err == nil {
				got = append(got, l.Release(&h, nil))
			}
		}
	})
	c.At(100*us, func() { c.Kill(nodes[0]) })
	if err := c.Run(); err != nil {
		t.Error(err)
	}
	for i, want := range []error{nil, nil, nil, fabric.ErrNodeDown, fabric.ErrNodeDown} {
		if i >= len(got) || !errors.Is(got[i], want) {
			t.Fatalf("acquired and released exclusively, shared, acquired exclusively: %v, want the reader's release and the last to fail", got)
		}
	}
}
