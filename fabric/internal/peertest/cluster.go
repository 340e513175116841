// Package peertest is what the tests of the fabrics between machines, tcp and verbs, share: clusters within the test's process, child
// processes, and tests of memory nodes that join again. It is never part of a program.
package peertest

import (
	"context"
	"testing"
	"time"

	"github.com/declock/declock/coordinator/coordtest"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/fabrictest"
	"github.com/declock/declock/fabric/internal/peer"
	"github.com/declock/declock/fabric/member"
)

// A Fabric is a fabric as its tests see it. N and S are its compute nodes and memory nodes.
type Fabric[N fabric.Node, S member.MemoryServer] struct {
	Serve func(id fabric.MemID, size uint64) (S, error)
	Join  func() (N, error)
	// Core returns the peer.Node of a compute node.
	Core func(n N) *peer.Node
	// Attached reports whether a compute node can use a memory node in its present epoch.
	Attached func(n N, s S) bool
}

// A Cluster is a cluster within the test's process. It is a fabrictest.Cluster.
type Cluster[N fabric.Node, S member.MemoryServer] struct {
	fabrictest.Goroutines
	T       testing.TB
	Members *coordtest.Replaceable
	Servers []S
	Nodes   []N
	Fabric  Fabric[N, S]
}

// NewCluster returns a cluster without nodes; its Fabric is not set.
func NewCluster[N fabric.Node, S member.MemoryServer](t testing.TB) Cluster[N, S] {
	return Cluster[N, S]{T: t, Members: coordtest.NewReplaceable(fabric.MaxCN)}
}

// Start starts the nodes that a test needs.
func (c *Cluster[N, S]) Start(cfg fabrictest.Config) {
	for i, size := range cfg.Mem {
		c.Serve(fabric.MemID(i), size)
	}
	for range cfg.CNs {
		c.Join()
	}
}

// Serve starts a memory node, perhaps in the place of one that has ended.
func (c *Cluster[N, S]) Serve(id fabric.MemID, size uint64) S {
	c.T.Helper()
	s, err := c.Fabric.Serve(id, size)
	if err != nil {
		c.T.Fatal(err)
	}
	if int(id) == len(c.Servers) {
		c.Servers = append(c.Servers, s)
	} else {
		c.Servers[id] = s
	}
	return s
}

// Join starts a compute node.
func (c *Cluster[N, S]) Join() N {
	c.T.Helper()
	n, err := c.Fabric.Join()
	if err != nil {
		c.T.Fatal(err)
	}
	c.Nodes = append(c.Nodes, n)
	return n
}

// Node is fabrictest.Cluster.Node.
func (c *Cluster[N, S]) Node(i int) fabric.Node { return c.Nodes[i] }

// State returns the membership.
func (c *Cluster[N, S]) State() *member.State {
	c.T.Helper()
	w, err := c.Members.Watch(context.Background())
	if err != nil {
		c.T.Fatal(err)
	}
	st, _ := w.State()
	return st
}

// Kill ends a compute node as the end of its process would, and has the coordinator find out.
func (c *Cluster[N, S]) Kill(i int) {
	n := c.Fabric.Core(c.Nodes[i])
	n.Vanish()
	c.Members.Now().Kill(n.Own.Incarnation)
}

// KillMN ends a memory node.
func (c *Cluster[N, S]) KillMN(id fabric.MemID) {
	if err := c.Servers[id].Close(); err != nil {
		c.T.Error(err)
	}
}

// RestartMN starts a memory node again, with new memory.
func (c *Cluster[N, S]) RestartMN(id fabric.MemID) {
	c.KillMN(id)
	c.AwaitMN(c.Serve(id, c.Servers[id].Size()))
}

// AwaitMN waits until all compute nodes can use a memory node.
func (c *Cluster[N, S]) AwaitMN(s S) {
	c.T.Helper()
	for _, n := range c.Nodes {
		Await(c.T, "the memory node is back", func() bool { return c.Fabric.Core(n).IsClosed() || c.Fabric.Attached(n, s) })
	}
}

// Close ends all nodes.
func (c *Cluster[N, S]) Close() {
	for _, n := range c.Nodes {
		if err := n.Close(); err != nil {
			c.T.Error(err)
		}
	}
	for i := range c.Servers {
		c.KillMN(fabric.MemID(i))
	}
}

// Await waits for something that must come.
func Await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for limit := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}
