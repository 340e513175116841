package check

import (
	"errors"
	"fmt"

	"github.com/declock/declock/btree"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/memory/reclaim"
	"github.com/declock/declock/objstore"
)

// A reclaimer is a client of a store or tree that reclaims memory leaked by crashed nodes, as package declock does in the background.
type reclaimer interface {
	ReclaimStep(view func() fabric.View) (busy bool, err error)
	Reclaim(view func() fabric.View) error
	Drain() error
	Found() reclaim.Found
	Close()
}

// How often a reclaimer looks.
const (
	minReclaimNs = 20 * fabric.Microsecond
	maxReclaimNs = 10 * fabric.Millisecond
	openWithinNs = 3 * fabric.Millisecond
	// openReclaimNs is how often one looks where slots open, which takes several epochs.
	openReclaimNs = 50 * fabric.Microsecond
)

// reclaimer returns a client of a node's store or tree, over a Port of a node.
func (w *world) reclaimer(n, of *node, p fabric.Port) (reclaimer, error) {
	if n.tree != nil {
		t, err := n.tree.Client(w.locker(of, p))
		if err != nil {
			return nil, err
		}
		return t, nil
	}
	st, err := n.store.Client(w.locker(of, p))
	if err != nil {
		return nil, err
	}
	return st, nil
}

// startReclaimers starts a reclaimer on each node. That of the witness reclaims all the time, whether or not a node has crashed.
func (w *world) startReclaimers() {
	for i, n := range w.nodes {
		witness := i == w.s.CNs && !w.s.loses() && w.s.Copies == 0 && (w.s.Open == 0 || w.s.Seed%4 == 0) // a round that fails because memory is gone is tried again after seconds
		if witness {
			w.looking = true
		}
		w.c.Go(n.sim, fmt.Sprintf("keeper of cn%d", i+1), func(p fabric.Port) {
			if witness {
				defer func() { w.looking = false }()
				w.reclaimAll(i+1, p, func() bool { return w.working > 0 })
				return
			}
			w.reclaim(i+1, p, func() bool { return w.working > 0 || w.looking })
		})
	}
}

// reclaim reclaims memory for a node's store or tree for as long as more says.
func (w *world) reclaim(cn int, p fabric.Port, more func() bool) {
	pause := minReclaimNs
	for more() {
		k, err := w.reclaimer(w.nodes[cn-1], w.nodes[cn-1], p)
		for err == nil && more() {
			var busy bool
			if busy, err = k.ReclaimStep(w.nodes[cn-1].sim.View); !busy && w.s.Side == 0 {
				pause = minReclaimNs
			}
			_ = p.Pause(p.Now() + pause)
			most := maxReclaimNs
			if w.s.Open > 0 && w.c.Now() < openWithinNs {
				most = openReclaimNs
			}
			pause = min(pause*5/4, most)
		}
		if err != nil && !w.toleratesReclaim(cn, "tend", err) {
			return
		}
		if k != nil {
			k.Close()
		}
		_ = p.Pause(p.Now() + pause)
	}
}

// reclaimAll looks for garbage for as long as more says.
func (w *world) reclaimAll(cn int, p fabric.Port, more func() bool) {
	for more() {
		k, err := w.reclaimer(w.nodes[cn-1], w.nodes[cn-1], p)
		if err == nil {
			err = k.Reclaim(w.nodes[cn-1].sim.View)
			k.Close()
		}
		if err != nil && !w.toleratesReclaim(cn, "reclaim", err) {
			return
		}
		_ = p.Pause(p.Now() + minReclaimNs)
	}
}

// toleratesReclaim reports whether a reclaimer goes on after an error. One that nothing explains is an objection.
func (w *world) toleratesReclaim(cn int, what string, err error) bool {
	switch {
	case errors.Is(err, objstore.ErrUnanswered), errors.Is(err, btree.ErrUnanswered), w.s.restarts() && w.ofRestart(err):
		return true
	case !w.excused(cn, err):
		w.object("keeper", fmt.Sprintf("cn%d: %s: %v", cn, what, err))
	}
	return false
}

// givesUp reports whether operations may have unknown outcomes, of which a live node keeps what they had.
func (s *Scenario) givesUp() bool { return s.restarts() || s.BreakNs > 0 || s.leavesBehind() }

// mayLose reports whether a fault may leak memory.
func (s *Scenario) mayLose() bool {
	lose := s.givesUp()
	for cn := 1; cn <= s.CNs; cn++ {
		lose = lose || s.deadly(cn)
	}
	return lose
}

// reclaimOn starts reclaimers again on the live nodes, until looking is false.
func (w *world) reclaimOn() {
	w.looking = true
	for cn := 1; cn <= w.s.CNs; cn++ {
		if !w.dead(cn) {
			w.c.Go(w.nodes[cn-1].sim, fmt.Sprintf("last keeper of cn%d", cn), func(p fabric.Port) {
				w.reclaim(cn, p, func() bool { return w.looking })
			})
		}
	}
}

// reclaimOnWitness is reclaimOn for the witness.
func (w *world) reclaimOnWitness() {
	w.c.Go(w.nodes[w.s.CNs].sim, "last keeper of the witness", func(p fabric.Port) {
		w.reclaim(w.s.CNs+1, p, func() bool { return w.looking })
	})
}

// sweepUp has the witness find memory leaked by crashed nodes, while the others keep theirs; then all give theirs back.
func (w *world) sweepUp(p fabric.Port) bool {
	w.reclaimOn()
	witness := w.s.CNs + 1
	own := w.nodes[witness-1]
	k, err := w.reclaimer(own, own, p)
	if err == nil {
		err = k.Reclaim(own.sim.View)
		if n := k.Found().Blocks; n > 0 && !w.s.mayLose() {
			w.object("keeper", fmt.Sprintf("%d blocks of memory were taken for leaked, and no node has crashed", n))
		}
		k.Close()
	}
	w.looking = false
	if err != nil {
		w.object("keeper", fmt.Sprintf("memory leaked by crashed nodes is not found: %v", err))
		return false
	}
	_ = p.Pause(p.Now() + 2*maxReclaimNs)
	for cn := 1; cn <= witness; cn++ {
		if w.dead(cn) {
			continue
		}
		// The lists are the node's, and any Port may empty them.
		k, err := w.reclaimer(w.nodes[cn-1], own, p)
		if err == nil {
			err = k.Drain()
		}
		if err != nil {
			w.object("keeper", fmt.Sprintf("drain of cn%d: %v", cn, err))
			return false
		}
		k.Close()
		if w.s.givesUp() && cn < witness {
			w.c.Kill(w.nodes[cn-1].sim) // memory of unknown outcome is leaked then, and can be found
		}
	}
	return true
}
