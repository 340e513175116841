package check

import (
	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
)

// tenure draws what class Tenure is about: clients of a node that always find the next of their own waiting.
func (s *Scenario) tenure(d *drawer) {
	s.Policy = pick(d, "local-prefer", "local-prefer", "local-bound:5000", "declock-tf", "declock", "local-prefer+defer+lean")
	s.CNs, s.Clients, s.Locks = d.between(1, 3), d.between(2, 4), 1
	s.Reads, s.ThinkNs, s.HoldNs = pick(d, 0, 0, 0, 2), 0, pick(d, 0, 0, fabric.Time(200))
	s.Rounds = (cql.MaxSeq + d.between(50, 600)) / s.Clients
	s.Tear = 0
	s.layoutFor(d)
	s.wraps(d)
	if d.percent(50) {
		s.Version = 27
	}
}

// resets draws what class Resets is about, but for its faults.
func (s *Scenario) resets(d *drawer) {
	s.CNs, s.Clients, s.Locks = d.between(2, 4), d.between(1, 3), 1
	s.Policy = pick(d, "cql", "cql", "remote-prefer", "local-prefer", "declock-tf", "declock")
	s.Try, s.Deadline, s.Cancel = pick(d, 0, 10), pick(d, 0, 0, 30, 80), pick(d, 0, 0, 30, 80)
	s.HoldNs = pick(d, 5*fabric.Microsecond, 40*fabric.Microsecond)
	s.WaitNs = pick(d, 2*fabric.Microsecond, 20*fabric.Microsecond, 100*fabric.Microsecond)
	s.layoutFor(d)
	s.wraps(d)
	s.Version = 2
}

// lateNews draws the faults of class Resets: messages between agents that come twice, or late.
func (s *Scenario) lateNews(d *drawer) {
	for from := 1; from <= s.CNs; from++ {
		for to := 1; to <= s.CNs; to++ {
			if from == to || d.percent(40) {
				continue
			}
			kind := pick(d, sim.FaultDuplicate, sim.FaultDuplicate, sim.FaultDelay)
			s.Plan = append(s.Plan, sim.Fault{At: s.at(d) / 4, Kind: kind, Node: sim.OfCN(fabric.CNID(from)), Peer: sim.OfCN(fabric.CNID(to)),
				Delay: 1 + d.time(400*fabric.Microsecond), Until: 1 + s.horizon()*2})
		}
	}
}

// resetBound returns how long a reset may take: without faults, until the holders have released the lock, and messages have
// come and gone.
func (s *Scenario) resetBound() fabric.Time {
	if len(s.Plan) > 0 || s.Joins > 0 || s.Leaves > 0 || s.Keys > 0 {
		return fabric.Forever
	}
	bound := 50*fabric.Microsecond*fabric.Time(max(s.Scale, 100))/100 + 2*s.HoldNs + 4*s.StrayNs
	if s.leavesBehind() {
		bound += 15 * fabric.Millisecond // a node answers when what it has left behind is over: its agent looks every 5 ms
	}
	if s.Severed > 0 {
		bound += 40 * fabric.Millisecond // others pass its messages on when it has taken 10 ms, and a waiter asks again every 16
	}
	if s.SyncNs > 0 {
		bound += 2 * syncWindow // of each of two agents, that answer nothing meanwhile
	}
	return bound
}
