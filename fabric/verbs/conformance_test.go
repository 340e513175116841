//go:build linux && cgo

package verbs

import (
	"context"
	"net"
	"os"
	"testing"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/fabrictest"
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
func testOptions(t testing.TB) Options {
	// Two queue pairs: each costs the guest five milliseconds, and there are hundreds of clusters.
	return Options{Secret: testSecret, QueuePairs: 2, Heartbeat: 500 * time.Millisecond, DeadAfter: 30 * time.Second, returns: 2 * time.Second,
		Listen: "127.0.0.1:0", Report: func(err error) { t.Log("report:", err) }} // the guest may have to wait for processors
}

// harness runs the conformance suite on clusters in this process.
type harness struct{}

func (harness) Start(t testing.TB, cfg fabrictest.Config) fabrictest.Cluster {
	c := &testCluster{t: t}
	for i, size := range cfg.Mem {
		c.serve(fabric.MemID(i), size, 1, "127.0.0.1:0")
	}
	for range cfg.CNs {
		c.join()
	}
	return c
}

type testCluster struct {
	fabrictest.Goroutines
	t       testing.TB
	servers []*MemoryServer
	nodes   []*node
	change  func(*Options) // of testOptions; nil: nothing
}

func (c *testCluster) options() Options {
	o := testOptions(c.t)
	if c.change != nil {
		c.change(&o)
	}
	return o
}

func (c *testCluster) serve(id fabric.MemID, size uint64, epoch uint32, listen string) {
	c.t.Helper()
	o := c.options()
	o.Mem, o.Size, o.Epoch, o.Listen = id, size, epoch, listen
	if id != 0 {
		o.Lead = c.servers[0].Addr().String()
	}
	s, err := Serve(o)
	if err != nil {
		c.t.Fatal(err)
	}
	if int(id) == len(c.servers) {
		c.servers = append(c.servers, s)
	} else {
		c.servers[id] = s
	}
}

func (c *testCluster) join() {
	c.t.Helper()
	o := c.options()
	o.Lead = c.servers[0].Addr().String()
	n, err := Join(context.Background(), o)
	if err != nil {
		c.t.Fatal(err)
	}
	c.nodes = append(c.nodes, n.(*node))
}

// Patience implements locktest.Patient: the guest may have to wait for processors.
func (c *testCluster) Patience() fabric.Time { return 60 * fabric.Second }

func (c *testCluster) Node(i int) fabric.Node { return c.nodes[i] }

// Kill ends a node without a word, as the end of its process would.
func (c *testCluster) Kill(i int) { c.nodes[i].shut() }

func (c *testCluster) KillMN(id fabric.MemID) { c.servers[id].Close() }

func (c *testCluster) RevokeMN(id fabric.MemID) {
	if err := c.servers[id].revoke(); err != nil {
		c.t.Error(err)
	}
}

func (c *testCluster) RestartMN(id fabric.MemID) {
	s := c.servers[id]
	addr, size, epoch := s.Addr().(*net.TCPAddr).String(), s.Size(), s.Epoch()+1
	s.Close()
	c.serve(id, size, epoch, addr)
	for _, n := range c.nodes {
		for limit := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
			if r := n.remotes[id].Load(); r != nil && r.epoch == epoch && r.alive.Load() {
				break
			}
			if time.Now().After(limit) {
				c.t.Fatalf("%v has not come back to %v", n.ID(), id)
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
