package btree

import (
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/memory"
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

// A failing is a Port of which all fails after some chains.
type failing struct {
	*sim.Port
	left *int
}

func (p failing) Do(ops []fabric.Op) error { return p.try(func() error { return p.Port.Do(ops) }) }

func (p failing) Wait(x fabric.Pending) error { return p.try(func() error { return p.Port.Wait(x) }) }

func (p failing) try(do func() error) error {
	if *p.left--; *p.left < 0 {
		return fabric.ErrInterrupted
	}
	return do()
}

// An Open that fails after any of its chains leaves the compute node not registered, as soon as it can be reached again.
func TestOpenThatFailsIsNotRegistered(t *testing.T) {
	for _, copies := range []int{0, 2} {
		registered := 0
		for k, all := 0, false; !all; k++ {
			w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 1<<20, 2, copies)
			c := w.client(0, w.open(0, w.config()))
			var creating memory.Creating
			cfg, left := w.config(), k
			cfg.Creating = &creating
			_, err := Open(failing{w.port(1).(*sim.Port), &left}, cfg)
			if all = err == nil; all {
				break
			}
			wantErr(t, "open", err, fabric.ErrInterrupted)
			if on, err := c.OpenOn(); err != nil || len(on) > 0 {
				registered++
			}
			r := c.t.h.Parts[0].Region
			if creating.Left(r.Memory()) {
				wantErr(t, "free", r.FreeLeft(w.port(1), &creating), nil)
			}
			on, err := c.OpenOn()
			if wantErr(t, "open on", err, nil); len(on) > 0 || creating.Left(r.Memory()) {
				t.Errorf("%d copies, failed after chain %d: open on %v", copies, k, on)
			}
			w.c.Close()
		}
		if registered == 0 {
			t.Errorf("%d copies: no Open has failed when it was registered", copies)
		}
	}
}
