package member

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/declock/declock/fabric"
)

// A Group is the configuration of a memory-node number that is replicated (docs/replication.md): which memory nodes, as processes, have a
// copy of its memory, and which of them serves it. A number without a group is served by the memory node that has joined with it.
//
// A Group is never changed: the ledger puts another in its place. In JSON it is what etcd keeps of it.
type Group struct {
	ID     fabric.MemID `json:"-"`
	Factor int          `json:"factor"` // how many replicas it is to have
	Size   uint64       `json:"size"`   // bytes
	// MinInSync is how many copies are to be in sync where data is changed, as the memory node says that has joined with the number. 0 or 1: the primary's is enough.
	MinInSync int `json:"minInSync,omitempty"`
	// Term counts the times that the locks of the number began anew: it grows with each promotion. Tokens and messages about locks have it.
	Term uint32 `json:"term"`
	// Epoch is that of the number, as MN.Epoch is of one without a group: it grows whenever the primary is another one, or has begun anew.
	Epoch uint32 `json:"epoch"`
	// Before is the last epoch of the term before: what was begun in it, and in no other, was under way when that term ended.
	Before uint32 `json:"before,omitempty"`
	// Serving: all that may still act have acknowledged the epoch. Before that the primary lets no compute node in.
	Serving bool `json:"serving,omitempty"`
	// Replicas are the copies, the primary's first. None: what the number had was given up.
	Replicas []Replica `json:"replicas"`
	// Made is how many replicas the number has had.
	Made uint32 `json:"made"`
	// Origin and Began name the memory, all copies alike: the host and the epoch with which it began.
	Origin Incarnation `json:"origin"`
	Began  uint32      `json:"began"`
	// Draining is the memory node that has joined with the number, if it is to be stopped: it gets no copies. A later incarnation does. 0: it is not.
	Draining Incarnation `json:"draining,omitempty"`
	// Suspect is a memory node with a copy that does not answer a compute node. If it acknowledges that, it lives, and is none any more; else it is reported. 0: there is none.
	Suspect Incarnation `json:"suspect,omitempty"`
	// Lost is a later configuration that a memory node knows, and the coordinator did not: it has lost its data. Until that is settled (Ledger.found, or Adopt or
	// Abandon by the operator) the number is not served. It may have no replicas then.
	Lost *Known `json:"lost,omitempty"`
	// Changed is the revision of the last change. A change names it, so that of two that compete one fails ([ErrChanged]).
	Changed uint64 `json:"-"`
}

// A Replica is one copy of a replicated number's memory.
type Replica struct {
	Host  Incarnation  `json:"host"` // of the memory node that has it
	ID    fabric.MemID `json:"id"`   // with which that has joined
	Phase ReplicaPhase `json:"phase"`
	// Number is the replica's own: no other of the group ever has it. A host that is dropped and added again has another one, though it may never
	// have heard of the time between. It begins anew, with zeroed memory and without connections of before.
	Number uint32 `json:"number"`
	// Was is what Host said it was (MN.Was), if that had the replica in another incarnation before: a host says so again until it has heard of this one. Else 0.
	Was Incarnation `json:"was,omitempty"`
	// Dropped: the replica is none any more as soon as the primary has acknowledged that. A primary that has ended, and is not known to have, does not; then this
	// may be the last copy.
	Dropped bool `json:"dropped,omitempty"`
}

// ReplicaPhase is how far a replica has got.
type ReplicaPhase uint8

// The phases of a replica. The primary is InSync.
const (
	Added   ReplicaPhase = iota // compute nodes that know of it write to it
	Copying                     // all know of it: what was there before is copied
	InSync                      // it has all that the primary has: it may be promoted
)

func (p ReplicaPhase) String() string {
	if p <= InSync {
		return [...]string{"added", "copying", "in sync"}[p]
	}
	return fmt.Sprintf("ReplicaPhase(%d)", uint8(p))
}

// A Change is a wish to change a group.
type Change struct {
	ID   fabric.MemID
	Kind ChangeKind
	Host Incarnation // of the replica that is concerned
	Seen uint64      // Group.Changed of the group that the wish is about
}

// ChangeKind is what a Change does.
type ChangeKind uint8

// The kinds of changes. What happens by itself, because nodes come and go and acknowledge, needs none: see [Ledger.DueGroup].
const (
	AddBackup ChangeKind = iota + 1 // a member becomes a backup
	Synced                          // a backup has been copied to: it is in sync
	Drop                            // a backup is none any more: one in sync when the primary has acknowledged that
	Promote                         // a backup becomes the primary, and the primary is none any more
	Abandon                         // what the number had is lost: it begins anew
	Adopt                           // of a number that waits (Group.Lost): this replica is served
	Drain                           // the memory node with this number gets no copies any more
	Undrain                         // it does again
	Suspect                         // a memory node with a copy does not answer
)

func (k ChangeKind) String() string {
	if k >= AddBackup && k <= Suspect {
		return [...]string{"add", "synced", "drop", "promote", "abandon", "adopt", "drain", "undrain", "suspect"}[k-AddBackup]
	}
	return fmt.Sprintf("ChangeKind(%d)", uint8(k))
}

// maxReplicas is how many copies a number has at most: while one is replaced, one more than the largest factor.
const maxReplicas = 4

// Primary returns the incarnation of the memory node that serves the number, or is to; 0: none.
func (g *Group) Primary() Incarnation {
	if len(g.Replicas) == 0 {
		return 0
	}
	return g.Replicas[0].Host
}

// Find returns the index of the replica of a host, or -1.
func (g *Group) Find(host Incarnation) int {
	return slices.IndexFunc(g.Replicas, func(r Replica) bool { return r.Host == host })
}

// copied returns a copy to be changed.
func (g *Group) copied() *Group {
	n := *g
	n.Replicas = slices.Clone(g.Replicas)
	return &n
}

// Change changes a group as is wished: see Changed. When it returns, the change is made, and not all members know.
func (l *Ledger) Change(c Change) error {
	g, err := l.Changed(c)
	if err != nil {
		return err
	}
	l.putGroup(g)
	l.regroup()
	return nil
}

// Changed returns what a group becomes by a change: ErrUnknown if the number has none, ErrChanged if it has changed since it was seen, ErrReplica if
// the replica may not be changed so.
func (l *Ledger) Changed(c Change) (*Group, error) {
	g := l.Groups[c.ID]
	switch {
	case g == nil:
		return nil, fmt.Errorf("%w: %v is not replicated", ErrUnknown, c.ID)
	case g.Changed != c.Seen:
		return nil, fmt.Errorf("%w: %v, at revision %d, seen at %d", ErrChanged, c.ID, g.Changed, c.Seen)
	}
	n, why := l.wished(g, c)
	if why != "" {
		return nil, fmt.Errorf("%w: %v %v, memory node %x of %v: %s", ErrReplica, c.Kind, c.ID, uint64(c.Host), g.Replicas, why)
	}
	return n, nil
}

// wished returns what a group becomes by a change, or why it does not allow that.
func (l *Ledger) wished(g *Group, c Change) (n *Group, why string) {
	n = g.copied()
	i, host, primary := g.Find(c.Host), l.joinedMN(c.Host), l.joinedMN(g.Primary())
	switch {
	case len(g.Replicas) == 0 && g.Lost == nil:
		why = "it has been abandoned, and waits for a memory node with this number"
	case c.Kind == Adopt:
		n, why = l.adopted(g, host)
	case c.Kind == Abandon && g.Lost != nil:
		n.Replicas, n.Lost, n.Serving, n.Term = nil, nil, false, l.termAfter(g)
	case g.Lost != nil:
		why = "it waits for memory nodes, or for the operator"
	case c.Kind == Abandon:
		if slices.ContainsFunc(g.Replicas, func(r Replica) bool { return r.Phase == InSync && l.joinedMN(r.Host) != nil }) {
			why = "a replica in sync is up"
		}
		n.Replicas, n.Serving = nil, false
	case c.Kind == Undrain:
		n.Draining = 0
	case c.Kind == Drain:
		if n.Draining = c.Host; host == nil || host.MN.ID != g.ID {
			why = "it is not the memory node with this number, or is not up"
		}
	case primary == nil:
		why = "the primary is not up" // a backup that is dropped now may be the last copy
	case c.Kind == AddBackup:
		switch {
		case host == nil || i >= 0:
			why = "it is not up, or a replica already"
		case len(g.Replicas) >= maxReplicas:
			why = "there are too many"
		}
		if why == "" {
			n.add(host)
		}
	case c.Kind == Suspect:
		if n.Suspect = c.Host; i < 0 || host == nil || g.Suspect != 0 {
			why = "it is no replica, or not up, or another is suspected"
		}
	case i <= 0:
		why = "it is no backup"
	case c.Kind == Drop && g.Replicas[i].Phase == InSync:
		n.Replicas[i].Dropped = true
	case c.Kind == Drop:
		n.Replicas = slices.Delete(n.Replicas, i, i+1)
	case host == nil:
		why = "it is not up"
	case c.Kind == Synced:
		if g.Replicas[i].Phase != Copying {
			why = "nothing is copied to it"
		}
		n.Replicas[i].Phase = InSync
	case c.Kind == Promote:
		if g.Replicas[i].Phase != InSync {
			why = "it is not in sync"
		} else {
			n = l.promoted(g, i)
		}
	default:
		why = "nobody knows how"
	}
	return n, why
}

// add adds a backup to a group that is to be changed.
func (g *Group) add(host *Entry) {
	g.Made++
	g.Replicas = append(g.Replicas, Replica{Host: host.Incarnation(), ID: host.MN.ID, Number: g.Made})
}

// putGroup puts a group in the place of the one before.
func (l *Ledger) putGroup(g *Group) {
	l.Revision++
	g.Changed = l.Revision
	if l.Groups == nil {
		l.Groups = map[fabric.MemID]*Group{}
	}
	l.Groups[g.ID] = g
	l.Epochs[g.ID] = max(l.Epochs[g.ID], g.Epoch)
}

// joinedMN returns the entry of a memory node that is a member, or nil.
func (l *Ledger) joinedMN(host Incarnation) *Entry {
	for _, e := range l.Entries {
		if !e.IsCN() && e.Phase == Joined && e.MN.Incarnation == host {
			return e
		}
	}
	return nil
}

// home returns the entry of the memory node that has joined with a number that is replicated, or nil.
func (l *Ledger) home(id fabric.MemID) *Entry {
	for _, e := range l.Entries {
		if !e.IsCN() && e.Phase == Joined && e.MN.ID == id && e.MN.Replicas > 1 {
			return e
		}
	}
	return nil
}

// regroup makes all changes of groups that are due by themselves.
func (l *Ledger) regroup() {
	for g := l.DueGroup(); g != nil; g = l.DueGroup() {
		l.putGroup(g)
	}
}

// DueGroup returns what a group has to become because nodes have come, gone or acknowledged; nil: nothing is due. Coordinators whose ledger is made
// of what they have read write it, if nothing has changed meanwhile.
func (l *Ledger) DueGroup() *Group {
	if g := l.lost(); g != nil {
		return g
	}
	for _, e := range l.Entries {
		if !e.IsCN() && e.Phase == Joined && e.MN.Replicas > 1 {
			if g := l.Groups[e.MN.ID]; g == nil || len(g.Replicas) == 0 && g.Lost == nil {
				return l.newGroup(e, g)
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(l.Groups)) {
		if g := l.next(l.Groups[id]); g != nil {
			return g
		}
	}
	return nil
}

// termsAfter returns the first term whose tokens are greater than those of memory that was served without a group, up to some epoch. Those have the generation of the memory, which is less
// than its epoch, in 10 bits, and tokens of groups the term in 16. Some terms are left for promotions where generations are used up.
//
// The other way round nothing has to be done: a term takes at least an epoch, so generations are ahead of terms.
func termsAfter(epoch uint32) uint32 { return min(epoch, 960) << 6 }

// newGroup returns the group of a number that begins with empty memory. before is the one that was abandoned, or nil.
func (l *Ledger) newGroup(e *Entry, before *Group) *Group {
	g := &Group{ID: e.MN.ID, Factor: e.MN.Replicas, MinInSync: e.MN.MinInSync, Size: e.MN.Size, Term: max(1, termsAfter(e.MN.Epoch-1)), Epoch: l.Epochs[e.MN.ID] + 1, Made: 1}
	if before != nil {
		if g.Term = max(g.Term, before.Term+1); e.MN.Epoch <= before.Epoch+1 {
			g.Term = before.Term + 1 // it was not served without a group meanwhile
		}
		g.Made = before.Made + 1
	}
	g.Origin, g.Began = e.MN.Incarnation, g.Epoch
	g.Replicas = []Replica{{Host: e.MN.Incarnation, ID: e.MN.ID, Phase: InSync, Number: g.Made}}
	return g
}

// next returns what a group has to become, or nil.
func (l *Ledger) next(g *Group) *Group {
	if len(g.Replicas) == 0 {
		if g.Lost != nil {
			return l.found(g)
		}
		return nil
	}
	for i, r := range g.Replicas {
		if e := l.successor(r); e != nil {
			n := g.copied()
			n.Replicas[i].Host, n.Replicas[i].ID, n.Replicas[i].Was = e.MN.Incarnation, e.MN.ID, e.MN.Was
			if i == 0 { // its locks are as they were: the term is the same
				n.Epoch, n.Serving = l.Epochs[g.ID]+1, false
				n.keep()
			}
			return n
		}
	}
	if g.Lost != nil {
		return nil // what has been served since is not given up by itself
	}
	if l.joinedMN(g.Primary()) == nil {
		for i, r := range g.Replicas {
			if r.Phase == InSync && l.joinedMN(r.Host) != nil {
				return l.promoted(g, i)
			}
		}
		return nil // it waits for one of them, or for the operator
	}
	if n := l.dropped(g); n != nil {
		return n
	}
	if n := l.refuted(g); n != nil {
		return n
	}
	if home := l.home(g.ID); home != nil {
		least := min(home.MN.MinInSync, g.Factor) // more than there are to be would never be in sync
		if least != g.MinInSync {
			n := g.copied()
			n.MinInSync = least
			return n
		}
	}
	if n := l.placed(g); n != nil {
		return n
	}
	added := slices.ContainsFunc(g.Replicas, func(r Replica) bool { return r.Phase == Added })
	if g.Serving && !added || !l.Admits(g.Changed) {
		return nil
	}
	n := g.copied()
	n.Serving = true
	for i := range n.Replicas {
		n.Replicas[i].Phase = max(n.Replicas[i].Phase, Copying)
	}
	return n
}

// dropped returns a group without the backups that are to be dropped, if the primary has acknowledged that, and so was there since then; nil: nothing is due.
func (l *Ledger) dropped(g *Group) *Group {
	n := g.copied()
	n.Replicas = slices.DeleteFunc(n.Replicas, func(r Replica) bool { return r.Dropped })
	if len(n.Replicas) == len(g.Replicas) || l.joinedMN(g.Primary()).Acked < g.Changed {
		return nil
	}
	return n
}

// refuted returns a group without a suspicion that is over: the memory node has acknowledged it, or is up no more; nil: nothing is due.
func (l *Ledger) refuted(g *Group) *Group {
	if e := l.joinedMN(g.Suspect); g.Suspect == 0 || e != nil && e.Acked < g.Changed {
		return nil
	}
	n := g.copied()
	n.Suspect = 0
	return n
}

// keep takes back that backups are to be dropped: it was wished in an epoch that is over, and whoever wished it does not go on there.
func (g *Group) keep() {
	for i := range g.Replicas {
		g.Replicas[i].Dropped = false
	}
}

// successor returns the incarnation in which the host of a replica, which was given up, has joined again with its memory; nil: none.
func (l *Ledger) successor(r Replica) *Entry {
	for _, e := range l.Entries {
		if !e.IsCN() && e.Phase == Joined && e.MN.Had(r) && l.joinedMN(r.Host) == nil {
			return e
		}
	}
	return nil
}

// Had reports whether a memory node that has joined again has the memory of a replica.
func (m MN) Had(r Replica) bool { return m.Was != 0 && (m.Was == r.Host || m.Was == r.Was) }

// promoted returns a group with another primary. The one before is no replica any more: it begins again, if at all, with zeroed memory.
//
// What a writer publishes reaches the last backup first, and the primary in the end. So the backups behind the one that is promoted have all that it has, and a backup before
// it may lack what a reader sees from now on: it begins again, as another replica and the last. So does one to which is being copied.
func (l *Ledger) promoted(g *Group, i int) *Group {
	n := g.copied()
	n.Replicas = append(append(n.Replicas[:0], g.Replicas[i]), g.Replicas[i+1:]...)
	again := slices.DeleteFunc(slices.Clone(n.Replicas), func(r Replica) bool { return r.Phase == InSync })
	n.Replicas = slices.DeleteFunc(n.Replicas, func(r Replica) bool { return r.Phase != InSync })
	for _, r := range append(slices.Clone(g.Replicas[min(1, i):i]), again...) {
		n.Made++
		n.Replicas = append(n.Replicas, Replica{Host: r.Host, ID: r.ID, Number: n.Made})
	}
	n.keep()
	n.Term, n.Before, n.Epoch, n.Serving = g.Term+1, g.Epoch, l.Epochs[g.ID]+1, false
	return n
}

// down reports whether a memory-node number has no memory node that serves it.
func (l *Ledger) down(id fabric.MemID) bool {
	if g := l.Groups[id]; g != nil && (len(g.Replicas) > 0 || g.Lost != nil) {
		return g.Lost != nil || l.joinedMN(g.Primary()) == nil
	}
	return !slices.ContainsFunc(l.Entries, func(e *Entry) bool { return !e.IsCN() && e.Phase == Joined && e.MN.ID == id })
}

// groups returns the groups that are so, by ID.
func (l *Ledger) groups(are func(*Group) bool) (list []*Group) {
	for _, g := range l.Groups {
		if are(g) {
			list = append(list, g)
		}
	}
	slices.SortFunc(list, func(a, b *Group) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// Group returns the group of a memory-node number, or nil.
func (s *State) Group(id fabric.MemID) *Group {
	if i := slices.IndexFunc(s.Groups, func(g *Group) bool { return g.ID == id }); i >= 0 {
		return s.Groups[i]
	}
	return nil
}

// Server returns the memory node that serves a memory-node number, or is about to, and in which epoch.
func (s *State) Server(id fabric.MemID) (mn MN, epoch uint32, ok bool) {
	g := s.Group(id)
	if g == nil {
		mn, ok = s.MN(id)
		return mn, mn.Epoch, ok && mn.Replicas < 2
	}
	if i := slices.IndexFunc(s.MNs, func(m MN) bool { return m.Incarnation == g.Primary() }); i >= 0 && g.Lost == nil {
		return s.MNs[i], g.Epoch, true
	}
	return MN{}, 0, false
}

// Memory lists the memory-node numbers that a memory node serves, or is about to, by ID.
func (s *State) Memory() (list []fabric.Memory) {
	for _, m := range s.MNs {
		if m.Replicas < 2 && s.Group(m.ID) == nil {
			list = append(list, fabric.Memory{ID: m.ID, Size: m.Size, Epoch: m.Epoch})
		}
	}
	for _, g := range s.Groups {
		if _, _, ok := s.Server(g.ID); ok {
			list = append(list, fabric.Memory{ID: g.ID, Size: g.Size, Epoch: g.Epoch, Term: g.Term})
		}
	}
	if len(s.Groups) > 0 {
		slices.SortFunc(list, func(a, b fabric.Memory) int { return cmp.Compare(a.ID, b.ID) })
	}
	return list
}
