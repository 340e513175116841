package slab

import (
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
)

// beside returns another client of a hand's compute node.
func (w *world) beside(h *hand) *hand {
	p := w.port(0)
	x := &hand{Heap: h.Heap}
	x.Open(p, h.Member, p.Do)
	return x
}

// Clients of a compute node that want blocks at once take one run for all of them, and as many more as they need.
func TestClientsGrowOneByOne(t *testing.T) {
	for _, x := range []struct {
		name      string
		classes   uint8
		clients   int
		runs      uint64
		opsAtMost uint64
	}{
		{"as many as a run has", 1, 16, 1, 16*4 + 12},
		{"one more", 1, 17, 2, 17*4 + 2*12},
		{"of three classes", 3, 12, 3, 12*4 + 3*12},
	} {
		t.Run(x.name, func(t *testing.T) {
			w := newWorld(t, 1)
			hands := []*hand{w.hand(0, 0)}
			for len(hands) < x.clients {
				hands = append(hands, w.beside(hands[0]))
			}
			had := map[uint64]bool{}
			ops := uint64(0)
			for i, h := range hands {
				ops -= h.Port.Stats().Total()
				w.c.GoOn(h.Port, "grow", func(fabric.Port) {
					item, err := h.get(uint8(i) % x.classes)
					if err != nil || item == 0 || had[Off64(item)] {
						t.Errorf("block %#x, error %v", item, err)
					}
					had[Off64(item)] = true
				})
			}
			w.want(w.c.Run())
			runs := uint64(0)
			for _, h := range hands {
				ops += h.Port.Stats().Total()
				runs += h.Runs
			}
			if runs != x.runs || ops > x.opsAtMost {
				t.Errorf("%d runs with %d operations, want %d with %d", runs, ops, x.runs, x.opsAtMost)
			}
		})
	}
}

// A client waits so long for one that takes a run, and then takes one beside it; or until its user has no time left.
func TestClientGrowsBesideASlowOne(t *testing.T) {
	w := newWorld(t, 1)
	a := w.hand(0, 0)
	a.growing.Store(true)
	item, err := a.get(0)
	if now := a.Port.Now(); err != nil || item == 0 || now < turnWaitNs || now > turnWaitNs+fabric.Millisecond {
		t.Errorf("block %#x at %d, error %v", item, now, err)
	}
	if !a.growing.Load() {
		t.Error("the turn of another has ended")
	}

	b := w.beside(a)
	b.Port = impatient{b.Port}
	if item, err = b.get(1); !errors.Is(err, fabric.ErrInterrupted) || !a.growing.Load() {
		t.Errorf("block %#x, error %v", item, err)
	}
	a.growing.Store(false)
	if item, err = b.get(1); err != nil || item == 0 || a.growing.Load() {
		t.Errorf("block %#x, error %v", item, err)
	}
}

// An impatient user has no time for pauses.
type impatient struct{ fabric.Port }

func (impatient) Pause(fabric.Time) error { return fabric.ErrInterrupted }
