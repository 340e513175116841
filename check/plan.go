package check

import (
	"fmt"
	"strings"

	"github.com/declock/declock/fabric"
)

// A Fault hurts one compute node.
type Fault struct {
	What string // kill, pause, fence
	CN   int    // from 1
	At   fabric.Time
	For  fabric.Time // pause: how long
}

func (f Fault) String() string {
	s := fmt.Sprintf("%s cn%d @%d", f.What, f.CN, int64(f.At))
	if f.For != 0 {
		s += fmt.Sprintf(" +%d", int64(f.For))
	}
	return s
}

// A Plan is the faults of a run. It prints as "kill cn2 @70000; pause cn1 @1000 +50000".
type Plan []Fault

func (p Plan) String() string {
	list := make([]string, len(p))
	for i, f := range p {
		list[i] = f.String()
	}
	return strings.Join(list, "; ")
}

// ParsePlan parses what Plan.String prints.
func ParsePlan(text string) (Plan, error) {
	var p Plan
	for part := range strings.SplitSeq(text, ";") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		var f Fault
		if n, _ := fmt.Sscanf(part, "%s cn%d @%d +%d", &f.What, &f.CN, &f.At, &f.For); n < 3 {
			return nil, fmt.Errorf("%w: fault %q", ErrScenario, part)
		}
		p = append(p, f)
	}
	return p, nil
}

func (p Plan) validate(s *Scenario) error {
	for _, f := range p {
		known := f.What == "kill" || f.What == "fence" || f.What == "pause" && f.For > 0
		if !known || f.CN < 1 || f.CN > s.CNs || f.At < 0 || f.For < 0 {
			return fmt.Errorf("%w: fault %v, there are %d compute nodes", ErrScenario, f, s.CNs)
		}
	}
	return nil
}

// deadly tells whether a compute node is killed or fenced.
func (p Plan) deadly(cn int) bool {
	for _, f := range p {
		if f.CN == cn && f.What != "pause" {
			return true
		}
	}
	return false
}

// schedule puts the faults into a world's future.
func (p Plan) schedule(w *world) {
	for _, f := range p {
		n := w.nodes[f.CN-1].sim
		at := w.began + f.At
		switch f.What {
		case "kill":
			w.c.At(at, func() { w.c.Kill(n) })
		case "fence":
			w.c.At(at, func() { w.c.Fence(n) })
		case "pause":
			w.c.At(at, func() { w.c.Pause(n) })
			w.c.At(at+f.For, func() { w.c.Resume(n) })
		}
	}
}

// end returns when the last fault is over.
func (p Plan) end() (t fabric.Time) {
	for _, f := range p {
		t = max(t, f.At+f.For)
	}
	return t
}
