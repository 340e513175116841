package fiss

import (
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
)

// passesOn makes a cluster in which machines 2 and 3 have joined and 0, which holds a lock, and 1 have gone, before any of the new ones makes its Pool. It returns the view of before they went.
func passesOn(t *testing.T, cfg Config) (w *world, before int) {
	w = newWorld(t, cfg, 0)
	w.starts(2)
	gone := w.wants(w.machines[0])
	if w.calms(); gone.phase != holds {
		t.Fatalf("before: %+v", gone)
	}
	w.joins(w.machines[2])
	w.joins(w.machines[3])
	before = len(w.views) - 1
	w.goes(w.machines[0], 0)
	w.goes(w.machines[1], 0)
	return w, before
}

// free fails if a machine does not get the lock of the one that has gone.
func (w *world) free(t *testing.T) {
	t.Helper()
	w.calms()
	next := w.wants(w.machines[3])
	if w.calms(); next.phase != holds {
		t.Errorf("%+v, %d rounds", next, w.program.rounds)
	}
}

// A machine that joins says so anew until it has the switch's answer to that: what was lost is sent by the agent.
func TestJoinIsSentAnew(t *testing.T) {
	w, _ := passesOn(t, Config{ResendNs: 10})
	for _, m := range w.machines {
		m.at = len(w.views) - 1
	}
	w.admits()
	for _, x := range w.under {
		if x.Kind != msgJoin {
			t.Errorf("%+v is sent", x)
		}
	}
	w.under = nil // lost
	for _, m := range w.machines[2:] {
		m.handle(w.agent(m), &fabric.Message{Kind: msgJoined, Body: [7]uint64{2: uint64(m.key) + 1}}) // to another that had its number
		if !m.joining {
			t.Error("a machine takes the answer to another")
		}
	}
	w.free(t)
}

// A view that changes while a Pool is made is news to it.
func TestViewChangesWhileThePoolIsMade(t *testing.T) {
	w, before := passesOn(t, Config{})
	for _, m := range w.machines[2:] {
		m.at = before
		looks := 0
		m.Pool = NewPool(changing{begun{w: w, m: m}, func() {
			if looks++; looks == 2 {
				m.at = len(w.views) - 1
			}
		}}, w.cfg)
		m.at = len(w.views) - 1
		m.runs = true
		m.viewed(w.agent(m))
		m.alone(w.agent(m))
		m.join(w.agent(m))
	}
	w.free(t)
}

// changing is a node whose view may change when it is looked at.
type changing struct {
	begun
	looks func()
}

func (c changing) View() fabric.View {
	c.looks()
	return c.begun.View()
}

// The switch's answer to a machine that joins is no frame of an acknowledged stream, whatever nodes are live.
func TestAnswerToJoinIsNoFrame(t *testing.T) {
	for _, far := range [][]fabric.CNID{{100}, {200}, {230}, {250}, {224, 225, 240}} {
		t.Run(fmt.Sprint(far), func(t *testing.T) {
			w := newWorld(t, Config{ResendNs: 10, Acks: true}, 0)
			w.starts(2)
			w.wants(w.machines[0])
			w.calms()
			v := fabric.View{Epoch: 50}
			for _, cn := range append(far, switchAt, 4) {
				v.Live.Add(cn)
			}
			m := w.machines[2]
			m.cn, m.incarnation, m.live, m.runs, m.at = 4, 4, true, true, len(w.views)-1
			m.Pool = NewPool(of{cn: 4, v: v}, w.cfg)
			w.views[m.at].Live.Add(4)
			for _, gone := range w.machines[:2] {
				gone.live, gone.runs = false, false
			}
			w.under = nil
			for range 20 {
				w.now += 50 * recoverNs
				m.join(w.agent(m))
				for len(w.under) > 0 && m.lead == nil {
					x := w.under[0]
					w.under = w.under[1:]
					w.deliver(x)
				}
			}
			if m.lead == nil || m.joining {
				t.Errorf("leads %v, is joining %v", m.lead != nil, m.joining)
			}
		})
	}
}

// of is a node with one view.
type of struct {
	fabric.Node
	cn fabric.CNID
	v  fabric.View
}

func (n of) ID() fabric.CNID   { return n.cn }
func (n of) View() fabric.View { return n.v }
