package objstore

import (
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/cas"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory/handle"
)

// A cutOff is a Port whose chains to backups fail from one of them on: the context of their operation has ended.
type cutOff struct {
	*sim.Port
	left int
}

// PostBackup implements fabric.Replicator.
func (p *cutOff) PostBackup(g *fabric.Replicas, i int, ops []fabric.Op) (fabric.Pending, error) {
	if p.left--; p.left < 0 {
		return 0, fabric.ErrInterrupted
	}
	return p.Port.PostBackup(g, i, ops)
}

// A client that leaves repairs the bucket in which its operation has failed: no compute node looks for that when one has left in order, since another may have its number
// before. If it cannot, it says so.
func TestLeaveSettles(t *testing.T) {
	for _, failed := range []bool{false, true} {
		w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 1<<20, 2, 3)
		cfg := w.config()
		cfg.Objects = 1
		s := w.open(0, cfg)
		second := w.client(0, s)
		p := &cutOff{w.port(1).(*sim.Port), 1 << 30}
		first, err := w.open(1, cfg).Client(cas.New(p, cas.Config{}))
		wantErr(t, "client", err, nil)
		wantErr(t, "set", first.Set(b("k"), b("1"), Options{}), nil)
		walkAll(t, second, w.cns[0].View)
		p.left = 1
		wantErr(t, "set", first.Set(b("k"), b("2"), Options{}), fabric.ErrUnknownOutcome)
		if !failed {
			p.left = 1 << 30
			wantErr(t, "leave", first.Leave(), nil)
		} else {
			wantErr(t, "leave", first.Leave(), ErrUnsettled)
		}
		r, err := second.Check(CheckOptions{Backups: true})
		if wantErr(t, "check", err, nil); r.Sound() == failed {
			t.Errorf("it has failed: %v; %v", failed, r)
		}
		w.c.Close()
	}
}

// A busyLeaver is a leaver whose compute node has something to do with locks so many times that it is asked.
type busyLeaver struct {
	lock.Locker
	left *int
}

func (l busyLeaver) Left(*uint64, func(fabric.Addr) bool) bool {
	*l.left--
	return *l.left < 0
}

// A client that closes a store, be it dropped or not, waits until its compute node has nothing more to do with locks there, and does not end the registration before.
func TestLeaveWaitsForLocks(t *testing.T) {
	for _, dropped := range []bool{false, true} {
		w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 4<<20, 2)
		p, left := w.port(0), 1<<30
		before := w.freeBytes(p)
		c, err := w.open(1, w.config()).Client(busyLeaver{cas.New(w.port(1), cas.Config{}), &left})
		wantErr(t, "client", err, nil)
		wantErr(t, "set", c.Set(b("k"), b("v"), Options{}), nil)
		drop := func() { wantErr(t, "drop", Stores.Drop(p, "test", w.mns, w.cns[0].View), nil) }
		if dropped {
			drop()
		}
		wantErr(t, "leave", c.Leave(), handle.ErrLocksLeft)
		if !dropped {
			drop()
		}
		if w.freeBytes(p) == before {
			t.Errorf("dropped before: %v: the memory is given back", dropped)
		}
		left = 3
		wantErr(t, "leave", c.Leave(), nil)
		if got := w.freeBytes(p); got != before {
			t.Errorf("dropped before: %v: %d bytes are free, want %d", dropped, got, before)
		}
		w.c.Close()
	}
}
