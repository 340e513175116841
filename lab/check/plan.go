package check

import (
	"fmt"
	"slices"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
)

// exists reports whether a scenario has a node, without the witness.
func (s *Scenario) exists(e sim.Endpoint) bool {
	if e.CN != 0 {
		return int(e.CN) > s.Switch && int(e.CN) <= s.Switch+s.CNs
	}
	return int(e.MN) < s.MNs+s.Spares
}

func (s *Scenario) validatePlan() error {
	for _, f := range s.Plan {
		if err := f.Validate(); err != nil {
			return fmt.Errorf("%w: %w", ErrScenario, err)
		}
		if !s.exists(f.Node) || f.Peer != (sim.Endpoint{}) && !s.exists(f.Peer) {
			return fmt.Errorf("%w: fault %v: there are %d compute nodes, %d memory nodes", ErrScenario, f, s.CNs, s.MNs+s.Spares)
		}
		if s.Copies == 0 && f.Node.CN == 0 && slices.Contains([]sim.FaultKind{sim.FaultKill, sim.FaultFence, sim.FaultPromote, sim.FaultBackup, sim.FaultDrop}, f.Kind) {
			return fmt.Errorf("%w: fault %v: memory nodes are not replicated", ErrScenario, f)
		}
		if s.Copies > 0 && f.Node.CN == 0 && (f.Kind == sim.FaultKill || f.Kind == sim.FaultFence) && !slices.ContainsFunc(s.Plan, func(g sim.Fault) bool {
			return g.Node == f.Node && g.Until > f.At && (g.Kind == sim.FaultReboot || g.Kind == sim.FaultRestart)
		}) {
			return fmt.Errorf("%w: fault %v: the memory node never comes back", ErrScenario, f)
		}
	}
	return nil
}

// deadly reports whether a compute node is killed or fenced. The switch has the first number.
func (s *Scenario) deadly(cn int) bool {
	return slices.ContainsFunc(s.Plan, func(f sim.Fault) bool {
		return int(f.Node.CN) == cn+s.Switch && (f.Kind == sim.FaultKill || f.Kind == sim.FaultFence)
	})
}

// restarts reports whether memory nodes restart.
func (s *Scenario) restarts() bool { return s.restarted() > 0 }

// restarted returns when the last memory node is back; 0: none restarts.
func (s *Scenario) restarted() (at fabric.Time) {
	if s.Copies > 0 {
		return s.Plan.End() + s.DetectNs + 8*s.NewsNs + abandonNs
	}
	for _, f := range s.Plan {
		switch f.Kind {
		case sim.FaultReboot:
			at = max(at, f.Until)
		case sim.FaultRestart:
			at = max(at, f.Until+formatNs)
		}
	}
	return at
}

// loses reports whether memory nodes come back without their memory.
func (s *Scenario) loses() bool {
	return s.Copies == 0 && slices.ContainsFunc(s.Plan, func(f sim.Fault) bool { return f.Kind == sim.FaultRestart })
}
