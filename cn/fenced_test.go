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
	"github.com/declock/declock/lock"
	"github.com/declock/declock/mn"
)

// The fabric notifies a node that it is fenced: the node has no operation under way, and its agent does not synchronise the clock.
func TestFencedNodeIsNotified(t *testing.T) {
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
	f, err := tcp.Join(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	losses := make(chan lock.Loss, 10)
	n, err := cn.Start(f, cn.Config{SyncIntervalNs: -1, OnLoss: func(l lock.Loss) { losses <- l }})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	s, err := n.Session()
	if err != nil {
		t.Fatal(err)
	}
	var h lock.Hold
	if err := s.Acquire(ctx, &h, &lock.Request{Lock: fabric.At(0, 32<<20), Mode: lock.Exclusive}); err != nil {
		t.Fatal(err)
	}
	w, err := co.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	st, _ := w.State()
	co.Kill(st.CNs[0].Incarnation)
	select {
	case l := <-losses:
		if l.Token != h.Token || !errors.Is(l.Err, fabric.ErrFenced) {
			t.Errorf("told of %+v, and had token %v", l, h.Token)
		}
	case <-time.After(10 * time.Second):
		t.Error("the node was not notified that it is fenced")
	}
	if err := s.Release(&h, nil); !errors.Is(err, lock.ErrLost) {
		t.Errorf("Release: %v", err)
	}
}
