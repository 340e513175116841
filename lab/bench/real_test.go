package bench

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/shm"
)

// cluster returns memory for a microbenchmark, and compute nodes, on shared memory.
func cluster(t *testing.T, m Micro) Part {
	t.Helper()
	size, err := m.MemorySize()
	if err != nil {
		t.Fatal(err)
	}
	o := shm.Options{Name: "bench", Dir: t.TempDir(), Size: 4096 + size, Sparse: true}
	srv, err := shm.Serve(o)
	if err != nil {
		t.Fatal(err)
	}
	p := Part{Base: fabric.At(0, 4096), Report: func(err error) { t.Errorf("agent: %v", err) }}
	t.Cleanup(func() {
		for _, n := range p.Nodes {
			if err := n.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	})
	for range m.WithDefaults().CNs {
		n, err := shm.Join(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		p.Nodes = append(p.Nodes, n)
	}
	return p
}

// The microbenchmark runs in real time, in one process or, dealt out, in two: the results add up.
func TestReal(t *testing.T) {
	for _, name := range []string{"cas", "declock"} {
		m := tiny(name)
		m.WarmupNs, m.WindowNs = fabric.Millisecond, 20*fabric.Millisecond
		all := cluster(t, m)
		halves := []Part{{Nodes: all.Nodes[:1], Base: all.Base, Report: all.Report}, {Nodes: all.Nodes[1:], First: 1, Base: all.Base, Report: all.Report}}
		results := make(chan error, 2)
		wires := make([]WireResult, 2)
		for i := range halves {
			go func() {
				r, err := Real(context.Background(), m, halves[i])
				if err == nil {
					wires[i] = r.Wire()
				}
				results <- err
			}()
		}
		if err := errors.Join(<-results, <-results); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		total := new(Result)
		for _, w := range wires {
			text, err := json.Marshal(w) // as from another process
			if err != nil {
				t.Fatal(err)
			}
			var back WireResult
			if err := errors.Join(json.Unmarshal(text, &back), total.Merge(back)); err != nil {
				t.Fatal(err)
			}
		}
		if total.Ops != wires[0].Ops+wires[1].Ops || total.tally.op.TotalCount() != int64(total.Ops) {
			t.Errorf("%s: %d operations of %d and %d, histogram of %d", name, total.Ops, wires[0].Ops, wires[1].Ops, total.tally.op.TotalCount())
		}
	}
}

// A run in real time ends when its context does, and says what it has.
func TestRealStops(t *testing.T) {
	m := tiny("declock-tf")
	m.WarmupNs, m.WindowNs = 1, 600*fabric.Second
	p := cluster(t, m)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		_, err := Real(ctx, m, p)
		done <- err
	}()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A share that is none is refused.
func TestRealRefuses(t *testing.T) {
	for _, p := range []Part{{}, {First: 2, Nodes: make([]fabric.Node, 1)}, {First: -1, Nodes: make([]fabric.Node, 1)}} {
		if _, err := Real(context.Background(), tiny("cas"), p); !errors.Is(err, ErrMicro) {
			t.Errorf("%+v: %v", p, err)
		}
	}
	if err := new(Result).Merge(WireResult{}); err == nil {
		t.Error("a result without histograms is merged")
	}
}
