package mcs_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/mcs"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/lock/locktest"
)

// join returns how a node gets locks of a variant.
func join(cfg mcs.Config) locktest.Join[*mcs.Locker] {
	return func(n fabric.Node) (func(fabric.Port) *mcs.Locker, locktest.Agent) {
		return func(p fabric.Port) *mcs.Locker { return mcs.New(p, cfg) }, mcs.NewAgent(n, cfg)
	}
}

func TestConformance(t *testing.T) {
	for name, cfg := range map[string]mcs.Config{"tokens": {}, "plain": {Plain: true}} {
		m := locktest.Mechanism{Layout: cfg.Layout(), NoTokens: cfg.Plain, ExclusiveOnly: true, Start: join(cfg).Start, FreeOps: [2]uint64{2, 2},
			StaleHolds: true, Corrupt: []byte{7: 0xff}}
		if cfg.Plain {
			m.FreeOps = [2]uint64{1, 1}
		}
		t.Run(name, func(t *testing.T) { locktest.All(t, 3, m) })
	}
}

type actor = locktest.Actor[*mcs.Locker]

// scene runs clients of a node each. They must leave the lock free.
func scene(t testing.TB, clients int, body func(*actor)) *locktest.Scene {
	t.Helper()
	s := locktest.Play(t, clients, join(mcs.Config{}), body)
	s.Words("at the end", 0)
	return s
}

// The words of a lock, held and left. Format: do not change.
func TestWordsGolden(t *testing.T) {
	scene(t, 1, func(k *actor) {
		for range 2 {
			k.Acquire(lock.Exclusive)
			k.Words("held by cn1/1", 0x1001)
			k.Release()
		}
		if k.Words("free after 2 grants", 0, 2); k.H.Token != 2 {
			t.Errorf("token %d of the second hold", k.H.Token)
		}
	})
	if id := mcs.Tail(0x1001); id != fabric.Client(1, 1) {
		t.Error(id)
	}
}

// A handover takes no chain: a waiter enters the queue once, and is notified.
func TestRoundTripsOfAHandover(t *testing.T) {
	scene(t, 2, func(k *actor) {
		s := k.P.Stats()
		k.At(fabric.Time(k.I) * 5 * fabric.Microsecond)
		k.Acquire(lock.Exclusive)
		if k.I == 0 {
			k.At(20 * fabric.Microsecond)
		}
		before := s.Chains
		k.Release()
		if k.I == 0 && (s.Chains != before || s.Sent != 1) {
			t.Errorf("handover: %d chains, %d messages", s.Chains-before, s.Sent)
		}
		if k.I == 1 && (s.Chains != 2 || k.H.Token != 2) {
			t.Errorf("waiter: %d chains, token %d", s.Chains, k.H.Token)
		}
	})
}

// Grants come in the order of the fetch-and-stores, with waiters that give up in the middle of the queue.
func TestOrderWithCancellations(t *testing.T) {
	var order []int
	scene(t, 6, func(k *actor) {
		k.At(fabric.Time(k.I) * 5 * fabric.Microsecond)
		r := lock.Request{Lock: k.Lock, Mode: lock.Exclusive}
		if k.I%2 == 1 {
			r.Deadline = 40 * fabric.Microsecond
		}
		switch err := k.L.Acquire(&k.H, &r); {
		case k.I%2 == 1:
			if !errors.Is(err, lock.ErrTimeout) {
				t.Errorf("client %d: %v", k.I, err)
			}
		case err != nil:
			t.Errorf("client %d: %v", k.I, err)
		default:
			order = append(order, k.I)
			k.At(60 * fabric.Microsecond)
			k.Release()
		}
		k.At(500 * fabric.Microsecond) // so that agents have time
	})
	if fmt.Sprint(order) != "[0 2 4]" {
		t.Errorf("order %v", order)
	}
}

// A client that gives one lock up while it holds another has a new ID; the other is released all the same.
func TestReleaseUnderAnOldName(t *testing.T) {
	second := uint64(64)
	grants := 0
	s := scene(t, 3, func(k *actor) {
		b := k.Lock.Add(second)
		var g lock.Hold
		switch k.I {
		case 0: // holds a, gives b up, and has a waiter on a when it releases
			k.Acquire(lock.Exclusive)
			k.At(20 * fabric.Microsecond)
			if err := k.L.Acquire(&g, &lock.Request{Lock: b, Mode: lock.Exclusive, Deadline: 40 * fabric.Microsecond}); !errors.Is(err, lock.ErrTimeout) {
				t.Errorf("b: %v", err)
			}
			k.At(60 * fabric.Microsecond)
			k.Release()
		case 1: // holds b for long
			k.Must(k.L.Acquire(&g, &lock.Request{Lock: b, Mode: lock.Exclusive}))
			k.At(100 * fabric.Microsecond)
			k.Must(k.L.Release(&g, nil))
		case 2: // comes to a after client 0 has its new ID
			k.At(50 * fabric.Microsecond)
			k.Acquire(lock.Exclusive)
			grants++
			k.Release()
		}
		k.At(500 * fabric.Microsecond)
	})
	if w := s.PeekWord(s.Lock.Add(second)); w != 0 || grants != 1 {
		t.Errorf("second lock %#x, %d grants of the first", w, grants)
	}
}
