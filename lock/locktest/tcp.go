//go:build linux

package locktest

import (
	"context"
	"testing"

	"github.com/declock/declock/coordinator"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/fabrictest"
	"github.com/declock/declock/fabric/tcp"
)

// TCP is a Harness of clusters over TCP on this machine's loopback, with a goroutine for each client. Its clusters
// are Killers.
func TCP() fabrictest.Harness { return tcpHarness{} }

type tcpHarness struct{}

func (tcpHarness) Start(t testing.TB, cfg fabrictest.Config) fabrictest.Cluster {
	t.Helper()
	c := &tcpCluster{t: t, members: coordinator.NewMemory(fabric.MaxCN)}
	o := tcp.Options{Members: c.members, Insecure: true, Listen: "127.0.0.1:0"}
	for i, size := range cfg.Mem {
		o.Mem, o.Size = fabric.MemID(i), size
		srv, err := tcp.Serve(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		c.servers = append(c.servers, srv)
	}
	for range cfg.CNs {
		n, err := tcp.Join(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		c.nodes = append(c.nodes, n)
	}
	return c
}

type tcpCluster struct {
	fabrictest.Goroutines
	t       testing.TB
	members *coordinator.Memory
	servers []*tcp.MemoryServer
	nodes   []fabric.Node
}

func (c *tcpCluster) Node(i int) fabric.Node { return c.nodes[i] }

// Patience is long: a machine with other things to do delays what goes through the kernel.
func (c *tcpCluster) Patience() fabric.Time { return 30 * fabric.Second }

// Slow implements Slow.
func (c *tcpCluster) Slow() {}

// Kill declares a node dead, which lives on and does not know: a zombie.
func (c *tcpCluster) Kill(i int) {
	watch, err := c.members.Watch(context.Background())
	if err != nil {
		c.t.Fatal(err)
	}
	st, _ := watch.State()
	if m, ok := st.CN(c.nodes[i].ID()); ok {
		c.members.Kill(m.Incarnation)
	}
}

func (c *tcpCluster) Close() {
	for _, n := range c.nodes {
		if err := n.Close(); err != nil {
			c.t.Error(err)
		}
	}
	for _, srv := range c.servers {
		if err := srv.Close(); err != nil {
			c.t.Error(err)
		}
	}
}
