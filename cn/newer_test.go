package cn

import (
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/memory"
)

// A hooked node calls closing when one of its Ports is about to be closed, once.
type hooked struct {
	*fakeNode
	closing func()
}

type hookedPort struct {
	fabric.Port
	n *hooked
}

func (n *hooked) Open() (fabric.Port, error) {
	p, err := n.fakeNode.Open()
	return hookedPort{p, n}, err
}

func (p hookedPort) Close() error {
	if f := p.n.closing; f != nil {
		p.n.closing = nil
		f()
	}
	return p.Port.Close()
}

// What a goroutine has opened of a memory node may be older than what another has found meanwhile: that is no reason to join the cluster again.
func TestRegionFoundByAnother(t *testing.T) {
	f := newFake(1, memSize)
	format(t, f, 0, 3, 16)
	fab := &hooked{fakeNode: f.nodes[0]}
	n, err := Start(fab, Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	again := func(generation uint32) *memory.Region {
		f.mu.Lock()
		clear(f.mems[0])
		f.mu.Unlock()
		p, err := f.nodes[0].Open()
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if err := memory.Format(p, 0, memory.Params{Size: memSize, CapacityLog2: 3, VersionBits: 16, Generation: generation}); err != nil {
			t.Fatal(err)
		}
		r, err := memory.Open(p, 0)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	old := again(1)
	fab.closing = func() { // verify has opened the region
		if lost, err := n.replace(again(2)); !lost || err != nil {
			t.Errorf("another goroutine: %v, %v", lost, err)
		}
	}
	if g, err := n.verify(0); g != 2 || err != nil {
		t.Errorf("generation %d: %v", g, err)
	}
	if err := n.add(old); err != nil || n.Region(0).Generation() != 2 {
		t.Errorf("an older one: %v, generation %d", err, n.Region(0).Generation())
	}
	// Memory that does not count is one to join again for, as before.
	again(2)
	if _, err := n.verify(0); err == nil {
		t.Error("another memory of the same generation is taken in")
	}
}
