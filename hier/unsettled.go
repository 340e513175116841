package hier

import (
	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
)

// An unsettled lock is one that a client of this node gave up, or failed to acquire, by an operation that may still take
// effect: a frame that lies in the socket of a memory node that stands still, for example. Until it certainly does not, this node
// answers no reset of the lock: the next holder would see its data change under it. A chain of this node that was posted after
// the error and has been executed shows it (fabric.ErrUnknownOutcome).
type unsettled struct {
	locks map[fabric.Addr]uint64 // when each was marked, by marks
	marks uint64
}

// wholeNode stands for all locks of a memory node. No lock is at its first byte.
func wholeNode(mn fabric.MemID) fabric.Addr { return fabric.At(mn, 0) }

// unsettle marks a lock. It is called before the local lock is given up.
func (t *Table) unsettle(l fabric.Addr) {
	t.livesMu.Lock()
	defer t.livesMu.Unlock()
	u := &t.unsettled
	if u.locks == nil {
		u.locks = map[fabric.Addr]uint64{}
	}
	if _, ok := u.locks[l]; !ok && len(u.locks) >= maxStuck {
		l = wholeNode(l.MN())
	}
	u.marks++
	u.locks[l] = u.marks
}

// marks returns the number of marks so far. See settle.
func (t *Table) marks() uint64 {
	t.livesMu.Lock()
	defer t.livesMu.Unlock()
	return t.unsettled.marks
}

// settle removes the marks of locks on a memory node, those that are not younger than a number of marks.
func (t *Table) settle(mn fabric.MemID, marks uint64) {
	t.livesMu.Lock()
	defer t.livesMu.Unlock()
	for l, m := range t.unsettled.locks {
		if l.MN() == mn && m <= marks {
			delete(t.unsettled.locks, l)
		}
	}
}

// settled reports whether a lock has no mark.
func (t *Table) settled(l fabric.Addr) bool {
	t.livesMu.Lock()
	defer t.livesMu.Unlock()
	u := &t.unsettled
	if len(u.locks) == 0 {
		return true
	}
	_, marked := u.locks[l]
	_, all := u.locks[wholeNode(l.MN())]
	return !marked && !all
}

var _ cql.Participants = (*Agent)(nil)

// Settled implements cql.Participants.
func (a *Agent) Settled(l fabric.Addr) bool {
	if a.table.settled(l) {
		return true
	}
	a.onTrouble(l.MN())
	return false
}
