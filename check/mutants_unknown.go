package check

// unknownMutants are bugs of what follows an operation of unknown outcome. They show where such an operation takes effect late.
func unknownMutants() []Mutant {
	late := []Class{Break, Chaos}
	return []Mutant{
		{Name: "reset-before-cut", File: "hier/unsettled.go",
			Old: "if a.table.settled(l) {", New: "if a.table.settled(l) || l != 0 {",
			Breaks: "a reset does not wait until an operation of unknown outcome can no longer take effect", Classes: late},
		{Name: "unknown-place-kept", File: "hier/stuck.go",
			Old: "case unknown: // the header", New: "case false: // the header",
			Breaks: "a lock that was acquired with unknown outcome is not reset once the outcome is settled", Classes: late},
		{Name: "unknown-outcome-overtaken", File: "fabric/tcp/lane.go",
			Old: "if l.r.limbo.Load() > 0 {", New: "if l.r.limbo.Load() > 1<<30 {",
			Breaks: "an operation is executed before one of unknown outcome that its node posted earlier, over another connection",
			Test:   "fabric/tcp TestNothingOvertakesAnUnknownOutcome"},
		{Name: "unknown-without-results", File: "fabric/tcp/lane.go",
			Old: "e.chain.fail(l.firstOf(n).at.op,", New: "e.chain.fail(e.at.op,",
			Breaks: "a chain of unknown outcome says that READs have results which never came",
			Test:   "fabric/tcp TestUnknownOutcomeBeginsWhereResultsAreMissing"},
	}
}
