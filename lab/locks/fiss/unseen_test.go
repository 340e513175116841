package fiss

import (
	"fmt"
	"slices"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// wants has a client of a machine ask for the lock, and returns its ticket.
func (w *world) wants(m *machine) *ticket {
	return &m.slots[m.begin(post{w: w, m: m, id: fabric.Client(m.cn, 1)}, &lock.Request{Lock: theLock, Mode: lock.Exclusive})]
}

// All machines that have their Pools leave in order, and others have joined before, so many that none is alone, and make theirs afterwards: the switch says that others have had locks, one of which is free then. Nor is a
// lock granted to a machine that has gone, of which a packet is late.
func TestNobodyHasSeenWhoHasGone(t *testing.T) {
	for _, x := range []struct {
		joins [2]int
		late  bool
	}{{[2]int{2, 3}, false}, {[2]int{0, 3}, false}, {[2]int{2, 3}, true}} {
		t.Run(fmt.Sprint(x), func(t *testing.T) {
			w := newWorld(t, Config{}, 0)
			w.starts(2)
			old, other := w.machines[0], w.machines[1]
			gone := w.wants(old)
			late := slices.Clone(w.under)
			if w.under = nil; !x.late {
				w.under, late = late, nil
				if w.calms(); gone.phase != holds {
					t.Fatalf("before: %+v", gone)
				}
			}
			if x.joins[0] != 0 {
				w.joins(w.machines[x.joins[0]])
			}
			w.joins(w.machines[x.joins[1]])
			w.goes(old, 0)
			w.goes(other, 0)
			if x.joins[0] == 0 { // in the number of the holder, for which it asks nothing
				w.joins(old)
			}
			for _, m := range w.machines { // all know that before any makes its Pool
				m.at = len(w.views) - 1
			}
			w.calms()
			w.under = append(w.under, late...)
			w.calms()
			next := w.wants(w.machines[x.joins[1]])
			if w.calms(); next.phase != holds {
				t.Errorf("after: %+v, %d rounds", next, w.program.rounds)
			}
			if x.late != (w.program.rounds == 0) {
				t.Errorf("%d rounds", w.program.rounds)
			}
		})
	}
}

// Where no machine has gone those that join begin no recovery, whatever comes late.
func TestNobodyHasGone(t *testing.T) {
	w := newWorld(t, Config{}, 0)
	w.starts(2)
	holder := w.wants(w.machines[0])
	late := slices.Clone(w.under)
	w.calms()
	w.joins(w.machines[2])
	w.joins(w.machines[3])
	w.calms()
	w.wants(w.machines[3])
	w.under = append(w.under, late...)
	if w.calms(); holder.phase != holds || w.program.rounds != 0 {
		t.Errorf("%+v, %d rounds", holder, w.program.rounds)
	}
}

// A Pause of a leader that has gone stops no machine, also if another has its number: nobody would let it go on.
func TestPauseOfALeaderThatHasGone(t *testing.T) {
	for _, live := range []bool{false, true} {
		w := newWorld(t, Config{}, 0)
		w.starts(2)
		w.calms()
		m, leader := w.machines[0], w.machines[1]
		by := leader.incarnation - 1
		if live {
			by++
		}
		from := fabric.AgentOf(leader.cn)
		w.deliver(addressed{from, m.self, m.incarnation, fabric.Message{Kind: msgPause, From: from, Body: [7]uint64{2: 1, 3: by}}})
		if m.stopped != live {
			t.Errorf("of a live one, %v: it has stopped, %v", live, m.stopped)
		}
	}
}
