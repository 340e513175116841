package shm

import (
	"context"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/fabrictest"
)

// harness runs the conformance suite on clusters in this process.
type harness struct{ dir string }

func (h harness) Start(t testing.TB, cfg fabrictest.Config) fabrictest.Cluster {
	c := &testCluster{t: t, o: Options{Name: "conformance", Dir: h.dir, Keep: true}}
	for i, size := range cfg.Mem {
		c.serve(fabric.MemID(i), size)
	}
	for range cfg.CNs {
		n, err := Join(context.Background(), c.o)
		if err != nil {
			t.Fatal(err)
		}
		c.nodes = append(c.nodes, n.(*node))
	}
	return c
}

type testCluster struct {
	fabrictest.Goroutines
	t       testing.TB
	o       Options
	servers []*MemoryServer
	nodes   []*node
}

func (c *testCluster) serve(id fabric.MemID, size uint64) {
	c.t.Helper()
	o := c.o
	o.Mem, o.Size = id, size
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

func (c *testCluster) Node(i int) fabric.Node { return c.nodes[i] }

func (c *testCluster) Kill(i int) { c.nodes[i].crash() }

func (c *testCluster) KillMN(id fabric.MemID) {
	if err := c.servers[id].Close(); err != nil {
		c.t.Error(err)
	}
}

func (c *testCluster) RestartMN(id fabric.MemID) {
	c.KillMN(id)
	c.serve(id, 0)
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
	if err := Remove(c.o.Dir, c.o.Name); err != nil {
		c.t.Error(err)
	}
}

// crash ends a node as the end of its process would: without a word, but its
// lock is free. A node in the same process would not look by itself, because
// there it does not happen.
func (n *node) crash() {
	n.closed.Store(true)
	_ = n.bell.Close()
	n.pumping.Wait()
	n.table.CloseAll()
	n.cancel()
	_ = unlock(n.file)
	for cn := fabric.CNID(1); uint32(cn) <= n.c.maxCN; cn++ {
		if cn != n.id && isLive(n.c.cn(cn).counter.Load()) {
			if p, err := n.peer(cn); err == nil {
				p.wake(hintView)
			}
		}
	}
	n.watches.close()
}

func TestConformance(t *testing.T) {
	fabrictest.Run(t, harness{dir: testDir(t)})
}
