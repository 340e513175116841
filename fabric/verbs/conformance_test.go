//go:build linux && cgo

package verbs

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/declock/declock/coordinator/coordtest"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/fabrictest"
	"github.com/declock/declock/fabric/member"
)

// guestEnv is set by scripts/verbs-vm: there is a device, and a test that does
// not find it fails.
const guestEnv = "DECLOCK_VERBS_GUEST"

// needDevice skips a test on a machine without RDMA.
func needDevice(t testing.TB) {
	t.Helper()
	d, err := openDevice(&Options{})
	if err == nil {
		d.close()
		return
	}
	if os.Getenv(guestEnv) != "" {
		t.Fatal(err)
	}
	t.Skip(err)
}

var testSecret = []byte("the secret of the test's cluster")

// testOptions are those of a cluster of this process.
func testOptions(t testing.TB, m member.Service) Options {
	// Two queue pairs: each costs the guest five milliseconds, and there are hundreds of clusters.
	return Options{Members: m, Secret: testSecret, QueuePairs: 2, Heartbeat: 500 * time.Millisecond, DeadAfter: 30 * time.Second,
		Listen: "127.0.0.1:0", Report: func(err error) { t.Log("report:", err) }} // the guest may have to wait for processors
}

// harness runs the conformance suite on clusters in this process.
type harness struct{}

func (harness) Start(t testing.TB, cfg fabrictest.Config) fabrictest.Cluster {
	c := newTestCluster(t)
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
	members *coordtest.Replaceable
	servers []*MemoryServer
	nodes   []*node
	change  func(*Options) // of testOptions; nil: nothing
}

func newTestCluster(t testing.TB) *testCluster {
	return &testCluster{t: t, members: coordtest.NewReplaceable(fabric.MaxCN)}
}

func (c *testCluster) options() Options {
	o := testOptions(c.t, c.members)
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

func (c *testCluster) join() {
	c.t.Helper()
	n, err := Join(context.Background(), c.options())
	if err != nil {
		c.t.Fatal(err)
	}
	c.nodes = append(c.nodes, n.(*node))
}

// state returns who is there.
func (c *testCluster) state() *member.State {
	c.t.Helper()
	w, err := c.members.Watch(context.Background())
	if err != nil {
		c.t.Fatal(err)
	}
	st, _ := w.State()
	return st
}

// die has the coordinator find out that a compute node is dead.
func (c *testCluster) die(id fabric.CNID) {
	c.t.Helper()
	m, ok := c.state().CN(id)
	if !ok {
		c.t.Fatalf("%v is no member", id)
	}
	c.members.Now().Kill(m.Incarnation)
}

// Patience implements locktest.Patient: the guest may have to wait for processors.
func (c *testCluster) Patience() fabric.Time { return 60 * fabric.Second }

func (c *testCluster) Node(i int) fabric.Node { return c.nodes[i] }

// Kill ends a node without a word, as the end of its process would, and has the coordinator find out.
func (c *testCluster) Kill(i int) {
	n := c.nodes[i]
	n.Vanish()
	c.members.Now().Kill(n.Own.Incarnation)
}

func (c *testCluster) KillMN(id fabric.MemID) {
	if err := c.servers[id].Close(); err != nil {
		c.t.Error(err)
	}
}

func (c *testCluster) RevokeMN(id fabric.MemID) {
	s := c.servers[id]
	s.peer.Mu.Lock()
	defer s.peer.Mu.Unlock()
	if err := s.renewKey(); err != nil { // the compute nodes keep the old keys
		c.t.Error(err)
	}
}

func (c *testCluster) RestartMN(id fabric.MemID) {
	c.KillMN(id)
	c.awaitMN(c.serve(id, c.servers[id].Size()))
}

// awaitMN waits until all compute nodes are attached to a memory node.
func (c *testCluster) awaitMN(s *MemoryServer) {
	c.t.Helper()
	for _, n := range c.nodes {
		for limit := time.Now().Add(20 * time.Second); !n.IsClosed(); time.Sleep(time.Millisecond) {
			if r := remoteOf(n, s.ID()); r != nil && r.MN.Incarnation == s.Member().Incarnation && r.Up.Load() {
				break
			}
			if time.Now().After(limit) {
				c.t.Fatalf("%v has not come back to %v", n.ID(), s.ID())
			}
		}
	}
}

func (c *testCluster) Close() {
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

func TestConformance(t *testing.T) {
	needDevice(t)
	fabrictest.Run(t, harness{})
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
