package member

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/declock/declock/fabric"
)

// ErrNoHost: no memory node has room for a copy that is to be made.
var ErrNoHost = errors.New("member: no memory node has room for another copy")

// A Step is what a planned move does next: a change, or it waits for something, or there is nothing to do any more.
type Step struct {
	Change *Change
	What   string // the change, or what it waits for; empty: nothing is to be done
}

// Drain returns the next step by which a memory node gets rid of all copies that it has. A number has as many copies as it is to have all the while: another one is made first, and the
// primary moves to a backup that is in sync. ErrNoHost: there is no room for another.
func (s *State) Drain(id fabric.MemID) (Step, error) {
	host, ok := s.MN(id)
	if !ok {
		return Step{}, fmt.Errorf("%w: memory node %v is not up", ErrUnknown, id)
	}
	if g := s.Group(id); g != nil && g.Lost == nil && g.Draining != host.Incarnation { // first, so that two that are drained at once do not give copies to each other
		return g.step(Drain, Replica{Host: host.Incarnation, ID: id}), nil
	}
	for _, g := range s.Groups {
		i := g.Find(host.Incarnation)
		if i < 0 {
			continue
		}
		if what := s.unsettled(g); what != "" {
			return Step{What: what}, nil
		}
		others := slices.IndexFunc(g.Replicas, s.stays)
		if others < 0 {
			others = slices.IndexFunc(g.Replicas, func(r Replica) bool { return r.Host != host.Incarnation && s.usable(r) })
		}
		stay := slices.DeleteFunc(slices.Clone(g.Replicas), func(r Replica) bool { return !s.stays(r) })
		switch {
		case len(stay) < g.Factor && len(g.Replicas) < maxReplicas, s.copies(g, host.Incarnation) < g.Factor:
			return s.addTo(g, stay, func(m *MN) bool { return m.ID != id })
		case i == 0:
			return g.step(Promote, g.Replicas[others]), nil
		default:
			return g.step(Drop, g.Replicas[i]), nil
		}
	}
	return Step{}, nil
}

// Undrain returns the next step by which a memory node that was drained gets copies again.
func (s *State) Undrain(id fabric.MemID) (Step, error) {
	if g := s.Group(id); g != nil && s.Has(g.Draining) {
		return g.step(Undrain, Replica{Host: g.Draining, ID: id}), nil
	}
	return Step{}, nil
}

// Rebalance returns the next step by which each number comes to be served by the memory node that has joined with it, its copies are on memory nodes with different labels, and memory nodes
// have equally many backups of others, where there is room. As with Drain no number has fewer copies than it is to have. Memory nodes that were drained get copies again.
func (s *State) Rebalance() (Step, error) {
	for _, g := range s.Groups {
		if step, _ := s.Undrain(g.ID); step.Change != nil {
			return step, nil
		}
	}
	for _, g := range s.Groups {
		home, ok := s.MN(g.ID)
		if !ok || g.Primary() == home.Incarnation || !hasRoom(&home, g, slices.Values(s.Groups)) {
			continue
		}
		if what := s.unsettled(g); what != "" {
			return Step{What: what}, nil
		}
		step, err := s.homeward(g, &home)
		if errors.Is(err, ErrNoHost) {
			continue // it would have fewer copies for a while
		}
		return step, err
	}
	for _, g := range s.Groups {
		if what := s.unsettled(g); what != "" {
			return Step{What: what}, nil
		}
		if s.copies(g, 0) > g.Factor {
			return g.step(Drop, slices.MaxFunc(g.Replicas[1:], func(a, b Replica) int {
				return cmp.Or(s.near(g, a)-s.near(g, b), s.backups(a.Host)-s.backups(b.Host))
			})), nil
		}
	}
	for _, g := range s.Groups {
		for _, r := range g.Replicas[1:] {
			rest := slices.DeleteFunc(slices.Clone(g.Replicas), func(x Replica) bool { return x == r })
			was, hosts := s.near(g, r), s.hosts()
			step, err := s.addTo(g, rest, func(m *MN) bool {
				n := near(rest, m, hosts)
				return n < was || n == was && s.backups(m.Incarnation)+2 <= s.backups(r.Host)
			})
			if err == nil {
				return step, nil
			}
		}
	}
	return Step{}, nil
}

// homeward returns the next step by which a number comes to be served by a memory node. What is promoted keeps the backups behind it, and loses those before it.
func (s *State) homeward(g *Group, home *MN) (Step, error) {
	i := g.Find(home.Incarnation)
	switch {
	case i < 0:
		return g.step(AddBackup, Replica{Host: home.Incarnation, ID: home.ID}), nil
	case i > 1 && s.copies(g, 0) > g.Factor:
		return g.step(Drop, g.Replicas[1]), nil
	case len(g.Replicas)-i < g.Factor:
		return s.addTo(g, g.Replicas[i:], func(*MN) bool { return true })
	}
	return g.step(Promote, g.Replicas[i]), nil
}

// step returns a step that changes a replica.
func (g *Group) step(kind ChangeKind, r Replica) Step {
	what := map[ChangeKind]string{AddBackup: "copy %v to %v", Drop: "%v: drop the copy on %v", Promote: "move %v to %v"}[kind]
	switch kind {
	case Drain:
		what = "put no copies on %[2]v"
	case Undrain:
		what = "put copies on %[2]v again"
	}
	return Step{&Change{ID: g.ID, Kind: kind, Host: r.Host, Seen: g.Changed}, fmt.Sprintf(what, g.ID, r.ID)}
}

// hosts returns the memory nodes.
func (s *State) hosts() []*MN {
	hosts := make([]*MN, len(s.MNs))
	for i := range s.MNs {
		hosts[i] = &s.MNs[i]
	}
	return hosts
}

// near returns how many other replicas of a group are on memory nodes with the label of a replica's.
func (s *State) near(g *Group, r Replica) int {
	hosts := s.hosts()
	if i := slices.IndexFunc(hosts, func(m *MN) bool { return m.Incarnation == r.Host }); i >= 0 {
		return near(g.Replicas, hosts[i], hosts)
	}
	return 0
}

// addTo returns a step that makes another copy, beside those that stay.
func (s *State) addTo(g *Group, stay []Replica, ok func(*MN) bool) (Step, error) {
	best := bestHost(g, stay, s.hosts(), slices.Values(s.Groups), ok)
	if best == nil || len(g.Replicas) >= maxReplicas {
		return Step{}, fmt.Errorf("%w: number %v, of %d bytes", ErrNoHost, g.ID, g.Size)
	}
	return g.step(AddBackup, Replica{Host: best.Incarnation, ID: best.ID}), nil
}

// unsettled returns why a group is not to be changed now.
func (s *State) unsettled(g *Group) string {
	if !g.Serving || !s.Has(g.Primary()) {
		return fmt.Sprintf("%v is served", g.ID)
	}
	for _, r := range g.Replicas {
		switch {
		case r.Phase != InSync && s.Has(r.Host):
			return fmt.Sprintf("%v is copied to %v", g.ID, r.ID)
		case r.Dropped:
			return fmt.Sprintf("the copy of %v on %v is dropped", g.ID, r.ID)
		}
	}
	if s.copies(g, 0) < g.Factor && slices.ContainsFunc(g.Replicas, func(r Replica) bool { return !s.usable(r) }) {
		return fmt.Sprintf("%v has its copies", g.ID)
	}
	return ""
}

// usable reports whether a replica may be promoted.
func (s *State) usable(r Replica) bool { return r.Phase == InSync && s.Has(r.Host) }

// Spares reports whether nothing is lost if a memory node is given up that may live: of all numbers of which it has a copy there is another one in sync, and it serves none without copies.
func (s *State) Spares(host Incarnation) bool {
	for _, g := range s.Groups {
		if g.Find(host) >= 0 && s.copies(g, host) == 0 {
			return false
		}
	}
	return slices.ContainsFunc(s.MNs, func(m MN) bool { return m.Incarnation == host && m.Replicas > 1 })
}

// stays reports whether a replica may be promoted, and is not to be moved because its memory node is to be stopped.
func (s *State) stays(r Replica) bool {
	return s.usable(r) && !draining(r.Host, slices.Values(s.Groups))
}

// copies returns how many replicas may be promoted, or serve, but for that of a host.
func (s *State) copies(g *Group, but Incarnation) (n int) {
	for _, r := range g.Replicas {
		if r.Host != but && s.usable(r) {
			n++
		}
	}
	return n
}

func (s *State) backups(host Incarnation) int { return backups(host, slices.Values(s.Groups)) }
