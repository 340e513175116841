package tcp

import (
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/fabrictest"
	"github.com/declock/declock/fabric/internal/peertest"
)

// A Port says that it is about to wait before it waits for a lane, or for the coordinator, and not before what this CPU executes: so that is how rarely contexts are watched.
func TestLocalDoesNotWait(t *testing.T) {
	g := localHarness{harness{change: lends}}.StartReplicated(t, fabrictest.Config{Mem: []uint64{1 << 20, 1 << 20}, CNs: 1}).(*group)
	defer g.Close()
	n := g.Nodes[0]
	p := peertest.Open(t, n).(*port)
	short := &remoteOf(n, 0).short
	peertest.Await(t, "memory is lent", func() bool { return short.local.Load() != nil })
	peertest.Do(t, p, fabric.FAA(peertest.Word, 1))
	waits := 0
	p.OnWait(func() { waits++ })
	l := short.local.Load()
	peertest.Do(t, p, fabric.FAA(peertest.Word, 1))
	if waits != 0 {
		t.Error("it waits for what it executes itself")
	}
	short.local.Store(nil)
	peertest.Do(t, p, fabric.FAA(peertest.Word, 1))
	short.local.Store(l)
	if waits == 0 {
		t.Error("nothing is said before it waits for a lane")
	}
	r, err := p.Replicas(0)
	if err != nil || r.N == 0 {
		t.Fatal(r, err)
	}
	waits = 0
	if err := p.DropBackup(&r, 0, false); err != nil || waits == 0 {
		t.Error("nothing is said before it waits for the coordinator: ", err)
	}
}
