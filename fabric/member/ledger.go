package member

import (
	"fmt"
	"math"
	"slices"

	"github.com/declock/declock/fabric"
)

// A Ledger is what the coordinator of a cluster knows, and the rules by which that
// changes: which node may have which number, which nodes are shut out by memory nodes, and which must have
// acknowledged that before a node is forgotten. It is plain data and straight-line code, without clock,
// goroutine or lock, so that every coordinator, and the simulator, keeps to the same rules:
// some let a Ledger change, others make one of what they have read, to ask it.
//
// An incarnation goes through the phases of [Phase], in their order. Its methods panic on nothing; what does
// not follow the order changes nothing.
type Ledger struct {
	MaxCN    fabric.CNID             // compute nodes have the numbers from 1 to MaxCN
	Revision uint64                  // of the present state
	Last     Incarnation             // that was given out
	Lost     uint64                  // compute nodes that were declared dead and are forgotten
	Epochs   map[fabric.MemID]uint32 // the last of each memory node that ever was
	// Served has the last epoch of each in which its join succeeded.
	Served map[fabric.MemID]uint32
	// Forgotten are the memory nodes of Epochs that have gone and are not expected back.
	Forgotten map[fabric.MemID]bool
	// Groups are the configurations of the memory-node numbers that are replicated, also of those that were abandoned.
	Groups  map[fabric.MemID]*Group
	Entries []*Entry // incarnations that have a number, by the time of getting it
}

// An Entry is one incarnation of a node, from when it gets its number to when its number is free.
type Entry struct {
	CN    CN // of a compute node: its ID is not 0
	MN    MN // of a memory node
	Phase Phase
	Since uint64 // revision of the state with which the phase began; Unnoted
	Entry uint64 // revision of the state with which it became a member
	Acked uint64 // revision up to which it acts on all states
}

// Unnoted is the revision of an end that no state of the coordinator shows yet.
const Unnoted = math.MaxUint64

// Phase is how far an incarnation has got.
type Phase uint8

// The phases of an incarnation. One that has left or crashed is in Fencing until it is forgotten.
const (
	Reserved Phase = iota // has a number that others do not know of yet
	Joined                // is a member
	Left                  // has gone by itself
	Died                  // has gone otherwise
)

func (p Phase) String() string {
	if p <= Died {
		return [...]string{"reserved", "joined", "left", "died"}[p]
	}
	return fmt.Sprintf("Phase(%d)", uint8(p))
}

// NewLedger returns the ledger of a cluster without nodes. Compute nodes get the numbers from 1 to maxCN.
func NewLedger(maxCN fabric.CNID) *Ledger {
	return &Ledger{MaxCN: maxCN, Epochs: map[fabric.MemID]uint32{}, Served: map[fabric.MemID]uint32{}, Forgotten: map[fabric.MemID]bool{}}
}

// IsCN reports whether it is a compute node.
func (e *Entry) IsCN() bool { return e.CN.ID != 0 }

// Incarnation returns which membership of its node the entry is.
func (e *Entry) Incarnation() Incarnation {
	if e.IsCN() {
		return e.CN.Incarnation
	}
	return e.MN.Incarnation
}

// Gone reports whether the incarnation has ended.
func (e *Entry) Gone() bool { return e.Phase == Left || e.Phase == Died }

// FreeCN returns the lowest free number of a compute node, or 0.
func (l *Ledger) FreeCN() fabric.CNID {
	var taken fabric.CNSet
	for _, e := range l.Entries {
		taken.Add(e.CN.ID)
	}
	for id := fabric.CNID(1); id <= l.MaxCN && id != 0; id++ {
		if !taken.Has(id) {
			return id
		}
	}
	return 0
}

// ReserveCN gives a compute node the lowest free number: ErrFull if there is none.
func (l *Ledger) ReserveCN(addr string) (*Entry, error) {
	id := l.FreeCN()
	if id == 0 {
		return nil, fmt.Errorf("%w: there are %d", ErrFull, l.MaxCN)
	}
	l.Last++
	return l.add(&Entry{CN: CN{ID: id, Incarnation: l.Last, Addr: addr}}), nil
}

// ReserveMN gives a memory node its number, in a new epoch: ErrInUse if a member, or a node that is about to be one, has it.
// The epoch is larger than all that the number has had, as the ledger knows and as the node does (mn.Epoch): the ledger may be
// newer than the node's memory, when its storage was lost.
func (l *Ledger) ReserveMN(mn MN) (*Entry, error) {
	for _, e := range l.Entries {
		if !e.IsCN() && e.MN.ID == mn.ID && !e.Gone() {
			return nil, fmt.Errorf("%w: %v at %s", ErrInUse, mn.ID, e.MN.Addr)
		}
	}
	l.Last++
	mn.Incarnation, mn.Epoch = l.Last, max(l.Epochs[mn.ID], mn.Epoch)+1
	mn.Served = l.Served[mn.ID]
	l.Epochs[mn.ID] = mn.Epoch
	delete(l.Forgotten, mn.ID)
	return l.add(&Entry{MN: mn}), nil
}

// Leaving reports whether a memory node has gone, and not all members have acknowledged that.
func (l *Ledger) Leaving(id fabric.MemID) bool {
	return slices.ContainsFunc(l.Entries, func(e *Entry) bool { return !e.IsCN() && e.MN.ID == id && e.Gone() }) &&
		!slices.ContainsFunc(l.Entries, func(e *Entry) bool { return !e.IsCN() && e.MN.ID == id && !e.Gone() })
}

// Forget takes a memory node that has gone out of [State.Down]: it is not expected back. A node that comes with its number has a later epoch all the
// same. Its copies of replicated numbers are dropped. A number that a member has, or that may still be in use, is ErrInUse; one that no memory node ever had is ErrUnknown; one whose memory
// node may have the only copy of a number that waits, or a later one than others, is ErrReplica.
func (l *Ledger) Forget(id fabric.MemID) error {
	for _, e := range l.Entries {
		if !e.IsCN() && e.MN.ID == id && e.Gone() {
			return fmt.Errorf("%w: %v has gone, and not all nodes have acknowledged that", ErrInUse, id)
		}
		if !e.IsCN() && e.MN.ID == id {
			return fmt.Errorf("%w: %v is up, at %s: stop it first", ErrInUse, id, e.MN.Addr)
		}
	}
	if l.Epochs[id] == 0 || l.Forgotten[id] {
		return fmt.Errorf("%w: %v", ErrUnknown, id)
	}
	if list := l.groups(func(g *Group) bool { return l.needs(g, id) }); len(list) > 0 {
		return fmt.Errorf("%w: nothing serves %v, and what %v has may be its only copy, or the latest", ErrReplica, list[0].ID, id)
	}
	l.Revision++
	l.Forgotten[id] = true
	l.regroup()
	return nil
}

// needs reports whether a group that is not served waits for a memory node that is not up.
func (l *Ledger) needs(g *Group, id fabric.MemID) bool {
	wants := func(r Replica) bool { return r.ID == id && r.Phase == InSync }
	if g.Lost != nil {
		return slices.ContainsFunc(g.Lost.Group.Replicas, func(r Replica) bool { return r.ID == id })
	}
	return l.joinedMN(g.Primary()) == nil && slices.ContainsFunc(g.Replicas, wants)
}

func (l *Ledger) add(e *Entry) *Entry {
	l.Entries = append(l.Entries, e)
	return e
}

// Join makes a reserved incarnation a member.
func (l *Ledger) Join(e *Entry) {
	if e.Phase == Reserved {
		l.Revision++
		e.Phase, e.Since, e.Entry = Joined, l.Revision, l.Revision
		l.regroup()
	}
}

// Serve notes that the join of a member has succeeded: a memory node lets others in from now on. A memory node of which the join fails before that has served no operation.
func (l *Ledger) Serve(e *Entry) {
	if e.Phase == Joined && !e.IsCN() {
		l.Served[e.MN.ID] = e.MN.Epoch
	}
}

// End ends an incarnation: how is Left or Died. A reserved one leaves no trace.
func (l *Ledger) End(e *Entry, how Phase) {
	switch e.Phase {
	case Reserved:
		e.Phase = how
		l.remove(e)
	case Joined:
		l.Revision++
		e.Phase, e.Since = how, l.Revision
		l.settle()
	}
}

func (l *Ledger) remove(e *Entry) {
	l.Entries = slices.DeleteFunc(l.Entries, func(x *Entry) bool { return x == e })
}

// Ack notes that a member acts on all states up to a revision.
func (l *Ledger) Ack(e *Entry, revision uint64) {
	e.Acked = max(e.Acked, min(revision, l.Revision))
	l.settle()
}

// known reports whether all members have acknowledged a revision.
func (l *Ledger) known(revision uint64) bool {
	for _, e := range l.Entries {
		if e.Phase == Joined && e.Acked < revision {
			return false
		}
	}
	return true
}

// Admits reports whether the node that became a member at a revision may use the cluster. All members have
// acknowledged that revision, and so has every node that has gone since it was a member, unless it is forgotten.
// A node whose lease has run out may be alive: it reaches memory until every memory node has cut it off, and
// what it does there (the reset of a lock, for example) it does for the nodes that it knows of.
//
// Forgetting waits for members only, never for an admission, and a node that joins acknowledges states like every
// other: so an admission ends when members acknowledge. Nodes that joined later and have gone knew of this one
// from the start, and are not waited for: an admission does not starve where nodes come and go all the time.
func (l *Ledger) Admits(revision uint64) bool {
	for _, e := range l.Entries {
		if e.Gone() && e.Entry < revision && e.Acked < revision {
			return false
		}
	}
	return l.known(revision)
}

// Due returns an incarnation that has ended and is to be forgotten, because all members know that; nil: there is none. Memory
// nodes come first, and while one has gone that may still be in use, no compute node is due:
// it may be using it too.
func (l *Ledger) Due() *Entry {
	var due *Entry
	memory := false
	for _, e := range l.Entries {
		switch known := e.Gone() && e.Since != Unnoted && l.known(e.Since); {
		case known && !e.IsCN():
			return e
		case known && due == nil:
			due = e
		}
		memory = memory || e.Gone() && !e.IsCN()
	}
	if memory {
		return nil
	}
	return due
}

// settle makes all changes that are due: of groups first, so that the end of a primary and the promotion of its backup are one change to others.
func (l *Ledger) settle() {
	l.regroup()
	defer l.regroup()
	for e := l.Due(); e != nil; e = l.Due() {
		l.remove(e)
		if !e.IsCN() {
			continue // its epoch is all that states tell of it
		}
		l.Revision++
		if e.Phase == Died {
			l.Lost++
		}
	}
}

// State returns the present state.
func (l *Ledger) State() *State {
	s := &State{Revision: l.Revision, Lost: l.Lost}
	s.Groups = l.groups(func(g *Group) bool { return len(g.Replicas) > 0 })
	s.Waiting = l.groups(func(g *Group) bool { return g.Lost != nil })
	for _, e := range l.Entries {
		switch {
		case e.IsCN() && e.Phase == Joined:
			s.CNs = append(s.CNs, e.CN)
		case e.IsCN() && e.Gone():
			s.Fencing = append(s.Fencing, e.CN)
		case e.Phase == Joined:
			mn := e.MN
			mn.Served = 0
			s.MNs = append(s.MNs, mn)
		}
	}
	for id, epoch := range l.Epochs {
		if g := l.Groups[id]; (!l.Forgotten[id] || g != nil && len(g.Replicas) > 0) && l.down(id) {
			s.Down = append(s.Down, MN{ID: id, Epoch: epoch})
		}
	}
	s.sort()
	return s
}

// View returns the view of the present state.
func (l *Ledger) View() fabric.View {
	v := fabric.View{Epoch: l.Revision, Lost: l.Lost}
	for _, e := range l.Entries {
		if e.IsCN() && e.Phase != Reserved {
			v.Live.Add(e.CN.ID)
		}
	}
	return v
}

// sort puts the lists of a state into order.
func (s *State) sort() {
	byID := func(a, b CN) int { return int(a.ID) - int(b.ID) }
	slices.SortFunc(s.CNs, byID)
	slices.SortFunc(s.Fencing, byID)
	for _, mns := range [][]MN{s.MNs, s.Down} {
		slices.SortFunc(mns, func(a, b MN) int { return int(a.ID) - int(b.ID) })
	}
}
