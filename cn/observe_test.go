package cn

import (
	"context"
	"sync"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// Space-saving: every lock with more than 1/64 of the acquisitions is among the hot ones, and its share is
// at most Error too high.
func TestHotLocksFindsTheHottest(t *testing.T) {
	var h hotLocks
	const hottest, next = fabric.Addr(0x1000), fabric.Addr(0x2000)
	counts := map[fabric.Addr]int{}
	const n = 60_000
	for i := range n {
		l := fabric.Addr(0x10_0000 + 64*uint64(i*7919%5000)) // many cold ones
		switch {
		case i%5 == 0:
			l = hottest
		case i%11 == 0:
			l = next
		}
		counts[l]++
		h.add(l, 100)
	}
	top := h.top(2)
	if len(top) != 2 || top[0].Lock != hottest || top[1].Lock != next {
		t.Fatalf("%+v", top)
	}
	for _, x := range top {
		true := float64(counts[x.Lock]) / n
		if x.Share < true-1e-9 || x.Share > true+x.Error+1e-9 || x.WaitNs != 100 {
			t.Errorf("%+v, in truth %.4f", x, true)
		}
	}
}

// What was hot long ago makes room.
func TestHotLocksForget(t *testing.T) {
	var h hotLocks
	for range hotTotal {
		h.add(1, 0)
	}
	for range 2 * hotTotal {
		h.add(2, 0)
	}
	if top := h.top(1); top[0].Lock != 2 || top[0].Share < 0.6 {
		t.Errorf("%+v", top)
	}
}

func TestHistogramBounds(t *testing.T) {
	var d Histogram
	for _, ns := range []fabric.Time{-5, 0, 127, 128, 255, 256, 1 << 40} {
		d.add(ns)
	}
	h := d.now()
	if h.Count() != 7 || h.Counts[0] != 3 || h.Counts[1] != 2 || h.Counts[2] != 1 || h.Counts[numBuckets] != 1 {
		t.Errorf("%v", h)
	}
	if Bound(0) != 128 || Bound(numBuckets-1) < 8_000_000_000 {
		t.Errorf("bounds %d to %d ns", Bound(0), Bound(numBuckets-1))
	}
}

// Observe may be called at any time, and what it says is at most a sample behind.
func TestObserveWhileSessionsWork(t *testing.T) {
	f := newFake(1, memSize)
	format(t, f, 0, 3, 16)
	n := start(t, f, 0, Config{})
	defer n.Close()
	const clients, each = 4, 20 * SampleEvery
	stop := make(chan struct{})
	var watch, work sync.WaitGroup
	watch.Go(func() {
		for {
			n.Observe(3)
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	for range clients {
		work.Go(func() {
			s, err := n.Session()
			if err != nil {
				t.Error(err)
				return
			}
			var h lock.Hold
			for range each {
				if err := s.Acquire(context.Background(), &h, &lock.Request{Lock: lockAt(0), Mode: lock.Exclusive}); err != nil {
					t.Error(err)
				}
				if err := s.Release(&h, nil); err != nil {
					t.Error(err)
				}
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	close(stop)
	watch.Wait()
	o := n.Observe(3)
	if o.Locks.Acquires != clients*each || o.Sessions != 0 || o.Load.Waiters != 0 {
		t.Errorf("%+v", o)
	}
	if a, h := o.Acquire.Count(), o.Hold.Count(); a != clients*each/SampleEvery || h != a {
		t.Errorf("%d acquisitions and %d holds were timed", a, h)
	}
	if len(o.Hot) != 1 || o.Hot[0].Lock != lockAt(0) || o.Hot[0].Share != 1 {
		t.Errorf("%+v", o.Hot)
	}
}
