package cn_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/declock/declock/cn"
	"github.com/declock/declock/coordinator"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/tcp"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/mn"
)

// A hand is a cluster over TCP of a memory node and compute nodes whose agents do no operation by themselves.
type hand struct {
	t  *testing.T
	co *coordinator.Memory
}

func (x hand) serve() *tcp.MemoryServer {
	x.t.Helper()
	s, err := tcp.Serve(context.Background(), tcp.Options{Members: x.co, Insecure: true, Listen: "127.0.0.1:0", Size: 64 << 20})
	if err != nil {
		x.t.Fatal(err)
	}
	if _, err := mn.Start(s, mn.Config{Participants: 16}); err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() { s.Close() })
	return s
}

func (x hand) join(losses chan lock.Loss) *cn.Node {
	x.t.Helper()
	f, err := tcp.Join(context.Background(), tcp.Options{Members: x.co, Insecure: true, Listen: "127.0.0.1:0"})
	if err != nil {
		x.t.Fatal(err)
	}
	policy, err := hier.ParsePolicy("local-prefer")
	if err != nil {
		x.t.Fatal(err)
	}
	n, err := cn.Start(f, cn.Config{SyncIntervalNs: -1, Policy: policy, OnLoss: func(l lock.Loss) { losses <- l }})
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() { n.Close() })
	return n
}

func (x hand) session(n *cn.Node) *cn.Session {
	x.t.Helper()
	s, err := n.Session()
	if err != nil {
		x.t.Fatal(err)
	}
	return s
}

// A memory node restarts without its memory, and another compute node acquires the lock in the new one. The holder of the old one does no
// operation that would tell: at its release no client of its node is granted the old lock.
func TestLostLockIsNotHandedOver(t *testing.T) {
	for _, mode := range []lock.Mode{lock.Exclusive, lock.Shared} { // of the waiter
		ctx := context.Background()
		x := hand{t, coordinator.NewMemory(16)}
		losses := make(chan lock.Loss, 10)
		m := x.serve()
		a, b := x.join(losses), x.join(losses)
		at := fabric.At(0, 32<<20)
		holder, waiter := x.session(a), x.session(a)
		var h lock.Hold
		if err := holder.Acquire(ctx, &h, &lock.Request{Lock: at, Mode: lock.Exclusive}); err != nil {
			t.Fatal(err)
		}
		got := make(chan error, 1)
		go func() {
			var w lock.Hold
			got <- waiter.Acquire(ctx, &w, &lock.Request{Lock: at, Mode: mode})
		}()
		time.Sleep(20 * time.Millisecond) // it waits
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		m = x.serve()
		now := at.In(fabric.Generation(m.Epoch() - 1))
		other := x.session(b)
		var g lock.Hold
		for limit := time.Now().Add(20 * time.Second); ; {
			err := other.Acquire(ctx, &g, &lock.Request{Lock: now, Mode: lock.Exclusive})
			if err == nil {
				break
			}
			if time.Now().After(limit) {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		if err := holder.Release(&h, nil); !errors.Is(err, lock.ErrLost) {
			t.Errorf("Release of a lost lock: %v", err)
		}
		if err := <-got; !errors.Is(err, lock.ErrMemoryLost) {
			t.Errorf("a %v waiter of the holder's node, while another node has the lock: %v", mode, err)
		}
		select {
		case l := <-losses:
			if l.Token != h.Token {
				t.Errorf("told of %+v, and had token %v", l, h.Token)
			}
		case <-time.After(10 * time.Second):
			t.Error("no session was notified of the loss")
		}
		if err := other.Release(&g, nil); err != nil {
			t.Error(err)
		}
	}
}
