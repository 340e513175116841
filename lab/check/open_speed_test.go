package check

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/objstore"
)

// A mixOf is what 32 clients on four compute nodes do to 1,024 keys.
type mixOf struct {
	sets int     // percent; the rest are gets
	skew float64 // exponent of Zipf's law
}

// What open slots bring and cost: the table of docs/objstore.md. Sets of keys that few want at a time gain; sets of one that all want gain more.
func TestOpenThroughput(t *testing.T) {
	for _, x := range []mixOf{{100, 0}, {50, 0.99}, {13, 1.3}, {100, 1.3}, {100, 8}} {
		locked, open := openThroughput(t, x, false), openThroughput(t, x, true)
		t.Logf("%d %% sets, skew %.2f: %v; open %v: %.2f times", x.sets, x.skew, locked, open, float64(open.ops)/float64(locked.ops))
		if open.without == 0 || float64(open.ops) < 0.97*float64(locked.ops) {
			t.Errorf("%+v: %v with the lock, %v without", x, locked, open)
		}
	}
}

// An openSpeed is how many operations there were in a millisecond, the latencies of sets, and how many sets took no lock.
type openSpeed struct {
	ops      int
	p50, p99 fabric.Time
	without  uint64
}

func (s openSpeed) String() string {
	return fmt.Sprintf("%d ops/ms, set p50 %.1f us, p99 %.1f us, %d without the lock", s.ops, float64(s.p50)/1e3, float64(s.p99)/1e3, s.without)
}

func openThroughput(t *testing.T, x mixOf, open bool) (r openSpeed) {
	t.Helper()
	const nodes, clients, keys = 4, 8, 1024
	w := speedWorld(t, fmt.Sprintf("gen=%s class=store seed=1 cns=%d clients=%d mns=1 policy=declock cap=3 ver=27 nic=cx4 scale=100 grain=64 rounds=1 keys=1 "+
		"recheck=500000 reset=10000000", generator, nodes, clients), objstore.Config{Objects: 4 * keys, OpenSlots: open, EpochNs: 1})
	defer w.c.Close()
	sum, upTo := 0.0, make([]float64, keys)
	for k := range upTo {
		sum += math.Pow(float64(k+1), -x.skew)
		upTo[k] = sum
	}
	var latencies []fabric.Time
	filling, tending := nodes*clients, len(w.nodes)
	for _, own := range w.nodes {
		w.c.Go(own.sim, "tender", func(p fabric.Port) {
			st, err := own.store.Client(w.locker(own, p))
			for i := 0; i < 40 && err == nil; {
				if filling == 0 {
					i++
				}
				_, err = st.ReclaimStep(own.sim.View)
				_ = p.Pause(p.Now() + 5*fabric.Microsecond)
			}
			if tending--; err != nil {
				t.Error(err)
			}
		})
	}
	for i := range nodes * clients {
		own := w.nodes[i%nodes]
		w.c.Go(own.sim, fmt.Sprint(i), func(p fabric.Port) {
			st, err := own.store.Client(w.locker(own, p))
			if err != nil {
				t.Error(err)
				return
			}
			value := make([]byte, 64)
			set := func(key int) error { return st.Set(fmt.Appendf(nil, "key%d", key), value, objstore.Options{}) }
			fill := func() {
				for k := i; k < keys; k += nodes * clients {
					if err := set(k); err != nil {
						t.Error(err)
					}
				}
			}
			fill()
			for filling--; tending > 0; {
				_ = p.Pause(p.Now() + fabric.Microsecond)
			}
			fill()
			before := st.Stats().Open
			for end := p.Now() + 2*fabric.Millisecond; p.Now() < end; {
				key := sort.SearchFloat64s(upTo, float64(p.Rand()>>11)/(1<<53)*sum)
				began, sets := p.Now(), int(p.Rand()%100) < x.sets
				if sets {
					err = set(key)
				} else {
					_, err = st.Get(fmt.Appendf(nil, "key%d", key))
				}
				if err != nil {
					t.Error(err)
					return
				}
				if p.Now() > end-fabric.Millisecond && p.Now() <= end {
					if r.ops++; sets {
						latencies = append(latencies, p.Now()-began)
					}
				}
			}
			r.without += st.Stats().Open - before
		})
	}
	if err := w.c.RunUntil(w.c.Now() + fabric.Second); err != nil {
		t.Fatal(err)
	}
	slices.Sort(latencies)
	r.p50, r.p99 = latencies[len(latencies)/2], latencies[len(latencies)*99/100]
	return r
}
