//go:build !shmonly

package etcd_test

import (
	"sync"
	"testing"
	"time"
)

// A gate is where forwarding stops while it is shut.
type gate struct {
	mu   sync.Mutex
	open *sync.Cond
	shut bool
}

func newGate() *gate {
	g := &gate{}
	g.open = sync.NewCond(&g.mu)
	return g
}

func (g *gate) pass() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.shut {
		g.open.Wait()
	}
}

func (g *gate) set(shut bool) {
	g.mu.Lock()
	g.shut = shut
	g.mu.Unlock()
	g.open.Broadcast()
}

// TestHungEndpoint: of several members of etcd one hangs: it neither answers nor breaks its connections. Nodes renew
// their leases by another, and no node is declared dead.
func TestHungEndpoint(t *testing.T) {
	if testing.Short() {
		t.Skip("a member hangs for longer than leases last")
	}
	t.Parallel()
	s := start(t)
	hung, well := startProxy(t, s.Endpoint()), startProxy(t, s.Endpoint())
	t.Cleanup(func() { hung.gate.set(false) })
	o := options(hung.endpoint(), "test")
	o.Endpoints = append(o.Endpoints, well.endpoint())
	var members []interface{ Done() <-chan struct{} }
	for range 4 {
		members = append(members, joinCN(t, connect(t, o)))
	}
	hung.gate.set(true)
	away := time.NewTimer(2*o.TTL + o.TTL/2)
	defer away.Stop()
	select {
	case <-away.C:
		return
	case <-members[0].Done():
	case <-members[1].Done():
	case <-members[2].Done():
	case <-members[3].Done():
	}
	t.Fatal("a member was taken for dead")
}
