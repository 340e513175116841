//go:build cgo && !shmonly

package verbs

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/fabrictest"
	"github.com/declock/declock/fabric/internal/peer"
	"github.com/declock/declock/fabric/internal/peertest"
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
	c.Start(cfg)
	return c
}

type testCluster struct {
	peertest.Cluster[*node, *MemoryServer]
	change func(*Options) // of testOptions; nil: nothing
}

func newTestCluster(t testing.TB) *testCluster {
	c := &testCluster{Cluster: peertest.NewCluster[*node, *MemoryServer](t)}
	c.Fabric = peertest.Fabric[*node, *MemoryServer]{
		Serve: func(id fabric.MemID, size uint64) (*MemoryServer, error) {
			o := c.options()
			o.Mem, o.Size = id, size
			return Serve(context.Background(), o)
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
			return r != nil && r.MN.Incarnation == s.Member().Incarnation && r.Up.Load()
		},
	}
	return c
}

func (c *testCluster) options() Options {
	o := testOptions(c.T, c.Members)
	if c.change != nil {
		c.change(&o)
	}
	return o
}

// crash has the coordinator find out that a compute node has crashed.
func (c *testCluster) crash(id fabric.CNID) {
	c.T.Helper()
	m, ok := c.State().CN(id)
	if !ok {
		c.T.Fatalf("%v is no member", id)
	}
	c.Members.Now().Kill(m.Incarnation)
}

// Patience implements locktest.Patient: the guest may have to wait for processors.
func (c *testCluster) Patience() fabric.Time { return 60 * fabric.Second }

func (c *testCluster) RevokeMN(id fabric.MemID) {
	s := c.Servers[id]
	s.peer.Mu.Lock()
	defer s.peer.Mu.Unlock()
	if err := s.renewKey(); err != nil { // the compute nodes keep the old keys
		c.T.Error(err)
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
			return l.Wire.(*outLink)
		}
	}
	return nil
}
