package check

import (
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/objstore"
)

// What copies cost: sets of 32 clients with two and three copies come to 0.7 and 0.6 of those with one, at least, and gets to as many.
func TestReplicatedThroughput(t *testing.T) {
	for _, x := range []struct {
		what  string
		gets  bool
		least [4]float64 // by copies
	}{
		{"sets", false, [4]float64{2: 0.7, 3: 0.6}},
		{"gets", true, [4]float64{2: 0.97, 3: 0.97}},
	} {
		one := throughput(t, 0, x.gets)
		for _, copies := range []int{2, 3} {
			n := throughput(t, copies, x.gets)
			t.Logf("%s with %d copies: %d in a millisecond, %.2f of %d", x.what, copies, n, float64(n)/float64(one), one)
			if float64(n) < x.least[copies]*float64(one) {
				t.Errorf("%s with %d copies: %d, with one %d", x.what, copies, n, one)
			}
		}
	}
}

// throughput returns how many operations clients do in a millisecond on keys of their own choice.
func throughput(t *testing.T, copies int, gets bool) (n int) {
	t.Helper()
	const nodes, clients, keys = 4, 8, 1024
	line := fmt.Sprintf("gen=%s class=store seed=1 cns=%d clients=%d mns=1 policy=declock cap=3 ver=27 nic=cx4 scale=100 grain=64 rounds=1 keys=1 "+
		"recheck=500000 reset=10000000", generator, nodes, clients)
	if copies > 0 {
		line += fmt.Sprintf(" copies=%d spares=%d", copies, copies-1)
	}
	w := speedWorld(t, line, objstore.Config{Objects: 4 * keys})
	defer w.c.Close()
	filling := nodes * clients
	for i := range nodes * clients {
		own := w.nodes[i%nodes]
		w.c.Go(own.sim, fmt.Sprint(i), func(p fabric.Port) {
			st, err := own.store.Client(w.locker(own, p))
			if err != nil {
				t.Error(err)
				return
			}
			value := make([]byte, 64)
			set := func(key uint64) error { return st.Set(fmt.Appendf(nil, "key%d", key), value, objstore.Options{}) }
			for k := i; k < keys; k += nodes * clients {
				if err := set(uint64(k)); err != nil {
					t.Error(err)
				}
			}
			for filling--; filling > 0; {
				_ = p.Pause(p.Now() + fabric.Microsecond)
			}
			for end := p.Now() + 2*fabric.Millisecond; p.Now() < end; {
				if key := p.Rand() % keys; gets {
					_, err = st.Get(fmt.Appendf(nil, "key%d", key))
				} else {
					err = set(key)
				}
				if err != nil {
					t.Error(err)
					return
				}
				if p.Now() > end-fabric.Millisecond && p.Now() <= end {
					n++
				}
			}
		})
	}
	if err := w.c.RunUntil(w.c.Now() + fabric.Second); err != nil {
		t.Fatal(err)
	}
	return n
}

// speedWorld returns a world in which each compute node has a store open.
func speedWorld(t *testing.T, line string, cfg objstore.Config) *world {
	t.Helper()
	s, err := ParseScenario(line)
	if err != nil {
		t.Fatal(err)
	}
	w, err := newWorld(s, false)
	if err != nil {
		t.Fatal(err)
	}
	w.startAgents()
	cfg.Name, cfg.Nodes, cfg.Lock, cfg.MaxValue = "fast", w.mns, w.cfg.Layout.Lock(), 1024
	for _, n := range w.nodes {
		p, err := n.sim.Open()
		if err == nil {
			n.store, err = objstore.Open(p, cfg)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return w
}
