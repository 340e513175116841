package btree

import (
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
)

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
	for it.Next() {
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
