package tcp

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/fabrictest"
	"github.com/declock/declock/fabric/internal/peer"
	"github.com/declock/declock/fabric/internal/peertest"
	"github.com/declock/declock/fabric/member"
)

// testOptions are those of a cluster of this process.
func testOptions(t testing.TB, m member.Service) Options {
	return Options{Members: m, Insecure: true, Listen: "127.0.0.1:0", Report: func(err error) { t.Log("report:", err) }}
}

// harness runs the conformance suite on clusters in this process.
type harness struct {
	change func(o *Options) // options of servers and nodes
}

func (h harness) Start(t testing.TB, cfg fabrictest.Config) fabrictest.Cluster {
	c := newTestCluster(t)
	c.change = h.change
	c.Start(cfg)
	return c
}

// StartReplicated is fabrictest.ReplicaHarness.
func (h harness) StartReplicated(t testing.TB, cfg fabrictest.Config) fabrictest.Cluster {
	c := newTestCluster(t)
	change := func(o *Options) {
		if h.change != nil {
			h.change(o)
		}
	}
	c.change = func(o *Options) { change(o); o.Replicas = 2 }
	c.Serve(0, cfg.Mem[0])
	c.change = change
	c.Serve(1, cfg.Mem[1])
	for range cfg.CNs {
		c.Join()
	}
	g := &group{testCluster: c, t: t}
	peertest.Await(t, "the group", func() bool { return g.now() != nil && g.now().Serving })
	g.wish(member.AddBackup, c.Servers[1].Member().Incarnation)
	g.sync()
	g.known()
	return g
}

type testCluster struct {
	peertest.Cluster[*node, *MemoryServer]
	way    *detachable // to Members
	change func(o *Options)
	format func(fabric.Copy) error // of copies; nil: they are not formatted yet
	late   *node                   // of JoinInLease
	goOn   func()                  // ends a stall
}

func newTestCluster(t testing.TB) *testCluster {
	c := &testCluster{Cluster: peertest.NewCluster[*node, *MemoryServer](t), format: func(fabric.Copy) error { return nil }}
	c.way = &detachable{Service: c.Members}
	c.Fabric = peertest.Fabric[*node, *MemoryServer]{
		Serve: func(id fabric.MemID, size uint64) (*MemoryServer, error) {
			o := c.options()
			o.Mem, o.Size = id, size
			s, err := Serve(context.Background(), o)
			if err == nil && c.format != nil {
				err = s.FormatCopies(c.format)
			}
			return s, err
		},
		Join: func() (*node, error) {
			n, err := Join(context.Background(), c.options())
			if err != nil {
				return nil, err
			}
			return n.(*node), nil
		},
		Core: func(n *node) *peer.Node { return &n.Node },
		Attached: func(n *node, s *MemoryServer) bool {
			r := remoteOf(n, s.ID())
			return r != nil && r.MN.Incarnation == s.Member().Incarnation && r.lanes[0].conn.Load() != nil
		},
	}
	return c
}

func (c *testCluster) options() Options {
	o := testOptions(c.T, c.way)
	if c.change != nil {
		c.change(&o)
	}
	return o
}

// Stall makes the memory node execute nothing more of what comes over the present connections, and breaks them off at the compute nodes.
func (c *testCluster) Stall(id fabric.MemID) {
	lanes := make([]uint16, maxLanes)
	for i := range lanes {
		lanes[i] = uint16(i)
	}
	c.goOn = c.Servers[id].stall(lanes...)
	time.AfterFunc(50*time.Millisecond, func() {
		for _, n := range c.Nodes {
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

func (c *testCluster) RevokeMN(id fabric.MemID) {
	s := c.Servers[id]
	s.peer.Mu.Lock()
	defer s.peer.Mu.Unlock()
	s.takeBack(func(*leave) bool { return true })
	s.home.nic.key.Add(1)
}

func (c *testCluster) Close() {
	if c.late != nil {
		c.Nodes = append(c.Nodes, c.late)
	}
	c.Cluster.Close()
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
			return l.Wire.(*outLink)
		}
	}
	return nil
}

func TestConformance(t *testing.T) {
	fabrictest.Run(t, harness{})
}
