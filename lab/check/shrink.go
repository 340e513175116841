package check

import (
	"slices"

	"github.com/declock/declock/fabric/sim"
)

// Bounds of shrinking: runs in all, and other seeds tried for each smaller scenario.
const (
	shrinkRuns  = 1500
	shrinkSeeds = 12
)

// Shrink returns a smaller scenario in which the same judge objects: fewer
// faults, nodes, clients, rounds. It returns the number of runs that took.
func Shrink(s Scenario, judge string) (Scenario, int) {
	z := &shrinker{best: s, judge: judge}
	for z.runs < shrinkRuns && z.pass() {
	}
	return z.best, z.runs
}

type shrinker struct {
	best  Scenario
	judge string
	runs  int
}

// fails reports whether the judge objects to a scenario.
func (z *shrinker) fails(s Scenario) bool {
	z.runs++
	r, err := Run(s)
	if err != nil {
		return false
	}
	for _, v := range r.Violations {
		if v.Judge == z.judge {
			return true
		}
	}
	return false
}

// try takes a smaller scenario if it fails, with this seed or another.
func (z *shrinker) try(s Scenario) bool {
	if s.String() == z.best.String() || s.Validate() != nil {
		return false
	}
	for i := range uint64(shrinkSeeds) {
		if z.runs >= shrinkRuns {
			return false
		}
		if i > 0 {
			s.Seed = i
		}
		if z.fails(s) {
			z.best = s
			return true
		}
	}
	return false
}

// pass tries each way to be smaller once; it returns whether one worked.
func (z *shrinker) pass() bool {
	progress := false
	for i := len(z.best.Plan) - 1; i >= 0; i-- {
		s := z.best
		s.Plan = slices.Delete(slices.Clone(s.Plan), i, i+1)
		progress = z.try(s) || progress
	}
	for _, smaller := range reductions {
		for {
			s := z.best
			s.Plan = slices.Clone(s.Plan)
			if smaller(&s); !z.try(s) {
				break
			}
			progress = true
		}
	}
	return progress
}

// reductions make a scenario smaller, the most welcome first. Some make one
// that is not valid, which is not tried.
var reductions = []func(s *Scenario){
	func(s *Scenario) { s.Rounds /= 2 },
	func(s *Scenario) { s.Clients = max(1, s.Clients/2) },
	func(s *Scenario) { s.dropNode() },
	func(s *Scenario) { s.Clients-- },
	func(s *Scenario) { s.Rounds-- },
	func(s *Scenario) { s.MNs = 1 },
	func(s *Scenario) { s.Joins = max(0, s.Joins-1) },
	func(s *Scenario) { s.Leaves = max(0, s.Leaves-1) },
	func(s *Scenario) { s.NewsNs = 0 },
	func(s *Scenario) { s.Severed = max(0, s.Severed-1) },
	func(s *Scenario) { s.Locks = min(s.Locks, max(1, s.Locks-1)) },
	func(s *Scenario) { s.Keys = min(s.Keys, max(1, s.Keys-1)) },
	func(s *Scenario) { s.Side = min(s.Side, max(1, s.Side-1)) },
	func(s *Scenario) { s.Tear = 0 },
	func(s *Scenario) { s.EpochNs = 0 },
	func(s *Scenario) { s.SkewNs = 0 },
	func(s *Scenario) { s.DriftPM = 0 },
	func(s *Scenario) { s.SyncNs = 0 },
	func(s *Scenario) { s.StrayNs = 0 },
	func(s *Scenario) { s.Try = 0 },
	func(s *Scenario) { s.Deadline = 0 },
	func(s *Scenario) { s.Cancel = 0 },
	func(s *Scenario) { s.Update = 0 },
	func(s *Scenario) { s.Upgrade = 0 },
	func(s *Scenario) { s.Slots = 0 },
	func(s *Scenario) { s.HoldNs /= 4 },
	func(s *Scenario) { s.ThinkNs = 0 },
	func(s *Scenario) { s.Values = 0 },
	func(s *Scenario) { s.Scale = 100 },
	func(s *Scenario) { s.NIC = "ideal" },
	func(s *Scenario) { s.Reads = 0 },
	func(s *Scenario) { s.Reads = 50 },
	func(s *Scenario) { s.Policy = "cql"; s.room() },
	func(s *Scenario) { s.Policy = "remote-prefer" },
	func(s *Scenario) { s.Version = 27 },
	func(s *Scenario) { s.Capacity-- },
	func(s *Scenario) {
		for i := range s.Plan {
			f := &s.Plan[i]
			length := f.Until - f.At
			f.At /= 2
			if f.Until != 0 {
				f.Until = f.At + max(length/2, 1)
			}
		}
	},
}

// dropNode takes the last compute node away, and faults of it.
func (s *Scenario) dropNode() {
	s.CNs--
	s.Plan = slices.DeleteFunc(s.Plan, func(f sim.Fault) bool {
		return !s.exists(f.Node) || f.Peer != (sim.Endpoint{}) && !s.exists(f.Peer)
	})
}

// room makes the queue large enough, lest a smaller scenario be about something else.
func (s *Scenario) room() {
	for 1<<s.Capacity < s.participants() {
		s.Capacity++
	}
}
