package check

// sweepMutants are bugs of what finds the memory that the dead had.
func sweepMutants() []Mutant {
	all := []Class{Store, StoreCrash, Tree, TreeCrash}
	return []Mutant{
		{Name: "sweep-untracked", File: "region/sweep/tracker.go",
			Old: "if t.on.Load() {", New: "if false {",
			Breaks: "what passes through a compute node's hands in a round is not remembered", Classes: all},
		{Name: "sweep-one-unanswered", File: "region/sweep/lead.go",
			Old: "case r.mark() != l.word.mark():", New: "case r.mark() != l.word.mark() && cn != 1:",
			Breaks: "the leader of a round does not wait for the answers of one compute node", Classes: []Class{Store, StoreCrash}},
		{Name: "sweep-no-spans", File: "objstore/sweep.go",
			Old: "for _, s := range l.spans {", New: "for _, s := range l.spans[:0] {",
			Breaks: "what is left of extents is not struck out of the candidates", Classes: []Class{Store, StoreCrash}},
		{Name: "sweep-no-wait", File: "region/sweep/member.go",
			Old: "if !m.quiet() {", New: "if false {",
			Breaks: "a step is answered while operations are under way from before it", Classes: []Class{Store, StoreCrash}},
		{Name: "sweep-lists-too-late", File: "region/sweep/member.go",
			Old: "if k.step() > 0 {\n\t\tif err := m.strike(o, k)", New: "if m.held = (hoard{}); k.step() > 0 {\n\t\to.Held(m.held.add)\n\t\tm.held.sort()\n\t\tif err := m.strike(o, k)",
			Breaks: "lists are looked at after operations were waited for: what is on its way out of one is nowhere", Test: "region/sweep TestAPieceOnItsWayOutOfAListIsNotFound"},
	}
}
