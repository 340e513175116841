package objstore

import (
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/cas"
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
