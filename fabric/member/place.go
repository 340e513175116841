package member

import (
	"cmp"
	"slices"
)

// placed returns a group with a backup less, which is never coming back, or with one more, because it has fewer than its factor; nil: nothing is due. Only
// groups whose primary lends room to others are looked after so: in others backups come and go by wishes.
func (l *Ledger) placed(g *Group) *Group {
	if !g.Serving || l.joinedMN(g.Primary()).MN.Room == 0 {
		return nil
	}
	for i, r := range g.Replicas {
		if i > 0 && l.isLost(r) {
			n := g.copied()
			n.Replicas = slices.Delete(n.Replicas, i, i+1)
			return n
		}
	}
	if len(g.Replicas) >= g.Factor {
		return nil
	}
	host := l.bestHost(g)
	if host == nil {
		return nil
	}
	n := g.copied()
	n.add(host)
	return n
}

// isLost reports whether a replica is never coming back: its host is forgotten, or has joined again without the memory. That its host has ended is no reason: when the coordinator
// was away for a lease, all have, and come back with their memory.
func (l *Ledger) isLost(r Replica) bool {
	if l.joinedMN(r.Host) != nil {
		return false
	}
	return l.Forgotten[r.ID] || slices.ContainsFunc(l.Entries, func(e *Entry) bool {
		return !e.IsCN() && e.Phase == Joined && e.MN.ID == r.ID && e.MN.Was != r.Host
	})
}

// bestHost returns the memory node on which a new backup of a number is best: with a label that no other replica's host has, if there is one; with the fewest backups;
// the next after the number, so that the load of one that fails goes to several. nil: there is none with room.
func (l *Ledger) bestHost(g *Group) (best *Entry) {
	compare := func(a, b *Entry) int {
		after := func(e *Entry) int { return int(uint8(e.MN.ID - g.ID - 1)) }
		return cmp.Or(l.near(g, a)-l.near(g, b), l.backups(a)-l.backups(b), after(a)-after(b))
	}
	for _, e := range l.Entries {
		if e.IsCN() || e.Phase != Joined || g.Find(e.Incarnation()) >= 0 || !l.hasRoom(e, g) {
			continue
		}
		if best == nil || compare(e, best) < 0 {
			best = e
		}
	}
	return best
}

// near returns how many replicas of a group are on memory nodes with the label of a host. Hosts without a label are near to none.
func (l *Ledger) near(g *Group, host *Entry) (n int) {
	for _, r := range g.Replicas {
		if e := l.joinedMN(r.Host); e != nil && host.MN.Label != "" && e.MN.Label == host.MN.Label {
			n++
		}
	}
	return n
}

// backups returns how many backups a memory node has.
func (l *Ledger) backups(host *Entry) (n int) {
	for _, g := range l.Groups {
		if g.Find(host.Incarnation()) > 0 {
			n++
		}
	}
	return n
}

// hasRoom reports whether a memory node has room for a replica of a group. That of its own number is in the memory that it would lend to it.
func (l *Ledger) hasRoom(host *Entry, g *Group) bool {
	if host.MN.ID == g.ID {
		return host.MN.Room > 0 && host.MN.Size >= g.Size
	}
	room := host.MN.Room
	for _, x := range l.Groups {
		if x.ID != host.MN.ID && x.Find(host.Incarnation()) >= 0 {
			room -= min(room, x.Size)
		}
	}
	return room >= g.Size
}
