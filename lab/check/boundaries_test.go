package check

import (
	"slices"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
)

// faultsEverywhere runs a scenario with faults at every boundary: an instant at which an operation takes effect, a message
// arrives, or a client learns of the end of a chain, while clients are at work. Of several faults, the second happens at
// every boundary of each run with the first, and so on. So a fault hits every step of what the ones before
// have caused: the reset that follows a crash, the takeover that follows the crash of its leader.
type faultsEverywhere struct {
	Base Scenario
	// Faults, in order. At is from the boundary on (Until the end of those that have one, from there on).
	Faults []sim.Fault
	// Stride: only every so manieth boundary, beginning at another one in each run. 1: all.
	Stride int
	// From is the first boundary of the outermost fault.
	From int
	// Join has a compute node join at every boundary after the faults.
	Join bool

	Runs     int
	Failed   int // operations on stores, in all runs
	Resets   uint64
	Taken    uint64 // resets that were taken over
	Copied   uint64 // backups that have come in sync
	Failures []*Failure
}

// Run runs all of it, up to the first failure.
func (x *faultsEverywhere) Run() error {
	_, err := x.run(x.Base, x.Faults, 0, x.From)
	return err
}

// run runs a scenario, and with each of the faults at each of its boundaries after a time. It returns whether all holds.
func (x *faultsEverywhere) run(s Scenario, faults []sim.Fault, after fabric.Time, first int) (bool, error) {
	w, err := newWorld(s, false)
	if err != nil {
		return false, err
	}
	var boundaries []fabric.Time
	w.tap.each = func(e *sim.Event) {
		at := e.Time - w.began
		if n := len(boundaries); w.working > 0 && at > after && (n == 0 || boundaries[n-1] != at) {
			boundaries = append(boundaries, at)
		}
	}
	r := w.play()
	x.Runs++
	x.Failed += w.unknown
	x.Resets += r.Resets
	x.Copied += r.Copied
	for _, n := range w.nodes {
		x.Taken += n.agent.Resets().TakenOver
	}
	if r.Bad() {
		_, f, err := Judge(s, false)
		x.Failures = append(x.Failures, f)
		return false, err
	}
	for i := first; i < len(boundaries); i += x.Stride {
		next, rest, at := s, faults, boundaries[i]
		switch {
		case len(faults) > 0:
			f := faults[0]
			f.At += at
			if f.Until != 0 {
				f.Until += f.At
			}
			next.Plan, rest, at = append(slices.Clone(s.Plan), f), faults[1:], f.At
		case x.Join && s.Joins == 0:
			next.Joins, next.JoinNs = 1, at
		default:
			return true, nil
		}
		if ok, err := x.run(next, rest, at, i%x.Stride); !ok || err != nil {
			return ok, err
		}
	}
	return true, nil
}
