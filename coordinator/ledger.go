package coordinator

import (
	"fmt"
	"slices"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

// A ledger is what a coordinator knows, and the rules by which it changes:
// straight-line code without clock, goroutine or lock.
type ledger struct {
	maxCN    fabric.CNID
	revision uint64
	life     member.Life
	lost     uint64
	epochs   map[fabric.MemID]uint32
	nodes    []*entry // who has a number, by time of joining
}

// An entry is one life of a node, from the time that it gets its number to the
// time that everybody knows that it has gone.
type entry struct {
	cn    member.CN // of a compute node: ID is not 0
	mn    member.MN
	phase phase
	since uint64 // revision of the state with which the phase began
	acked uint64 // revision
}

// phase is where a life is.
type phase uint8

const (
	reserved phase = iota // has a number, and nobody else knows
	joined
	left // by itself
	died
)

func (e *entry) isCN() bool { return e.cn.ID != 0 }

func (e *entry) life() member.Life {
	if e.isCN() {
		return e.cn.Life
	}
	return e.mn.Life
}

func (e *entry) gone() bool { return e.phase == left || e.phase == died }

// reserveCN gives out the lowest number that nobody has.
func (l *ledger) reserveCN(addr string) (*entry, error) {
	for id := fabric.CNID(1); id <= l.maxCN && id != 0; id++ {
		if slices.ContainsFunc(l.nodes, func(e *entry) bool { return e.cn.ID == id }) {
			continue
		}
		l.life++
		e := &entry{cn: member.CN{ID: id, Life: l.life, Addr: addr}}
		l.nodes = append(l.nodes, e)
		return e, nil
	}
	return nil, fmt.Errorf("%w: there are %d", member.ErrFull, l.maxCN)
}

// reserveMN gives out the number of a memory node, in a new epoch.
func (l *ledger) reserveMN(id fabric.MemID, size uint64, addr string) (*entry, error) {
	for _, e := range l.nodes {
		if !e.isCN() && e.mn.ID == id && !e.gone() {
			return nil, fmt.Errorf("%w: %v at %s", member.ErrInUse, id, e.mn.Addr)
		}
	}
	l.life++
	l.epochs[id]++
	e := &entry{mn: member.MN{ID: id, Life: l.life, Addr: addr, Size: size, Epoch: l.epochs[id]}}
	l.nodes = append(l.nodes, e)
	return e, nil
}

// join makes a reserved life a member.
func (l *ledger) join(e *entry) {
	l.revision++
	e.phase, e.since = joined, l.revision
}

// end ends a life: p is left or died. One that nobody knows of yet leaves no trace.
func (l *ledger) end(e *entry, p phase) {
	switch e.phase {
	case reserved:
		e.phase = p
		l.remove(e)
	case joined:
		l.revision++
		e.phase, e.since = p, l.revision
		l.settle()
	}
}

func (l *ledger) remove(e *entry) {
	l.nodes = slices.DeleteFunc(l.nodes, func(x *entry) bool { return x == e })
}

// ack notes that a member acts on all states up to a revision.
func (l *ledger) ack(e *entry, revision uint64) {
	e.acked = max(e.acked, min(revision, l.revision))
	l.settle()
}

// known tells whether all members have acknowledged a revision.
func (l *ledger) known(revision uint64) bool {
	return !slices.ContainsFunc(l.nodes, func(e *entry) bool { return e.phase == joined && e.acked < revision })
}

// settle lets go of those who have gone and of whom all members know: memory
// nodes first, for while one may still be used by somebody, nobody is shut out of it.
func (l *ledger) settle() {
	for _, e := range slices.Clone(l.nodes) {
		if e.gone() && !e.isCN() && l.known(e.since) {
			l.remove(e)
		}
	}
	if slices.ContainsFunc(l.nodes, func(e *entry) bool { return e.gone() && !e.isCN() }) {
		return
	}
	for _, e := range slices.Clone(l.nodes) {
		if !e.gone() || !l.known(e.since) {
			continue
		}
		l.remove(e)
		l.revision++
		if e.phase == died {
			l.lost++
		}
	}
}

// state returns the present state.
func (l *ledger) state() *member.State {
	s := &member.State{Revision: l.revision, Lost: l.lost}
	for _, e := range l.nodes {
		switch {
		case e.isCN() && e.phase == joined:
			s.CNs = append(s.CNs, e.cn)
		case e.isCN() && e.gone():
			s.Fencing = append(s.Fencing, e.cn)
		case !e.isCN() && e.phase == joined:
			s.MNs = append(s.MNs, e.mn)
		}
	}
	for id, epoch := range l.epochs {
		if !slices.ContainsFunc(s.MNs, func(m member.MN) bool { return m.ID == id }) {
			s.Down = append(s.Down, member.MN{ID: id, Epoch: epoch})
		}
	}
	sortState(s)
	return s
}

// sortState puts the lists of a state into order.
func sortState(s *member.State) {
	byID := func(a, b member.CN) int { return int(a.ID) - int(b.ID) }
	slices.SortFunc(s.CNs, byID)
	slices.SortFunc(s.Fencing, byID)
	for _, mns := range [][]member.MN{s.MNs, s.Down} {
		slices.SortFunc(mns, func(a, b member.MN) int { return int(a.ID) - int(b.ID) })
	}
}
