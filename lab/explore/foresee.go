package explore

import (
	"fmt"

	"github.com/declock/declock/fabric/sim"
)

// What follows on a choice is often known without executing it, which takes a run from the beginning: what happens on a compute node
// (a client goes on, its operation takes effect, a message arrives) goes by the node's part of the state, what everybody goes by, and
// the words of memory that it is about, and changes nothing else than that, and messages that are under way from there. So it is
// kept by how much the hash of the state changed, and what it had to do with. Where that leads to a state that need not be explored again,
// there is nothing to execute.

// A move is what came of a choice.
type move struct {
	delta uint64 // of the state's hash
	known uint64 // the same, without what oracles remember
	print *sim.Footprint
}

// maxMoves bounds what is kept, at some 300 bytes each.
const maxMoves = 2_000_000

// moveOf returns the hash of what a choice goes by, when the tally is up to date; 0: it may go by anything.
func (ex *explorer) moveOf(x choice) uint64 {
	var n *sim.Node
	h := uint64(0)
	switch x.kind {
	case chResume:
		n = ex.u.Ports()[x.a].Node()
		h = uint64(x.a)
	case chEffect, chPart:
		ch := ex.u.Chains[x.a]
		n = ch.Port().Node()
		h = fold(uint64(ch.Port().Index())<<8|uint64(x.part), ex.hashOf(ch.AppendWords))
	case chDeliver:
		p := &ex.u.Pairs[x.a]
		to := ex.u.Inbox(p.To)
		if to == nil {
			return 0
		}
		n = to.Node()
		h = ex.pairState(p)
	default:
		return 0
	}
	y := &ex.tally
	h = fold(fold(h, uint64(x.kind)), uint64(n.ID()))
	return fold(fold(fold(fold(h, y.all), y.judged), y.local[n.Index()]), y.sent[n.Index()])
}

// An untaken is a choice that is to be explored.
type untaken struct {
	choice int
	id     uint64 // explorer.idOf
	move   uint64 // explorer.moveOf
}

// foreseen reports whether a choice at a branch leads to a state that need not be explored; then it sleeps.
func (s *search) foreseen(b *branch, x untaken) bool {
	m, ok := s.moves[x.move]
	if !ok || x.move == 0 || s.cfg.Audit {
		return false
	}
	was, ok := s.visited[b.state+m.delta]
	if !ok {
		return false
	}
	var asleep sleepers
	for i := range b.asleep {
		if y := &b.asleep[i]; !y.print.Meets(m.print) {
			asleep |= s.bit(y.id)
		}
	}
	if was&^asleep != 0 {
		return false
	}
	if s.bit(x.id) != 0 {
		b.asleep = append(b.asleep, sleeper{x.id, m.print.Clone()})
	}
	s.report.Foreseen++
	return true
}

// next takes the next choice at a branch that has to be executed. It returns false if there is none.
func (s *search) next(b *branch) bool {
	for len(b.untried) > 0 {
		x := b.untried[0]
		b.untried = b.untried[1:]
		if !s.foreseen(b, x) {
			b.choice, b.move = x.choice, x.move
			return true
		}
	}
	return false
}

// foresees reports whether it is kept what comes of choices.
func (s *search) foresees() bool {
	return !s.cfg.NoStates && s.cfg.MaxSwitches == 0
}

// learn keeps what has come of the last choice of the path, or looks whether it is what it was before. (Not what oracles remember: two of
// their memories may be as good as one, and what follows on them, and yet be written differently then.)
func (s *search) learn(ex *explorer, b *branch) {
	if b.move == 0 || ex.u.Err() != nil {
		return
	}
	delta := ex.state() - b.state
	known := delta - (ex.tally.judged - b.judged)
	if was, ok := s.moves[b.move]; ok {
		if was.known != known || !was.print.Equal(&ex.u.Touched) {
			s.report.Audit = fmt.Sprintf("what follows on choice %d after %v goes by more than was thought", b.choice, Schedule{Choices: ex.taken})
		}
	} else if len(s.moves) < maxMoves {
		print := ex.u.Touched.Clone()
		s.moves[b.move] = move{delta, known, &print}
	}
}
