//go:build linux

package tcp

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/declock/declock/coordinator"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/fabrictest"
)

// testOptions are those of a cluster of this process.
func testOptions(t testing.TB, m *coordinator.Memory) Options {
	return Options{Members: m, Insecure: true, Listen: "127.0.0.1:0", Report: func(err error) { t.Log("report:", err) }}
}

// harness runs the conformance suite on clusters in this process.
type harness struct {
	change func(o *Options) // options of servers and nodes
}

func (h harness) Start(t testing.TB, cfg fabrictest.Config) fabrictest.Cluster {
	c := newTestCluster(t)
	c.change = h.change
	for i, size := range cfg.Mem {
		c.serve(fabric.MemID(i), size)
	}
	for range cfg.CNs {
		c.join()
	}
	return c
}

type testCluster struct {
	fabrictest.Goroutines
	t       testing.TB
	members *coordinator.Memory
	way     *detachable // to it
	change  func(o *Options)
	servers []*MemoryServer
	nodes   []*node
	late    *node  // of JoinInLease
	goOn    func() // ends a stall
}

func newTestCluster(t testing.TB) *testCluster {
	c := &testCluster{t: t, members: coordinator.NewMemory(fabric.MaxCN)}
	c.way = &detachable{Memory: c.members}
	return c
}

func (c *testCluster) options() Options {
	o := testOptions(c.t, c.members)
	o.Members = c.way
	if c.change != nil {
		c.change(&o)
	}
	return o
}

func (c *testCluster) serve(id fabric.MemID, size uint64) *MemoryServer {
	c.t.Helper()
	o := c.options()
	o.Mem, o.Size = id, size
	s, err := Serve(context.Background(), o)
	if err != nil {
		c.t.Fatal(err)
	}
	if int(id) == len(c.servers) {
		c.servers = append(c.servers, s)
	} else {
		c.servers[id] = s
	}
	return s
}

func (c *testCluster) join() *node {
	c.t.Helper()
	n, err := Join(context.Background(), c.options())
	if err != nil {
		c.t.Fatal(err)
	}
	c.nodes = append(c.nodes, n.(*node))
	return n.(*node)
}

func (c *testCluster) Node(i int) fabric.Node { return c.nodes[i] }

// Kill ends a node without a word, as the end of its process would, and has the coordinator find out.
func (c *testCluster) Kill(i int) {
	n := c.nodes[i]
	n.Vanish()
	c.members.Kill(n.Own.Incarnation)
}

func (c *testCluster) KillMN(id fabric.MemID) {
	if err := c.servers[id].Close(); err != nil {
		c.t.Error(err)
	}
}

// Stall makes the memory node execute nothing more of what comes over the present connections, and breaks them off at the compute nodes.
func (c *testCluster) Stall(id fabric.MemID) {
	lanes := make([]uint16, maxLanes)
	for i := range lanes {
		lanes[i] = uint16(i)
	}
	c.goOn = c.servers[id].stall(lanes...)
	time.AfterFunc(50*time.Millisecond, func() {
		for _, n := range c.nodes {
			for _, l := range remoteOf(n, id).lanes {
				l.mu.Lock()
				if conn := l.conn.Load(); conn != nil {
					l.broke(conn, errors.New("the test breaks it"))
				}
				l.mu.Unlock()
			}
		}
	})
}

func (c *testCluster) Continue(fabric.MemID) { c.goOn() }

func (c *testCluster) RevokeMN(id fabric.MemID) { c.servers[id].nic.key.Add(1) }

func (c *testCluster) RestartMN(id fabric.MemID) {
	s := c.servers[id]
	size := s.Size()
	c.KillMN(id)
	life := c.serve(id, size).Member().Incarnation
	for _, n := range c.nodes {
		await(c.t, "the memory node is back", func() bool {
			r := remoteOf(n, id)
			return r != nil && r.MN.Incarnation == life && r.lanes[0].conn.Load() != nil
		})
	}
}

func (c *testCluster) Close() {
	if c.late != nil {
		c.nodes = append(c.nodes, c.late)
	}
	for _, n := range c.nodes {
		if err := n.Close(); err != nil {
			c.t.Error(err)
		}
	}
	for _, s := range c.servers {
		if err := s.Close(); err != nil {
			c.t.Error(err)
		}
	}
}

// remoteOf returns a memory node as a compute node uses it; nil: it never did.
func remoteOf(n *node, id fabric.MemID) *remote {
	r := n.Remote(id)
	if r == nil {
		return nil
	}
	return lanesOf(r)
}

// linkTo returns the link to a compute node; nil: there is none.
func linkTo(n *node, to fabric.CNID) *outLink {
	for l := range n.Links {
		if l.Peer.ID == to {
			return l.Wire().(*outLink)
		}
	}
	return nil
}

// await waits for something that must come.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for limit := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

func TestConformance(t *testing.T) {
	fabrictest.Run(t, harness{})
}
