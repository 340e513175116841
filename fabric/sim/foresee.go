package sim

import (
	"fmt"
	"slices"
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
	print *footprint
}

// maxMoves bounds what is kept, at some 300 bytes each.
const maxMoves = 2_000_000

// moveOf returns the hash of what a choice goes by, when the tally is up to date; 0: it may go by anything.
func (ex *explorer) moveOf(x choice) uint64 {
	var n *Node
	h := uint64(0)
	switch x.kind {
	case chResume:
		n = ex.c.ports[x.a].node
		h = uint64(ex.c.ports[x.a].index)
	case chEffect, chPiece:
		ch := ex.chains[x.a]
		n = ch.port.node
		op := &ch.ops[ch.cur]
		h = fold(uint64(ch.port.index)<<32|uint64(ch.qp.mn.id)<<8|uint64(x.piece), uint64(op.Addr))
		if m := &ch.qp.mn.mem; m.inBounds(op.Addr.Offset(), op.Size()) {
			h = fold(h, m.hash(op.Addr.Offset(), op.Size()))
		}
	case chDeliver:
		p := &ex.pairs[x.a]
		to := ex.c.inboxOf(p.to)
		if to == nil {
			return 0
		}
		n = to.node
		h = fold(uint64(p.from)<<32|uint64(p.to), ex.pairState(p))
	default:
		return 0
	}
	y := &ex.tally
	h = fold(fold(h, uint64(x.kind)), uint64(n.id))
	return fold(fold(fold(fold(h, y.all), y.judged), y.local[n.place]), y.sent[n.place])
}

// An untaken is a choice that is to be explored.
type untaken struct {
	choice int
	id     uint64 // explorer.idOf
	move   uint64 // explorer.moveOf
}

// foreseen tells whether a choice at a branch leads to a state that need not be explored; then it sleeps.
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
		if y := &b.asleep[i]; !y.print.meets(m.print) {
			asleep |= s.bit(y.id)
		}
	}
	if was&^asleep != 0 {
		return false
	}
	if s.bit(x.id) != 0 {
		b.asleep = append(b.asleep, sleeper{x.id, m.print.clone()})
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

// foresees tells whether it is kept what comes of choices.
func (s *search) foresees() bool {
	return !s.cfg.NoStates && s.cfg.Walks == 0 && s.cfg.MaxSwitches == 0
}

// learn keeps what has come of the last choice of the path, or looks whether it is what it was before. (Not what oracles remember: two of
// their memories may be as good as one, and what follows on them, and yet be written differently then.)
func (s *search) learn(ex *explorer, b *branch) {
	if b.move == 0 || ex.c.err != nil {
		return
	}
	delta := ex.state() - b.state
	known := delta - (ex.tally.judged - b.judged)
	if was, ok := s.moves[b.move]; ok {
		if was.known != known || !was.print.equal(&ex.print) {
			s.report.Audit = fmt.Sprintf("what follows on choice %d after %v goes by more than was thought", b.choice, Schedule{Choices: ex.taken})
		}
	} else if len(s.moves) < maxMoves {
		print := ex.print.clone()
		s.moves[b.move] = move{delta, known, &print}
	}
}

// equal tells whether two things have to do with the same.
func (f *footprint) equal(g *footprint) bool {
	return f.all == g.all && f.witnessed == g.witnessed && f.ports == g.ports && f.nodes == g.nodes && f.changed == g.changed &&
		f.sends == g.sends && f.shuts == g.shuts && slices.Equal(f.words, g.words)
}
