package btree

import (
	"errors"
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/fabrictest"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/cas"
)

// A besideWorld is a tree with a client whose chains to backups can be interrupted, and beside one of which the first of two backups can be promoted when the last alone has executed it.
type besideWorld struct {
	*world
	c    *Client
	left *interrupted
	p    *fabrictest.GoingOver
	over bool
}

func newBesideWorld(t *testing.T) *besideWorld {
	x := &besideWorld{world: newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 1<<20, 1, 3)}
	x.left = &interrupted{Port: x.port(0).(*sim.Port)}
	x.p = fabrictest.NewGoingOver(x.left)
	x.p.When, x.p.Over = fabrictest.Executed, func() {
		wantErr(t, "promote", x.world.c.PromoteTo(x.mns[0], 1), nil)
		x.over = true
	}
	c, err := x.open(0, x.tiny()).Client(&losing{attaching{cas.New(x.p, cas.Config{Plain: true}), x.cns[0]}})
	wantErr(t, "client", err, nil)
	x.c = c
	return x
}

// next has the last backup serve, and a client that has changed nothing there put another key.
func (x *besideWorld) next(what string) {
	x.t.Helper()
	x.world.c.KillMN(1)
	if err := x.c.Put([]byte("zz"), []byte("1")); err != nil {
		x.t.Errorf("%s: the next put: %v", what, err)
	}
	x.world.c.Close()
}

// An operation repairs on its way what another has left half done, or does so behind it, and the repair has reached one of two backups when the other serves. That is no change of the operation: it ends as it would without,
// and the next one is made, whatever serves by then.
func TestRepairThatReachesOneBackup(t *testing.T) {
	repaired := map[bool]int{}
	for left, hit := 1, true; hit; left++ {
		for _, insert := range []bool{true, false} {
			x := newBesideWorld(t)
			x.left.left = left
			for i := 0; i < 16 && x.left.left > 0; i++ { // until one is interrupted, or what there is to do behind it
				if i < 9 {
					_ = x.c.Put(fmt.Appendf(nil, "%02d", i), make([]byte, 16))
				} else {
					_ = x.c.Delete(fmt.Appendf(nil, "%02d", i-7))
				}
			}
			if hit = x.left.left <= 0; !hit {
				break
			}
			x.left.left = 0
			there := map[string]bool{}
			for _, pair := range all(t, x.c, Range{}) {
				there[pair[:2]] = true
			}
			x.p.Chain = 1
			for i := 0; i < 9 && !x.over; i++ {
				key, want := fmt.Appendf(nil, "%02d", i), ErrExists
				do := func() error { return x.c.Insert(key, []byte("2")) }
				if !insert {
					want, do = ErrNotFound, func() error { return x.c.Delete(key) }
				}
				if there[string(key)] != insert {
					continue
				}
				if err := do(); !errors.Is(err, want) || errors.Is(err, fabric.ErrUnknownOutcome) {
					t.Errorf("interrupted at chain %d: %s of %s: %v", left, map[bool]string{true: "insert", false: "delete"}[insert], key, err)
				}
			}
			if x.over {
				repaired[insert]++
				x.next(fmt.Sprintf("interrupted at chain %d", left))
			}
		}
	}
	if len(repaired) < 2 {
		t.Errorf("only %v have met something to repair", repaired)
	}
}

// What an operation repairs on its way has reached one of two backups when the other serves, and that of which nobody knows whether the repair has reached it serves next: the operation ends as it would without.
func TestRepairThatIsBegunAgain(t *testing.T) {
	x := newBesideWorld(t)
	for i := range 9 {
		wantErr(t, "put", x.c.Put(fmt.Appendf(nil, "%02d", i), make([]byte, 16)), nil)
	}
	gone := 2
	for ; x.c.stats.Emptied == 0; gone++ {
		x.left.left = 3 // the first chain to a backup of what there is to do behind it
		wantErr(t, "delete", x.c.Delete(fmt.Appendf(nil, "%02d", gone)), nil)
		x.left.left = 0
	}
	first := x.p.Over
	x.p.Chain, x.p.Lost, x.p.Over = 1, true, func() {
		first()
		x.p.Chain, x.p.Over = 1, func() { wantErr(t, "promote", x.world.c.PromoteTo(x.mns[0], 2), nil) }
	}
	for key := 2; key < gone && !x.over; key++ {
		if err := x.c.Delete(fmt.Appendf(nil, "%02d", key)); x.over {
			if !errors.Is(err, ErrNotFound) || errors.Is(err, fabric.ErrUnknownOutcome) || x.p.Chain == 1 {
				t.Errorf("delete of %02d: %v", key, err)
			}
		}
	}
	if !x.over {
		t.Error("nothing was repaired")
	}
}

// A put has reached one of two backups when the other serves, and that which it has reached serves when it is begun again: it meets a leaf then that another has left dead. It unlinks that, and ends at once: its outcome
// is unknown.
func TestRepairOnTheWayOfAChangeThatShows(t *testing.T) {
	w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 1<<20, 2, 3)
	defer w.c.Close()
	p := fabrictest.NewGoingOver(w.port(0))
	l := &relocking{losing: losing{attaching{cas.New(p, cas.Config{Plain: true}), w.cns[0]}}}
	c, err := w.open(0, w.tiny()).Client(l)
	wantErr(t, "client", err, nil)
	for i := range 9 {
		wantErr(t, "put", c.Put(fmt.Appendf(nil, "%02d", i), make([]byte, 16)), nil)
	}
	d := w.client(1, w.open(1, w.tiny()))
	p.Chain, p.When = 1, fabrictest.Executed
	p.Over = func() {
		wantErr(t, "promote", w.c.PromoteTo(w.mns[0], 1), nil)
		l.before = func() {
			w.c.KillMN(1)
			wantErr(t, "attach", d.l.Port().Reattach(w.mns[0], w.cns[1].MemoryEpoch(w.mns[0])), nil)
			for i := 3; d.stats.Emptied == 0 && i < 9; i++ {
				_ = d.remove(fmt.Appendf(nil, "%02d", i)) // and nothing of what there is to do behind it
			}
			d.jobs = d.jobs[:0]
		}
	}
	began := c.port.Now()
	wantErr(t, "put", c.Put([]byte("03"), make([]byte, 15)), fabric.ErrUnknownOutcome)
	if waited := c.port.Now() - began; waited > 5*fabric.Second {
		t.Errorf("it has waited for %v, and nothing more was to become of it", waited)
	}
	if d.stats.Emptied == 0 || c.stats.Unlinked == 0 {
		t.Errorf("%d leaves are dead, %d unlinked", d.stats.Emptied, c.stats.Unlinked)
	}
}

// A put splits a leaf, and what there is to do above that has reached one of two backups when the other serves. The put is made, and so is the next, whatever serves by then.
func TestSplitThatReachesOneBackup(t *testing.T) {
	for chain, over := 1, true; over; chain++ {
		x := newBesideWorld(t)
		x.p.Chain = chain
		for i := 0; i < 12 && !x.over; i++ {
			wantErr(t, fmt.Sprintf("chain %d: put", chain), x.c.Put(fmt.Appendf(nil, "%02d", i), make([]byte, 16)), nil)
		}
		if over = x.over; over {
			x.next(fmt.Sprintf("chain %d", chain))
		}
	}
}
