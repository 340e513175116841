package slab

import (
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/memory"
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
	a.growing.Try()
	item, err := a.get(0)
	if now := a.Port.Now(); err != nil || item == 0 || now < growPatience.All || now > growPatience.All+fabric.Millisecond {
		t.Errorf("block %#x at %d, error %v", item, now, err)
	}
	if !a.growing.taken.Load() {
		t.Error("the turn of another has ended")
	}

	b := w.beside(a)
	b.Port = impatient{b.Port}
	if item, err = b.get(1); !errors.Is(err, fabric.ErrInterrupted) || !a.growing.taken.Load() {
		t.Errorf("block %#x, error %v", item, err)
	}
	a.growing.End()
	if item, err = b.get(1); err != nil || item == 0 || a.growing.taken.Load() {
		t.Errorf("block %#x, error %v", item, err)
	}
}

// A client that has made room, and gets a block of a run that another has taken meanwhile, leaves the reserve to others when it takes its next run.
func TestReserveAfterAnothersRun(t *testing.T) {
	w := newWorld(t, 1)
	a := w.hand(0, 0)
	a.cfg.Reserve = 8 << 10
	a.fill(w, 1)
	a.growing.Try()
	a.Worker.collected, a.before = true, 0 // as Collect leaves it when others have used the reserve up
	w.c.GoOn(a.Port, "waits", func(fabric.Port) {
		if item, err := a.Grow(&a.Worker, 0, 0); err != nil || item != 1 {
			t.Errorf("block %#x, error %v", item, err)
		}
	})
	b := w.beside(a)
	w.c.GoOn(b.Port, "has taken a run", func(fabric.Port) { b.Keep(&b.Worker, 0, []uint64{1}) })
	w.want(w.c.Run())
	a.growing.End()
	if item, err := a.Grow(&a.Worker, 0, 0); !errors.Is(err, memory.ErrNoSpace) {
		t.Errorf("block %#x of the reserve, error %v", item, err)
	}
}

// An impatient user has no time for pauses.
type impatient struct{ fabric.Port }

func (impatient) Pause(fabric.Time) error { return fabric.ErrInterrupted }
