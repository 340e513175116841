package btree

import (
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/region"
)

// A tree is opened with one or two of its memory nodes down: each operation is ErrNodeDown until they are back, with or without their memory, and then it works,
// also for a client and an iterator that were opened before.
func TestOpenWithNodesDown(t *testing.T) {
	for _, down := range [][]int{{0}, {1}, {2}, {0, 1}, {1, 2}} {
		for _, keeps := range []bool{true, false} {
			openedWithNodesDown(t, down, keeps)
		}
	}
}

func openedWithNodesDown(t *testing.T, down []int, keeps bool) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 3, 16<<20, 3)
	before := w.client(0, w.open(0, w.config()))
	for i := range 100 {
		wantErr(t, "put", before.Put(keyOf(i), valueOf(i, 1)), nil)
	}
	for _, i := range down {
		w.c.KillMN(w.mns[i])
	}
	given := w.config()
	given.MaxKey, given.NodeSize, given.MaxInline = 0, 0, 0 // as the tree has it
	tree := w.open(1, given)
	if tree.MaxKey() != 16 || tree.Name() != "test" {
		t.Errorf("tree %q has keys to %d B", tree.Name(), tree.MaxKey())
	}
	view := func() fabric.View { return w.cns[1].View() }
	c := w.client(1, tree)
	it := c.Scan(Range{})
	_, err := c.Get(keyOf(1))
	wantErr(t, "get", err, fabric.ErrNodeDown)
	wantErr(t, "put", c.Put(keyOf(1), valueOf(1, 2)), fabric.ErrNodeDown)
	wantErr(t, "delete", c.Delete(keyOf(1)), fabric.ErrNodeDown)
	wantErr(t, "scan", c.Each(Range{}, func(_, _ []byte) bool { return true }), fabric.ErrNodeDown)
	_, err = c.Check(CheckOptions{})
	wantErr(t, "check", err, fabric.ErrNodeDown)
	wantErr(t, "reclaim", c.Reclaim(view), fabric.ErrNodeDown)
	_, err = c.Tend(view)
	wantErr(t, "tend", err, nil)
	idle := w.client(1, tree)
	wantErr(t, "leave", idle.Leave(), nil)
	for _, i := range down {
		if keeps {
			w.c.RestartServer(w.mns[i])
			continue
		}
		w.c.RestartMN(w.mns[i])
		wantErr(t, "format", region.Format(w.port(0), w.mns[i], region.Params{Size: 16 << 20, CapacityLog2: 3, VersionBits: 16, Birth: 1}), nil)
	}
	later := w.client(1, tree) // with a Port of after the restart
	if keeps {
		wantValue(t, later, string(keyOf(1)), string(valueOf(1, 1)))
	} else {
		wantMiss(t, later, string(keyOf(1)))
	}
	wantErr(t, "put", later.Put(keyOf(1), valueOf(1, 3)), nil)
	wantValue(t, later, string(keyOf(1)), string(valueOf(1, 3)))
	mustBeSound(t, later)
	it.Close()
	c.Close()
	wantErr(t, "leave", later.Leave(), nil)
}

// Clients and iterators that were opened while a memory node was down go on when it is back.
func TestClientsOfBeforeGoOn(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 2, 16<<20, 2)
	before := w.client(0, w.open(0, w.config()))
	for i := range 100 {
		wantErr(t, "put", before.Put(keyOf(i), valueOf(i, 1)), nil)
	}
	p := &downPort{Port: w.port(1), mn: w.mns[1]}
	tree, err := Open(p, w.config())
	wantErr(t, "open", err, nil)
	c, d := clientOn(t, tree, p), clientOn(t, tree, p)
	it := d.Scan(Range{})
	if it.Next() {
		t.Error("an iterator has keys of a tree that is down")
	}
	wantErr(t, "iterator", it.Err(), fabric.ErrNodeDown)
	it.Reset(Range{})
	p.up = true
	wantErr(t, "put", c.Put(keyOf(1), valueOf(1, 2)), nil)
	n := 0
	for it.Next() {
		n++
	}
	if wantErr(t, "iterator", it.Err(), nil); n != 100 {
		t.Errorf("%d keys, want 100", n)
	}
	it.Close()
	wantValue(t, d, string(keyOf(1)), string(valueOf(1, 2)))
	mustBeSound(t, d)
}

// A tree is not made while one of its memory nodes is down.
func TestMakeWithANodeDown(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 2, 16<<20, 1)
	w.c.KillMN(w.mns[1])
	_, err := Open(w.port(0), w.config())
	wantErr(t, "open", err, fabric.ErrNodeDown)
}

// A downPort does not reach a memory node until that is up.
type downPort struct {
	fabric.Port
	mn fabric.MemID
	up bool
}

func (p *downPort) Do(ops []fabric.Op) error {
	if !p.up && len(ops) > 0 && ops[0].Addr.MN() == p.mn {
		return &fabric.ChainError{Op: ops[0], Err: fabric.ErrNodeDown}
	}
	return p.Port.Do(ops)
}
