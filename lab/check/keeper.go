package check

import (
	"errors"
	"fmt"

	"github.com/declock/declock/btree"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/memory/reclaim"
	"github.com/declock/declock/objstore"
)

// A tended is a client of a store or tree that reclaims memory leaked by crashed nodes, as package declock does in the background.
type tended interface {
	Tend(view func() fabric.View) (busy bool, err error)
	Reclaim(view func() fabric.View) error
	Drain() error
	Leave() error
	Found() reclaim.Found
	Close()
}

// How often a keeper looks.
const (
	minKeepNs = 20 * fabric.Microsecond
	maxKeepNs = 10 * fabric.Millisecond
)

// tended returns a client of a node's store or tree, over a Port of a node.
func (w *world) tended(n, of *node, p fabric.Port) (tended, error) {
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

// startKeepers starts a keeper on each node. That of the witness looks for garbage all the time, whether or not anybody has died.
func (w *world) startKeepers() {
	for i, n := range w.nodes {
		witness := i == w.s.CNs && !w.s.loses() // a round that fails because memory is gone is tried again after seconds
		if witness {
			w.looking = true
		}
		w.c.Go(n.sim, fmt.Sprintf("keeper of cn%d", i+1), func(p fabric.Port) {
			if witness {
				defer func() { w.looking = false }()
				w.reclaimAll(i+1, p, func() bool { return w.working > 0 })
				return
			}
			w.keep(i+1, p, func() bool { return w.working > 0 || w.looking })
		})
	}
}

// keep tends a node's store or tree for as long as more says.
func (w *world) keep(cn int, p fabric.Port, more func() bool) {
	pause := minKeepNs
	for more() {
		k, err := w.tended(w.nodes[cn-1], w.nodes[cn-1], p)
		for err == nil && more() {
			var busy bool
			if busy, err = k.Tend(w.nodes[cn-1].sim.View); !busy {
				pause = minKeepNs
			}
			_ = p.Pause(p.Now() + pause)
			pause = min(pause*5/4, maxKeepNs)
		}
		if err != nil && !w.keeps(cn, "tend", err) {
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
		k, err := w.tended(w.nodes[cn-1], w.nodes[cn-1], p)
		if err == nil {
			err = k.Reclaim(w.nodes[cn-1].sim.View)
			k.Close()
		}
		if err != nil && !w.keeps(cn, "reclaim", err) {
			return
		}
		_ = p.Pause(p.Now() + minKeepNs)
	}
}

// keeps reports whether a keeper goes on after an error. One that nothing explains is an objection.
func (w *world) keeps(cn int, what string, err error) bool {
	switch {
	case errors.Is(err, objstore.ErrUnanswered), errors.Is(err, btree.ErrUnanswered), w.s.restarts() && w.ofRestart(err):
		return true
	case !w.excused(cn, err):
		w.object("keeper", fmt.Sprintf("cn%d: %s: %v", cn, what, err))
	}
	return false
}

// givesUp reports whether operations may have unknown outcomes, of which a node that lives keeps what they had.
func (s *Scenario) givesUp() bool { return s.restarts() || s.BreakNs > 0 || s.leavesBehind() }

// mayLose reports whether a fault may make memory nobody's.
func (s *Scenario) mayLose() bool {
	lose := s.givesUp()
	for cn := 1; cn <= s.CNs; cn++ {
		lose = lose || s.deadly(cn)
	}
	return lose
}

// keepOn starts keepers again on the nodes that live, until looking is false.
func (w *world) keepOn() {
	w.looking = true
	for cn := 1; cn <= w.s.CNs; cn++ {
		if !w.dead(cn) {
			w.c.Go(w.nodes[cn-1].sim, fmt.Sprintf("last keeper of cn%d", cn), func(p fabric.Port) {
				w.keep(cn, p, func() bool { return w.looking })
			})
		}
	}
}

// sweepUp has the witness find memory leaked by crashed nodes, while the others keep theirs; then all give theirs back.
func (w *world) sweepUp(p fabric.Port) bool {
	w.keepOn()
	witness := w.s.CNs + 1
	own := w.nodes[witness-1]
	k, err := w.tended(own, own, p)
	if err == nil {
		err = k.Reclaim(own.sim.View)
		if n := k.Found().Pieces; n > 0 && !w.s.mayLose() {
			w.object("keeper", fmt.Sprintf("%d pieces of memory were taken for garbage, and nobody has died", n))
		}
		k.Close()
	}
	w.looking = false
	if err != nil {
		w.object("keeper", fmt.Sprintf("memory leaked by crashed nodes is not found: %v", err))
		return false
	}
	_ = p.Pause(p.Now() + 2*maxKeepNs)
	for cn := 1; cn <= witness; cn++ {
		if w.dead(cn) {
			continue
		}
		// The lists are the node's, whoever's Port empties them.
		k, err := w.tended(w.nodes[cn-1], own, p)
		if err == nil {
			err = k.Drain()
		}
		if err != nil {
			w.object("keeper", fmt.Sprintf("drain of cn%d: %v", cn, err))
			return false
		}
		k.Close()
		if w.s.givesUp() && cn < witness {
			w.c.Kill(w.nodes[cn-1].sim) // what it does not know whether it has is nobody's then
		}
	}
	return true
}
