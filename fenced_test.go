package declock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/coordinator"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/tcp"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/mn"
)

// A process that knows it is fenced passes no lock on from one of its sessions to another: another process holds it.
func TestFencedProcessHandsNothingOver(t *testing.T) {
	ctx := context.Background()
	co := coordinator.NewMemory(16)
	o := tcp.Options{Members: co, Insecure: true, Listen: "127.0.0.1:0"}
	so := o
	so.Size = 64 << 20
	srv, err := tcp.Serve(ctx, so)
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	if _, err := mn.Start(srv, mn.Config{Participants: 16}); err != nil {
		t.Fatal(err)
	}
	losses := make(chan lock.Loss, 10)
	open := func(options ...declock.Option) (*declock.Cluster, fabric.Node, *declock.Locks) {
		f, err := tcp.Join(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		c, err := declock.OpenNode(f, options...)
		if err != nil {
			t.Fatal(err)
		}
		l, err := c.Locks(ctx, "x", 4)
		if err != nil {
			t.Fatal(err)
		}
		return c, f, l
	}
	a, fa, la := open(declock.WithOnLoss(func(l lock.Loss) { losses <- l }))
	defer a.Close()
	b, _, lb := open()
	defer b.Close()
	g1, err := session(t, a).Lock(ctx, la.At(0))
	if err != nil {
		t.Fatal(err)
	}
	second, got := session(t, a), make(chan error, 1)
	go func() {
		_, err := second.Lock(ctx, la.At(0))
		got <- err
	}()
	time.Sleep(20 * time.Millisecond) // it waits; else it is refused all the same
	w, err := co.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	st, _ := w.State()
	co.Kill(st.CNs[0].Life)
	<-fa.(interface{ Fenced() <-chan struct{} }).Fenced()
	theirs, err := session(t, b).Lock(ctx, lb.At(0))
	if err != nil {
		t.Fatal(err)
	}
	if l := <-losses; l.Token != g1.Token() {
		t.Errorf("told of token %v, and had %v", l.Token, g1.Token())
	}
	if err := g1.Unlock(); !errors.Is(err, lock.ErrLost) {
		t.Errorf("Unlock: %v", err)
	}
	if err := <-got; err == nil {
		t.Errorf("a session of the fenced process was granted the lock beside token %v", theirs.Token())
	}
	if err := theirs.Unlock(); err != nil {
		t.Error(err)
	}
}
