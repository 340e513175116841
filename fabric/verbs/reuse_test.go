//go:build cgo && !shmonly

package verbs

import (
	"testing"
	"unsafe"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/fabrictest"
)

// A reused runs tests one after the other on one cluster, as long as all goes well: to make a cluster takes the guest longer
// than most of these tests.
type reused struct {
	t *testing.T // in which all tests are
	c *testCluster
}

func (h *reused) Start(t testing.TB, cfg fabrictest.Config) fabrictest.Cluster {
	if h.c == nil {
		c := harness{}.Start(h.t, cfg).(*testCluster)
		h.t.Cleanup(c.Close)
		h.c = c
	}
	return &lent{testCluster: h.c, h: h, t: t}
}

// A lent is a cluster for one test.
type lent struct {
	*testCluster
	h     *reused
	t     testing.TB
	ports []*port // of clients
}

// A lentNode remembers what it opens.
type lentNode struct {
	*node
	l *lent
}

func (l *lent) Node(i int) fabric.Node { return lentNode{l.Nodes[i], l} }

func (n lentNode) Open() (fabric.Port, error) {
	p, err := n.node.Open()
	if err == nil {
		n.l.ports = append(n.l.ports, p.(*port))
	}
	return p, err
}

// Close takes away what the test has left: its clients, messages that are still under way, what is in memory. After a
// failure the cluster is not used again.
func (l *lent) Close() {
	if l.t.Failed() {
		l.h.c = nil
		return
	}
	for _, p := range l.ports {
		if err := p.Close(); err != nil {
			l.t.Error(err)
		}
	}
	for _, n := range l.Nodes {
		n.Agent().ClearInterrupt()
		for _, to := range l.Nodes {
			if err := n.Agent().Send(to.Agent().ID(), &fabric.Message{Kind: lastMessage}); err != nil {
				l.t.Error(err)
			}
		}
	}
	for _, n := range l.Nodes {
		for last := 0; last < len(l.Nodes); {
			m, err := n.Agent().Recv(n.Now() + l.Patience())
			if err != nil {
				l.t.Fatal(err)
			}
			if m.Kind == lastMessage {
				last++
			}
		}
	}
	for _, p := range l.ports {
		p.n.Retire(p.ID())
	}
	for _, s := range l.Servers {
		clear(unsafe.Slice((*byte)(s.mem.at), s.o.Size))
	}
}

// lastMessage is behind all others from a node to another.
const lastMessage = fabric.MsgUser + 1<<20
