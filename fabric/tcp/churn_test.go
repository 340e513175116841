package tcp

import (
	"context"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peertest"
)

// Compute nodes and memory nodes come and go; on a node that stays no operation and no message fails.
func TestChurnUnderLoad(t *testing.T) {
	c := newTestCluster(t)
	t.Cleanup(c.Close)
	c.Serve(0, 1<<20)
	steady := []*node{c.Join(), c.Join()}
	var stop atomic.Bool
	var done [4]uint64
	var ids [4]fabric.ClientID
	var ports [4]fabric.Port
	for i := range ports {
		ports[i] = peertest.Open(t, steady[i%2])
		ids[i] = ports[i].ID()
	}
	for i, p := range ports {
		c.Go(p, func(p fabric.Port) {
			m := fabric.Message{Kind: fabric.MsgUser}
			for n := uint64(0); !stop.Load(); n++ {
				ops := []fabric.Op{fabric.FAA(fabric.At(0, uint64(64+8*i)), 1)}
				if err := p.Do(ops); err != nil || ops[0].Old != n {
					t.Errorf("operation %d returned %d, %v", n, ops[0].Old, err)
					return
				}
				m.Body[0] = n
				if err := p.Send(ids[i^1], &m); err != nil {
					t.Errorf("message %d: %v", n, err)
					return
				}
				done[i]++
				if got, err := p.Recv(p.Now() + patienceTime); (err != nil || got.Body[0] != n) && !stop.Load() {
					t.Errorf("message %d: %+v, %v", n, got, err)
					return
				}
			}
		})
	}
	rounds := 15
	if testing.Short() {
		rounds = 4
	}
	for round := range rounds {
		n, err := Join(context.Background(), c.options())
		if err != nil {
			t.Fatal(err)
		}
		p := peertest.Open(t, n)
		peertest.Do(t, p, fabric.FAA(fabric.At(0, 8), 1))
		if err := p.Send(fabric.AgentOf(steady[0].ID()), &fabric.Message{Kind: fabric.MsgUser}); err != nil {
			t.Error(err)
		}
		o := c.options()
		o.Mem, o.Size = 1, 1<<16
		s, err := Serve(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		q := peertest.Open(t, steady[1])
		peertest.Await(t, "the new memory node can be used", func() bool { return q.Do([]fabric.Op{fabric.FAA(fabric.At(1, 64), 1)}) == nil })
		if round%2 == 0 {
			c.Members.Now().Kill(n.(*node).Own.Incarnation)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}
	stop.Store(true)
	for i := range ids { // clients that wait for a message that will not come
		_ = steady[i%2].Agent().Send(ids[i], &fabric.Message{Kind: fabric.MsgUser})
	}
	c.Wait()
	for i, n := range done {
		if n == 0 {
			t.Errorf("client %d did nothing", i)
		}
	}
}

// A cluster that is closed leaves no goroutine, descriptor or mapping behind.
func TestCloseGivesEverythingBack(t *testing.T) {
	use := func() {
		c := newTestCluster(t)
		c.Serve(0, 1<<20)
		c.Serve(1, 1<<20)
		a, b := c.Join(), c.Join()
		p, q := peertest.Open(t, a), peertest.Open(t, b)
		peertest.Do(t, p, fabric.FAA(fabric.At(0, 64), 1))
		peertest.Do(t, q, fabric.FAA(fabric.At(1, 64), 1))
		for from, to := range map[fabric.Port]fabric.Port{p: q, q: p} {
			if err := from.Send(to.ID(), &fabric.Message{Kind: fabric.MsgUser}); err != nil {
				t.Fatal(err)
			}
			if _, err := to.Recv(to.Now() + patienceTime); err != nil {
				t.Fatal(err)
			}
		}
		c.Members.Now().Kill(b.Own.Incarnation)
		c.Close()
	}
	count := func() (goroutines, fds, maps int) {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip(err)
		}
		text, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Skip(err)
		}
		return runtime.NumGoroutine(), len(list), strings.Count(string(text), "\n")
	}
	use()
	goroutines, fds, maps := count()
	for range 10 {
		use()
	}
	peertest.Await(t, "all is given back", func() bool {
		g, f, m := count()
		return g <= goroutines && f <= fds && m < maps+20
	})
}
