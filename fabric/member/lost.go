package member

import (
	"cmp"
	"slices"

	"github.com/declock/declock/fabric"
)

// What memory nodes know of replicated numbers, and a coordinator that has lost its data does not (docs/replication.md, "When etcd loses its data").

// A Known is a group as a memory node knew it last: of a number of which it has a copy, or of the number with which it joins.
type Known struct {
	ID      fabric.MemID `json:"id"`
	Changed uint64       `json:"changed"`          // Group.Changed
	Number  uint32       `json:"number,omitempty"` // of the replica whose memory it has; 0: it has none
	Group   *Group       `json:"group"`
}

// Know returns what a memory node that has a replica of a group, or none (0), knows of it.
func Know(g *Group, number uint32) Known {
	n := g.copied()
	n.Lost = nil
	return Known{ID: g.ID, Changed: g.Changed, Number: number, Group: n}
}

// unheard is how many numbers of replicas may have been given out, and how many terms may have passed, of which no memory node that is up has heard.
const unheard = 64

// Later reports whether what a memory node knows is later than a group of the ledger (nil: it has none), so that the ledger must have lost some of its data.
func (k *Known) Later(g *Group) bool {
	switch {
	case g == nil:
		return true
	case len(g.Replicas) > 0 && k.Group.Term <= g.Term && k.Group.sameMemory(g):
		return false
	case g.Lost != nil:
		than := g.Lost
		return cmp.Or(cmp.Compare(k.Group.Term, than.Group.Term), cmp.Compare(k.Group.Epoch, than.Group.Epoch), cmp.Compare(k.Changed, than.Changed)) > 0
	case k.Group.Term != g.Term:
		return k.Group.Term > g.Term
	}
	return !k.Group.sameMemory(g)
}

// sameMemory reports whether two configurations are of one memory.
func (g *Group) sameMemory(o *Group) bool { return g.Origin == o.Origin && g.Began == o.Began }

// knows returns what a memory node knows of a number, or nil.
func (m *MN) knows(id fabric.MemID) *Known {
	if i := slices.IndexFunc(m.Known, func(k Known) bool { return k.ID == id }); i >= 0 {
		return &m.Known[i]
	}
	return nil
}

// holds reports whether a memory node has the memory of a replica that a later configuration names: see Group.Lost.
func (m *MN) holds(g *Group, r Replica) bool {
	k := m.knows(g.ID)
	return k != nil && k.Number == r.Number && k.Group.sameMemory(g.Lost.Group)
}

// offers reports whether a memory node has brought a copy along that was in sync as far as it knows: see Group.Lost.
func (m *MN) offers(g *Group) bool {
	k := m.knows(g.ID)
	return k != nil && (len(g.Replicas) == 0 || k.Group.Term > g.Term || !k.Group.sameMemory(g)) &&
		slices.ContainsFunc(k.Group.Replicas, func(r Replica) bool { return r.Number == k.Number && r.Phase == InSync })
}

// Adoptable returns the memory nodes of which the operator may choose one to serve a number that waits: see Group.Lost. First those with what is known to be later.
func (s *State) Adoptable(g *Group) (list []MN) {
	later := func(m *MN) int { // as what is known of it, a primary before its backups; what has been served since is last
		if k := m.knows(g.ID); k != nil && m.offers(g) {
			i := slices.IndexFunc(k.Group.Replicas, func(r Replica) bool { return r.Number == k.Number })
			return int(k.Group.Term)*maxReplicas + maxReplicas - i
		}
		return 0
	}
	for _, m := range s.MNs {
		if m.offers(g) || m.Incarnation == g.Primary() {
			list = append(list, m)
		}
	}
	slices.SortStableFunc(list, func(a, b MN) int { return later(&b) - later(&a) })
	return list
}

// Missing returns the replicas of a later configuration whose memory nodes are not up, with their memory: see Group.Lost.
func (s *State) Missing(g *Group) (list []Replica) {
	for _, r := range g.Lost.Group.Replicas {
		if !slices.ContainsFunc(s.MNs, func(m MN) bool { return m.holds(g, r) }) {
			list = append(list, r)
		}
	}
	return list
}

// lost returns what a group has to become because a memory node knows a later configuration; nil: none does.
func (l *Ledger) lost() *Group {
	for _, e := range l.Entries {
		if e.IsCN() || e.Phase != Joined {
			continue
		}
		for _, k := range e.MN.Known {
			g := l.Groups[k.ID]
			if !k.Later(g) {
				continue
			}
			n := k.Group.copied()
			n.Replicas = nil
			if g != nil && len(g.Replicas) > 0 {
				n = g.copied()
			}
			if g != nil {
				n.Made = g.Made
			}
			n.ID, n.Serving, n.Lost = k.ID, false, &k
			n.Made, n.Epoch = max(n.Made, k.Group.Made+unheard), max(l.Epochs[k.ID], k.Group.Epoch)+1
			return n
		}
	}
	return nil
}

// found returns a group whose memory is there again: all replicas of the latest configuration that is known are, so no other memory node has been the primary since. Backups may have
// missed what the primary has, and begin anew. nil: one is missing.
func (l *Ledger) found(g *Group) *Group {
	var primary *Entry
	for _, r := range slices.Backward(g.Lost.Group.Replicas) {
		i := slices.IndexFunc(l.Entries, func(e *Entry) bool { return !e.IsCN() && e.Phase == Joined && e.MN.holds(g, r) })
		if i < 0 {
			return nil
		}
		primary = l.Entries[i]
	}
	n := l.taken(g, primary)
	n.Term = g.Lost.Group.Term // its locks are as they were
	return n
}

// taken returns a group that a memory node serves with the memory that it knows of, in a later term than all that are known.
func (l *Ledger) taken(g *Group, e *Entry) *Group {
	k := e.MN.knows(g.ID)
	n := k.Group.copied()
	n.ID, n.Term, n.Before, n.Epoch, n.Made, n.Serving = g.ID, l.termAfter(g), 0, l.Epochs[g.ID]+1, g.Made, false
	n.Replicas = []Replica{{Host: e.MN.Incarnation, ID: e.MN.ID, Phase: InSync, Number: k.Number, Was: e.MN.Was}}
	return n
}

// termAfter returns a term that is later than all that are known, and than those that may have passed unheard.
func (l *Ledger) termAfter(g *Group) uint32 {
	term := max(g.Term, g.Lost.Group.Term)
	for _, e := range l.Entries {
		if k := e.MN.knows(g.ID); k != nil && e.Phase == Joined {
			term = max(term, k.Group.Term)
		}
	}
	return term + unheard
}

// adopted returns what a group becomes when the operator says whose copy is served from now on, or why not: the one that a memory node has brought along, or the one that has been served since.
func (l *Ledger) adopted(g *Group, host *Entry) (n *Group, why string) {
	if g.Lost == nil {
		return nil, "the coordinator has lost nothing of it"
	}
	if host == nil {
		return nil, "it is not up"
	}
	if host.MN.offers(g) {
		return l.taken(g, host), ""
	}
	if g.Find(host.MN.Incarnation) != 0 {
		return nil, "it has no copy that is in sync"
	}
	n = g.copied()
	n.Replicas, n.Lost, n.Term, n.Before, n.Epoch = n.Replicas[:1], nil, l.termAfter(g), 0, l.Epochs[g.ID]+1
	return n, ""
}
