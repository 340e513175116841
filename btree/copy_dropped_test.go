package btree

import (
	"errors"
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/cas"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/memory/handle"
)

// A dropper is a Port that does something before, or after, its first CAS at the primary.
type dropper struct {
	*sim.Port
	before, after func()
}

func (p *dropper) Do(ops []fabric.Op) error {
	mine := ops[0].Kind == fabric.OpCAS
	if then := p.before; mine && then != nil {
		p.before = nil
		then()
	}
	err := p.Port.Do(ops)
	if then := p.after; mine && then != nil {
		p.after = nil
		then()
	}
	return err
}

// promote says that a new backup is in sync, and has it serve.
func (x *copyWorld) promote(number uint32) {
	x.t.Helper()
	g := x.group()
	wantErr(x.t, "synced", x.world.c.Change(member.Change{ID: g.ID, Kind: member.Synced, Host: g.Replicas[len(g.Replicas)-1].Host, Seen: g.Changed}), nil)
	for x.group().Replicas[0].Number != number {
		wantErr(x.t, "promote", x.world.c.Promote(g.ID), nil)
	}
}

// A backup is added, and copied to, while a Drop stands still before or after it takes the name away at the primary: a compute node that has the tree open hears of the drop when that backup serves.
func TestCopyWhileATreeIsDropped(t *testing.T) {
	for _, when := range []string{"before", "after"} {
		x := newCopyWorld(t, 1)
		d, err := x.open(1, x.config()).Client(&following{attaching{cas.New(x.port(1), cas.Config{Plain: true}), x.cns[1]}})
		wantErr(t, "client", err, nil)
		wantErr(t, "put", d.Put(keyOf(1), make([]byte, 500)), nil)
		var number uint32
		then := func() {
			to := x.add()
			x.copyAll(to)
			number = to.Number
		}
		p := &dropper{Port: x.port(1).(*sim.Port)}
		if when == "before" {
			p.before = then
		} else {
			p.after = then
		}
		wantErr(t, "drop", Trees.Drop(p, "test", x.mns, x.cns[1].View), nil)
		if number == 0 {
			t.Fatal("no backup was added")
		}
		x.promote(number)
		_, err = d.ReclaimStep(x.cns[1].View)
		wantErr(t, fmt.Sprintf("step, after a copy %s the name went", when), err, ErrDropped)
	}
}

// What was in a dropped tree is not copied to a new backup. When that serves, operations of a compute node that has not heard of the drop are ErrDropped, and not ErrCorrupt.
func TestDroppedIsNotCorrupt(t *testing.T) {
	for name, operate := range map[string]func(c *Client) error{
		"get":    func(c *Client) error { _, err := c.Get(keyOf(1)); return err },
		"put":    func(c *Client) error { return c.Put(keyOf(1), make([]byte, 500)) },
		"delete": func(c *Client) error { return c.Delete(keyOf(1)) },
		"scan":   func(c *Client) error { return c.Each(Range{}, func(k, v []byte) bool { return true }) },
	} {
		x := newCopyWorld(t, 1)
		d, err := x.open(1, x.config()).Client(&following{attaching{cas.New(x.port(1), cas.Config{Plain: true}), x.cns[1]}})
		wantErr(t, "client", err, nil)
		for i := range 50 {
			wantErr(t, "put", d.Put(keyOf(i), make([]byte, 500)), nil)
		}
		wantErr(t, "drop", Trees.Drop(x.port(0), "test", x.mns, x.cns[0].View), nil)
		wantErr(t, "leave", x.c.Leave(), nil)
		to := x.add()
		x.copyAll(to)
		x.promote(to.Number)
		err = operate(d)
		for range 3 {
			if errors.Is(err, fabric.ErrUnknownOutcome) || err == nil {
				err = operate(d)
			}
		}
		if !errors.Is(err, ErrDropped) || errors.Is(err, ErrCorrupt) {
			t.Errorf("%s after a promotion: %v, want %v", name, err, ErrDropped)
		}
	}
}

// Others drop the tree that the copying compute node has open, and make another of its name: that one is copied, though this compute node has not seen the drop before.
func TestCopyOfAnotherOfTheName(t *testing.T) {
	x := newCopyWorld(t, 1)
	old := x.tree
	wantErr(t, "drop", Trees.Drop(x.port(1), "test", x.mns, x.cns[1].View), nil)
	x.tree = x.open(1, x.config())
	x.c = x.client(1, x.tree)
	x.model[string(keyOf(2))] = "new"
	wantErr(t, "put", x.c.Put(keyOf(2), []byte("new")), nil)
	to := x.add()
	l := cas.New(x.port(0), cas.Config{Plain: true})
	use := func(e *memory.Entry, f func(handle.Copied) error) error { // as declock.copier
		if !old.Dropped() {
			return f(old)
		}
		tree := x.open(0, x.config())
		return errors.Join(f(tree), tree.LeaveUnused(l))
	}
	wantErr(t, "copy", handle.CopyNumber(l, to, handle.CopyOptions{Use: use}), nil)
	if !old.Dropped() {
		t.Error("the copying compute node has not seen the drop")
	}
	x.inSync(to)
}
