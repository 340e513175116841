//go:build cgo && !shmonly

package verbs

import (
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peertest"
)

// add adds to a word of a memory node.
func add(p fabric.Port, mem int) error {
	return p.Do([]fabric.Op{fabric.FAA(fabric.At(fabric.MemID(mem), 64), 1)})
}

// A memory node that runs and does not act on states does not know which nodes have crashed: they could
// still write to it. So no node hears of the crash before that memory node is given up too and not in use any
// more; it hears of that, and joins again with its memory, in a new epoch. The others go on.
func TestSilentMemoryNodeIsCutOff(t *testing.T) {
	needDevice(t)
	const mems, silent = 4, 2
	c := newTestCluster(t)
	t.Cleanup(c.Close)
	for id := range mems {
		c.Serve(fabric.MemID(id), 1<<20)
	}
	for range 3 {
		c.Join()
	}
	p, err := c.Node(0).Open()
	if err != nil {
		t.Fatal(err)
	}
	for mem := range mems {
		if err := add(p, mem); err != nil {
			t.Fatalf("memory node %d: %v", mem, err)
		}
	}
	s := c.Servers[silent]
	s.peer.Mu.Lock() // it hangs; its device does not
	gone := c.Node(2).ID()
	c.Kill(2)
	for _, m := range c.State().CNs {
		if m.ID == gone {
			t.Errorf("%v is dead and a member", gone)
		}
	}
	if !c.Node(0).View().Live.Has(gone) {
		t.Error("the death is known, and a memory node has not acted on it")
	}
	c.Members.Now().Kill(s.peer.Own.Incarnation) // its lease has run out
	awaitView(t, c.Node(0), gone)
	for i := range 2 {
		if r := remoteOf(c.Nodes[i], silent); r.Up.Load() {
			t.Errorf("cn%d knows of the death and still uses a memory node that does not", i+1)
		}
	}
	for mem := range mems {
		switch err := add(p, mem); {
		case mem != silent && err != nil:
			t.Errorf("memory node %d: %v", mem, err)
		case mem == silent && !errors.Is(err, fabric.ErrNodeDown):
			t.Errorf("the silent memory node: %v", err)
		}
	}
	was := s.peer.Own.Epoch
	s.peer.Mu.Unlock()
	peertest.Await(t, "the memory node has joined again", func() bool { return s.Away() == nil && s.Epoch() > was })
	c.AwaitMN(s)
	if err := add(p, silent); !errors.Is(err, fabric.ErrStaleEpoch) {
		t.Errorf("a Port of before: %v", err)
	}
	if err := p.Reattach(silent, s.Epoch()); err != nil {
		t.Fatal(err)
	}
	if err := add(p, silent); err != nil {
		t.Errorf("in the new epoch: %v", err)
	}
	if v := s.Word(64).Load(); v != 2 {
		t.Errorf("the word is %d: 1 of the epoch before and 1 of this one is 2", v)
	}
}
