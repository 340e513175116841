//go:build race

package shm

import (
	"context"
	"testing"

	"github.com/declock/declock/fabric"
)

// A message orders what its sender did before with what its receiver does after it, also when it comes while the receiver is already taking
// others: two compute nodes of one process hand a lock over by such a message.
func TestRaceMessageDuringDrain(t *testing.T) {
	o := Options{Name: "race", Dir: t.TempDir(), Size: 1 << 20, Sparse: true}
	server, err := Serve(o)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	var nodes [2]*node
	for i := range nodes {
		n, err := Join(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		nodes[i] = n.(*node)
	}
	from, err := nodes[0].Open()
	if err != nil {
		t.Fatal(err)
	}
	to, err := nodes[1].Open()
	if err != nil {
		t.Fatal(err)
	}
	n := nodes[1]
	n.drainMu.Lock() // the pump takes nothing
	protected := 0
	id := to.ID()
	done := make(chan error, 1)
	go func() {
		protected = 1
		done <- from.Send(id, &fabric.Message{Kind: fabric.MsgUser})
	}()
	for {
		n.drainRing(nodes[0].id)
		if _, err := to.Recv(1); err == nil {
			break
		}
	}
	if protected != 1 { // the race detector sees whether this is ordered
		t.Errorf("protected is %d", protected)
	}
	n.drainMu.Unlock()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
