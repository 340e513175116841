package locktest

import (
	"context"
	"io"
	"testing"

	"github.com/declock/declock/coordinator"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/fabrictest"
	"github.com/declock/declock/fabric/shm"
	"github.com/declock/declock/fabric/tcp"
)

// Shm is a Harness of shared-memory clusters in a directory, with a goroutine
// for each client.
func Shm(dir string) fabrictest.Harness { return shmHarness(dir) }

type shmHarness string

func (h shmHarness) Start(t testing.TB, cfg fabrictest.Config) fabrictest.Cluster {
	t.Helper()
	o := shm.Options{Name: "locktest", Dir: string(h)}
	c := &realCluster{t: t}
	c.start(cfg, func(id fabric.MemID, size uint64) (io.Closer, error) {
		o.Mem, o.Size = id, size
		return shm.Serve(o)
	}, func() (fabric.Node, error) { return shm.Join(context.Background(), o) })
	return c
}

// TCP is a Harness of clusters over TCP on this machine's loopback, with a goroutine for each client.
func TCP() fabrictest.Harness { return tcpHarness{} }

type tcpHarness struct{}

func (tcpHarness) Start(t testing.TB, cfg fabrictest.Config) fabrictest.Cluster {
	t.Helper()
	c := &tcpCluster{realCluster{t: t}}
	o := tcp.Options{Members: coordinator.NewMemory(fabric.MaxCN), Insecure: true, Listen: "127.0.0.1:0"}
	c.start(cfg, func(id fabric.MemID, size uint64) (io.Closer, error) {
		o.Mem, o.Size = id, size
		return tcp.Serve(context.Background(), o)
	}, func() (fabric.Node, error) { return tcp.Join(context.Background(), o) })
	return c
}

type tcpCluster struct{ realCluster }

// Patience is long: a machine with other things to do delays what goes through the kernel.
func (c *tcpCluster) Patience() fabric.Time { return 30 * fabric.Second }

// Slow implements Slow.
func (c *tcpCluster) Slow() {}

// A realCluster is a cluster in real time, in this process.
type realCluster struct {
	fabrictest.Goroutines
	t       testing.TB
	servers []io.Closer
	nodes   []fabric.Node
}

// start starts the memory nodes, then the compute nodes.
func (c *realCluster) start(cfg fabrictest.Config, serve func(fabric.MemID, uint64) (io.Closer, error), join func() (fabric.Node, error)) {
	c.t.Helper()
	for i, size := range cfg.Mem {
		srv, err := serve(fabric.MemID(i), size)
		if err != nil {
			c.t.Fatal(err)
		}
		c.servers = append(c.servers, srv)
	}
	for range cfg.CNs {
		n, err := join()
		if err != nil {
			c.t.Fatal(err)
		}
		c.nodes = append(c.nodes, n)
	}
}

func (c *realCluster) Node(i int) fabric.Node { return c.nodes[i] }

func (c *realCluster) Close() {
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
