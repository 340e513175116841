//go:build cgo && !shmonly

package verbs

import (
	"context"
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peer"
	"github.com/declock/declock/internal/secure/securetest"
)

// With certificates instead of a secret a cluster works; no node is what its certificate does not say, and none gets queue pairs
// in the name of another member.
func TestMembersWithCertificates(t *testing.T) {
	needDevice(t)
	a := securetest.New(t)
	c := newTestCluster(t)
	t.Cleanup(c.Close)
	with := func(common string, names ...string) Options {
		c.change = func(o *Options) { o.Secret, o.TLS = nil, a.Config(common, names...) }
		return c.options()
	}
	with("memory-0", peer.NameMN)
	s := c.Serve(0, 1<<20)
	for _, name := range []string{"compute-1", "compute-2"} {
		with(name, peer.NameCN)
		c.Join()
	}
	if _, err := Join(context.Background(), with("memory-0", peer.NameMN)); !errors.Is(err, ErrOptions) {
		t.Errorf("a memory node's certificate as a compute node: %v", err)
	}
	serve := with("memory-1", peer.NameMN, "mn2.declock")
	serve.Mem, serve.Size = 1, 1<<20
	if _, err := Serve(context.Background(), serve); !errors.Is(err, ErrOptions) {
		t.Errorf("a memory node with another's certificate: %v", err)
	}
	n, other := c.Nodes[0], c.Nodes[1]
	if err := add(n.Agent(), 0); err != nil {
		t.Error(err)
	}
	if err := n.Agent().Send(other.Agent().ID(), &fabric.Message{Kind: fabric.MsgUser}); err != nil {
		t.Error(err)
	}
	for {
		m, err := other.Agent().Recv(other.Now() + 30*fabric.Second)
		if err != nil {
			t.Error(err)
		}
		if err != nil || m.Kind == fabric.MsgUser {
			break
		}
	}
	// Another member's certificate, in the name of the first.
	ask := func(to peer.Callee, kind string, request any) error {
		o := with("compute-2", peer.NameCN)
		x, err := dial(context.Background(), to, &o)
		if err != nil {
			return err
		}
		go x.run()
		defer func() { x.close(); <-x.done }()
		return x.call(context.Background(), kind, request, nil)
	}
	st, _ := n.State()
	self := peer.Caller{ID: n.Own.ID, From: n.Own.Incarnation, Revision: st.Revision}
	self.To = s.peer.Own.Incarnation
	if err := ask(peer.MemoryNode(s.ID(), s.peer.Own.Addr), askAttach, attachRequest{self, []end{{}}}); !errors.Is(err, ErrAuth) {
		t.Errorf("attaches in the name of another: %v", err)
	}
	self.To = other.Own.Incarnation
	if err := ask(peer.ComputeNode(other.Own), askLink, linkRequest{self, end{}}); !errors.Is(err, ErrAuth) {
		t.Errorf("a link in the name of another: %v", err)
	}
}
