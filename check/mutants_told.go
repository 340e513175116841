package check

// toldMutants are bugs of what users are told of losses, and of how soon locks of crashed nodes are reset.
func toldMutants() []Mutant {
	return []Mutant{
		{Name: "death-unasked", File: "hier/agent.go",
			Old: "a.locker.remote.AskReset(p.Lock, p.Index, cql.NodeFailure)", New: "_ = p",
			Breaks: "a client that waits when a node crashes does not ask for a reset", Test: "hier TestHolderDies"},
		{Name: "death-unsuspected", File: "hier/agent.go",
			Old: "a.lost = view.Lost\n\ta.table.suspect(a.port.Now())\n", New: "a.lost = view.Lost\n",
			Breaks: "a lock that is not released after a death is not looked at sooner", Test: "hier TestDeadHolderOfAnIdleLock"},
		{Name: "unreleased-forgotten", File: "hier/stuck.go",
			Old: "a.locker.askReset(&p)", New: "_ = p",
			Breaks: "a lock that could not be released is not reset when its memory node is back", Test: "hier TestUnreleasedLockIsResetAfterARestart"},
		{Name: "unreleased-reader-passed", File: "hier/stuck.go",
			Old: "if p.Mode == lock.Shared {", New: "if false {",
			Breaks: "a lock that a reader could not release is not reset if the head has passed that one's index", Test: "hier TestUnreleasedLockIsResetAfterARestart"},
		{Name: "interrupted-release-forgotten", File: "hier/stuck.go",
			Old: "fabric.ErrStaleEpoch, fabric.ErrInterrupted,", New: "fabric.ErrStaleEpoch,",
			Breaks: "a lock whose release was refused because of an interrupt is not reset", Test: "hier TestInterruptedReleaseIsReset"},
		{Name: "reset-not-asked-again", File: "hier/agent.go",
			Old: "a.stickAgain(m, err)", New: "_ = err",
			Breaks: "a reset that did not reach its memory node is forgotten", Test: "hier TestResetOfAnUnreleasedLockIsAskedForAgain"},
		{Name: "reattached-holder", File: "hier/life.go",
			Old: "a.life != l && a.holds > 0 {", New: "a.life != l && a.holds > 99 {",
			Breaks: "a client that holds locks of before a restart attaches to the memory node after it", Test: "hier TestRestartedMemoryNode"},
		{Name: "fenced-untold", File: "hier/life.go",
			Old: "if stale || errors.Is(err, fabric.ErrFenced) {", New: "if stale {",
			Breaks: "the holder of a lock is not notified when its node is given up", Test: "hier TestFencedHolder"},
		{Name: "lost-hold-released", File: "hier/life.go",
			Old: "\tk.vacate(s, x, err)\n\tif l := k.table", New: "\tk.vacate(s, x, err)\n\terr = nil\n\tif l := k.table",
			Breaks: "the release of a lock that was lost with its memory node returns no error", Classes: []Class{Restart}},
		{Name: "memory-unlooked", File: "hier/life.go",
			Old: "if !l.trusted.Load() {\n\t\tif err := k.look", New: "if l.epoch == 1 {\n\t\tif err := k.look",
			Breaks: "new memory is used before the node has looked which it is", Classes: []Class{Lost}},
	}
}
