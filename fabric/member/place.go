package member

import (
	"cmp"
	"iter"
	"maps"
	"slices"
)

// placed returns a group with a backup less, which is never coming back or was not in sync when its host ended, or with one more, because it has fewer than its factor; nil: nothing is due. Only
// groups whose primary lends room to others are looked after so: in others backups come and go by wishes.
func (l *Ledger) placed(g *Group) *Group {
	if !g.Serving || l.joinedMN(g.Primary()).MN.Room == 0 {
		return nil
	}
	for i, r := range g.Replicas {
		n := g.copied()
		switch {
		case i == 0 || r.Dropped:
		case l.isLost(r) || r.Phase != InSync && l.joinedMN(r.Host) == nil:
			n.Replicas = slices.Delete(n.Replicas, i, i+1)
			return n
		case l.Forgotten[r.ID] && l.joinedMN(r.Host) == nil: // the primary has to acknowledge it: else this may be the last copy
			n.Replicas[i].Dropped = true
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

// isLost reports whether a replica is never coming back: its host has joined again without the memory. That its host has ended is no reason: when the coordinator was away for a
// lease, all have, and come back with their memory.
func (l *Ledger) isLost(r Replica) bool {
	if l.joinedMN(r.Host) != nil {
		return false
	}
	return slices.ContainsFunc(l.Entries, func(e *Entry) bool {
		return !e.IsCN() && e.Phase == Joined && e.MN.ID == r.ID && !e.MN.Had(r)
	})
}

// bestHost returns the memory node on which a new backup of a number is best.
func (l *Ledger) bestHost(g *Group) *Entry {
	var hosts []*MN
	entries := map[Incarnation]*Entry{}
	for _, e := range l.Entries {
		if !e.IsCN() && e.Phase == Joined {
			hosts, entries[e.MN.Incarnation] = append(hosts, &e.MN), e
		}
	}
	stay := slices.DeleteFunc(slices.Clone(g.Replicas), func(r Replica) bool { return draining(r.Host, maps.Values(l.Groups)) })
	if best := bestHost(g, stay, hosts, maps.Values(l.Groups), func(*MN) bool { return true }); best != nil {
		return entries[best.Incarnation]
	}
	return nil
}

// bestHost returns, of some memory nodes, that on which a new backup of a number is best: with a label that no host of a replica has that stays, if there is one; with the fewest backups;
// the next after the number, so that the load of one that fails goes to several. nil: there is none with room.
func bestHost(g *Group, stay []Replica, hosts []*MN, groups iter.Seq[*Group], ok func(*MN) bool) (best *MN) {
	compare := func(a, b *MN) int {
		after := func(m *MN) int { return int(uint8(m.ID - g.ID - 1)) }
		return cmp.Or(near(stay, a, hosts)-near(stay, b, hosts), backups(a.Incarnation, groups)-backups(b.Incarnation, groups), after(a)-after(b))
	}
	for _, m := range hosts {
		if g.Find(m.Incarnation) < 0 && hasRoom(m, g, groups) && !draining(m.Incarnation, groups) && ok(m) && (best == nil || compare(m, best) < 0) {
			best = m
		}
	}
	return best
}

// near returns how many of some replicas are on other memory nodes with the label of a host. Hosts without a label are near to none.
func near(list []Replica, host *MN, hosts []*MN) (n int) {
	for _, m := range hosts {
		if host.Label != "" && m.Label == host.Label && m != host && slices.ContainsFunc(list, func(r Replica) bool { return r.Host == m.Incarnation }) {
			n++
		}
	}
	return n
}

// backups returns how many backups a memory node has.
func backups(host Incarnation, groups iter.Seq[*Group]) (n int) {
	for g := range groups {
		if g.Find(host) > 0 {
			n++
		}
	}
	return n
}

// draining reports whether a memory node is to be stopped.
func draining(host Incarnation, groups iter.Seq[*Group]) bool {
	for g := range groups {
		if g.Draining == host {
			return true
		}
	}
	return false
}

// hasRoom reports whether a memory node has room for a replica of a group. That of its own number is in the memory that it would lend to it.
func hasRoom(host *MN, g *Group, groups iter.Seq[*Group]) bool {
	if host.ID == g.ID {
		return host.Room > 0 && host.Size >= g.Size
	}
	room := host.Room
	for x := range groups {
		if x.ID != host.ID && x.Find(host.Incarnation) >= 0 {
			room -= min(room, x.Size)
		}
	}
	return room >= g.Size
}
