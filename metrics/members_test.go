package metrics_test

import (
	"context"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/coordinator"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/tcp"
	"github.com/declock/declock/metrics"
	"github.com/declock/declock/mn"
	"github.com/prometheus/client_golang/prometheus"
)

// values returns a metric's values by its first label.
func values(t *testing.T, reg *prometheus.Registry, name string) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	list := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			label := ""
			if len(m.GetLabel()) > 0 {
				label = m.GetLabel()[0].GetValue()
			}
			if f.GetName() == name {
				list[label] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return list
}

// eventually waits for something that must come.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for limit := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// A memory node that is down is 0, also for a compute node that joins when it is, and until it is forgotten. A coordinator that does not
// answer is 0. A compute node that was declared dead is counted.
func TestMembersThatAreNotThere(t *testing.T) {
	ctx := context.Background()
	members := coordinator.NewMemory(16)
	o := tcp.Options{Members: members, Insecure: true, Listen: "127.0.0.1:0", Size: 16 << 20}
	var nodes []*mn.Node
	for id := range fabric.MemID(2) {
		o.Mem = id
		srv, err := tcp.Serve(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		n, err := mn.Start(srv, mn.Config{Participants: 16})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { n.Close() })
		nodes = append(nodes, n)
	}
	join := func() (*declock.Cluster, *prometheus.Registry, *metrics.Compute) {
		f, err := tcp.Join(ctx, tcp.Options{Members: members, Insecure: true, Listen: "127.0.0.1:0"})
		if err != nil {
			t.Fatal(err)
		}
		c, err := declock.OpenNode(f)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		m, reg := metrics.ComputeNode(c, nil), prometheus.NewPedanticRegistry()
		t.Cleanup(m.Wait) // before Close
		reg.MustRegister(m)
		return c, reg, m
	}
	_, before, _ := join()
	if up := values(t, before, "declock_memory_up"); len(up) != 2 || up["mn0"] != 1 || up["mn1"] != 1 {
		t.Errorf("both are up: %v", up)
	}
	if err := nodes[1].Close(); err != nil {
		t.Fatal(err)
	}
	_, after, _ := join()
	for what, reg := range map[string]*prometheus.Registry{"one that knew it": before, "one that did not": after} {
		eventually(t, what+" shows that mn1 is down", func() bool {
			up := values(t, reg, "declock_memory_up")
			zero, known := up["mn1"]
			return len(up) == 2 && up["mn0"] == 1 && known && zero == 0
		})
	}
	if err := members.ForgetMN(ctx, 1); err != nil {
		t.Fatal(err)
	}
	for what, reg := range map[string]*prometheus.Registry{"one that knew it": before, "one that did not": after} {
		eventually(t, what+" has forgotten mn1", func() bool {
			up := values(t, reg, "declock_memory_up")
			return len(up) == 1 && up["mn0"] == 1
		})
	}
	for _, away := range []bool{true, false} {
		members.SetAway(away)
		if got := values(t, after, "declock_coordinator_up")[""]; (got == 0) != away {
			t.Errorf("away %v: %v", away, got)
		}
	}
	last, reg, m := join()
	m.Fenced = 2
	st, err := members.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s, _ := st.State()
	cn, _ := s.CN(last.Node().Fabric().ID())
	members.Kill(cn.Incarnation)
	eventually(t, "it shows that it was declared dead", func() bool {
		return values(t, reg, "declock_fenced")[""] == 1 && values(t, reg, "declock_fenced_total")[""] == 3
	})
}
