package check

import (
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
)

// lease draws what class Lease is about, but for its faults: locks that are held most of the time, and reset all the time, by
// whichever node asks for it first.
func (s *Scenario) lease(d *drawer) {
	s.CNs, s.Clients, s.Locks, s.Rounds = d.between(2, 4), d.between(1, 4), pick(d, 1, 1, 2), d.between(20, 60)
	s.HoldNs, s.ThinkNs = pick(d, 5*fabric.Microsecond, 40*fabric.Microsecond, 150*fabric.Microsecond, 150*fabric.Microsecond), pick(d, 0, fabric.Microsecond)
	s.Reads = pick(d, 30, 80, 95, 95)
	s.layoutFor(d)
	if d.percent(70) {
		s.wraps(d)
		s.Version = 2
	}
}

// runOut draws the faults of class Lease: a node cannot reach the coordinator any more. Another joins; then the lease of the first
// runs out, and of that some memory nodes hear late, so that it still reaches them. It does not know of either.
func (s *Scenario) runOut(d *drawer) {
	s.impatient()
	s.DetectNs, s.Late = 20*fabric.Microsecond, pick(d, "draw", "drop", "keep")
	s.NewsNs = pick(d, 3*fabric.Microsecond, 30*fabric.Microsecond)
	first := sim.OfCN(fabric.CNID(d.between(1, s.CNs)))
	s.Joins, s.JoinNs = d.between(1, 2), 1+s.at(d)/2
	s.room()
	cut := max(0, s.JoinNs-d.time(100*fabric.Microsecond))
	lost := s.JoinNs + 1 + d.time(4*s.NewsNs) + d.time(200*fabric.Microsecond)
	late := func() fabric.Time { return lost + 1 + fabric.Time(d.Uint64n(uint64(fabric.Millisecond))) }
	s.Plan = sim.Plan{{At: cut, Kind: sim.FaultDetach, Node: first, Until: late()}, {At: lost, Kind: sim.FaultFence, Node: first}}
	for mn := range s.MNs {
		if mn == 0 || d.percent(70) {
			s.Plan = append(s.Plan, sim.Fault{At: max(s.JoinNs, lost-d.time(20*fabric.Microsecond)), Kind: sim.FaultDetach, Node: sim.OfMN(fabric.MemID(mn)), Until: late()})
		}
	}
	if d.percent(30) {
		s.Plan = append(s.Plan, sim.Fault{At: cut, Kind: sim.FaultPause, Node: first, Until: lost + 1 + d.time(50*fabric.Microsecond)})
	}
}
