package check

import "slices"

// sweepMutants are bugs of what gives out memory, and of what finds the memory that crashed nodes had.
func sweepMutants() []Mutant {
	all := []Class{Store, StoreCrash, Tree, TreeCrash}
	return slices.Concat(memoryMutants(), creationMutants(), []Mutant{
		{Name: "sweep-untracked", File: "region/sweep/tracker.go",
			Old: "if t.on.Load() {", New: "if false {",
			Breaks: "what passes through a compute node's hands in a round is not remembered", Classes: all},
		{Name: "sweep-one-unanswered", File: "region/sweep/lead.go",
			Old: "case r.mark() != l.word.mark():", New: "case r.mark() != l.word.mark() && cn != 1:",
			Breaks: "the leader of a round does not wait for the answers of one compute node", Classes: []Class{Store, StoreCrash}},
		{Name: "sweep-no-spans", File: "region/slab/local.go",
			Old: "if s.next < s.end {\n\t\t\tf(s.next, s.end)", New: "if s.next < 0 {\n\t\t\tf(s.next, s.end)",
			Breaks: "what is left of runs is not struck out of the candidates", Classes: []Class{Store, StoreCrash}},
		{Name: "sweep-no-wait", File: "region/sweep/member.go",
			Old: "if !m.quiet() {", New: "if false {",
			Breaks: "a step is answered while operations are under way from before it", Classes: []Class{Store, StoreCrash}},
		{Name: "sweep-lists-too-late", File: "region/sweep/member.go",
			Old: "if k.step() > 0 {\n\t\tif err := m.strike(o, k)", New: "if m.held = (hoard{}); k.step() > 0 {\n\t\to.Held(m.held.add)\n\t\tm.held.sort()\n\t\tif err := m.strike(o, k)",
			Breaks: "lists are looked at after operations were waited for: what is on its way out of one is nowhere", Test: "region/sweep TestAPieceOnItsWayOutOfAListIsNotFound"},
	})
}

// memoryMutants are bugs of what gives out memory: pages, runs, pieces.
func memoryMutants() []Mutant {
	return []Mutant{
		{Name: "piece-taken-twice", File: "region/slab/slab.go",
			Old: "w.ops[i].Addr == word && w.ops[i].Swapped() {", New: "w.ops[i].Addr == word {",
			Breaks: "a free piece is taken though another was faster", Test: "region/slab TestTwoTakeAtOnce"},
		{Name: "run-changed-unseen", File: "region/slab/slab.go",
			Old: "same := x.run.Is(w.ops[ops].Old)", New: "same := true",
			Breaks: "a piece is taken of a run that has another class by now", Test: "objstore TestRunChangesWhileItIsTakenFrom"},
		{Name: "run-not-whole", File: "region/slab/collect.go",
			Old: "uint64(len(got)) == all {", New: "uint64(len(got)) > 0 {",
			Breaks: "a run goes to another class while others have pieces of it", Test: "objstore TestDriftingSizes"},
		{Name: "refused-batch-drops-rest", File: "region/slab/collect.go",
			Old: "h.Keep(w, class, got)\n\t\t\treturn err\n", New: "return err\n",
			Breaks: "a compute node that cannot give a batch of pieces back forgets those behind it", Test: "region/slab TestRefusedEverywhere"},
		{Name: "refused-run-dropped", File: "region/slab/postpone.go",
			Old: "h.postponed.runs = append(h.postponed.runs, x)", New: "_ = x",
			Breaks: "a run that was taken, and could not be divided at once, is forgotten", Test: "region/slab TestRefusedEverywhere"},
		{Name: "sweep-damaged-slot", File: "objstore/sweep.go",
			Old: "if !n.holds(w) {", New: "if false {",
			Breaks: "a round goes on at a slot that leads to no object: what that had is taken for garbage", Test: "objstore TestSweepOfDamagedSlot"},
		{Name: "moved-though-changed", File: "objstore/move.go",
			Old: "if !ops[2].Swapped() {", New: "if false {",
			Breaks: "a client takes an object for moved that another has changed meanwhile", Test: "objstore TestOthersWhileObjectsMove"},
		{Name: "mover-drops-old-chunk", File: "objstore/move.go",
			Old: "got = append(got, v.word.chunk().off64)", New: "_ = v",
			Breaks: "the chunk that an object was moved away from is lost, and its run stays what it is", Test: "objstore TestDriftWithoutEviction"},
		{Name: "run-untouched", File: "region/slab/slab.go",
			Old: "h.touch(w, first) // the run, which", New: "// the run, which",
			Breaks: "a run that gets its class in a round counts as garbage still", Test: "region/slab TestRunThatGetsItsClassInARound"},
		{Name: "run-rest-untouched", File: "region/slab/local.go",
			Old: "for off := s.next; off < s.end; off += s.step {\n\t\th.touch", New: "for off := s.next; off < s.next; off += s.step {\n\t\th.touch",
			Breaks: "the pieces of a run, but for the first, count as garbage if it gets its class in a round", Test: "region/slab TestPiecesOfARunThatGetsItsClassInARound"},
		{Name: "kept-untouched", File: "region/slab/local.go",
			Old: "for _, item := range items {\n\t\th.touch(w, item)", New: "for _, item := range items[:0] {\n\t\th.touch(w, item)",
			Breaks: "pieces that come back into a list, because the memory node refused them, count as garbage", Test: "region/slab TestPiecesKeptInARound"},
		{Name: "release-of-any-run", File: "region/slab/slab.go",
			Old: "x.Off == off64*unit && x.Tag == 0 && err == nil", New: "x.Off == off64*unit && err == nil",
			Breaks: "a run that has got its class since a round began is given back though it is in use", Test: "region/slab TestReleaseOfARunThatHasAClass"},
		{Name: "lists-given-but-one", File: "region/slab/collect.go",
			Old: "h.Give(w, uint8(class), batch[:n]); err", New: "h.Give(w, uint8(class), batch[1:n]); err",
			Breaks: "a compute node that gives back what it has in its lists forgets a piece of each batch", Test: "region/slab TestRefusedEverywhere"},
		{Name: "node-run-not-zeroed", File: "region/slab/slab.go",
			Old: "h.cfg.Zero != nil && h.cfg.Zero(class)", New: "h.cfg.Zero != nil && false",
			Breaks: "nodes of the tree lie where values were: their locks are what was there", Test: "btree TestNodesWhereValuesWere"},
		{Name: "change-skipped", File: "region/pages.go",
			Old: "for missing := n > 0; missing; {", New: "for missing := n > 1; missing; {",
			Breaks: "a change of one page is begun and not done", Test: "region TestGrowStoppedEverywhere"},
		{Name: "change-by-number", File: "region/pages.go",
			Old: "old.seq() != w.seq() || old.owner() != w.owner() {", New: "old.seq() != w.seq() {",
			Breaks: "pages that already have the number of a change, which wraps, are taken to be changed: two get them", Test: "region TestGrowWhenTheNumberWraps"},
		{Name: "helper-too-late", File: "region/pages.go",
			Old: "if err != nil || now != w {", New: "if _ = now; err != nil {",
			Breaks: "a node that helps to change pages, and was stopped meanwhile, changes them again", Test: "region TestGrowStoppedEverywhere"},
	}
}

// creationMutants are bugs of what makes root entries, and of what frees those that were left half made.
func creationMutants() []Mutant {
	return []Mutant{
		{Name: "maker-leaks", File: "region/root.go",
			Old: "if err := d.clear(i, st); err != nil {\n\t\treturn err\n\t}\n\tbinary", New: "if _, err := d.cas(i, st, st.free()); err != nil {\n\t\treturn err\n\t}\n\tbinary",
			Breaks: "what a crashed node had taken for a root entry that it was making is lost", Test: "region TestCreateCrashesEverywhere"},
		{Name: "own-claim-kept", File: "region/creating.go",
			Old: "case owner == d.port.ID().CN():", New: "case owner == 0:",
			Breaks: "a compute node does not free the claim of a root entry that a failed call has left behind", Test: "check TestRegressions"},
		{Name: "unpublished-claim-kept", File: "region/root.go",
			Old: "e.Name, d.giveUp(i, mine, err))", New: "e.Name, err)",
			Breaks: "a root entry that could not be published stays claimed: nobody else can make that name while its maker lives", Test: "region TestOthersCreateWhatALivingNodeLeftHalfMade"},
		{Name: "left-claim-forgotten", File: "region/creating.go",
			Old: "if cerr != nil {\n\t\ts.Creating.leave", New: "if false {\n\t\ts.Creating.leave",
			Breaks: "a compute node that cannot free the claim of a root entry does not try again", Test: "region TestOthersCreateWhatALivingNodeLeftHalfMade"},
		{Name: "left-claim-never-freed", File: "keeper.go",
			Old: "errs = append(errs, k.freeLeft())", New: "errs = append(errs, nil)",
			Breaks: "claims that could not be freed are not looked at in the background", Test: ". TestHalfMadeIsFreedInTheBackground"},
		{Name: "claim-under-way-freed", File: "region/creating.go",
			Old: "return c.claims[creation{mn, hash}] == 0", New: "return true",
			Breaks: "a compute node frees the claim of a root entry that another of its clients is making", Test: "region TestCreationUnderWayIsNotAbandoned"},
		{Name: "half-made-by-crashed-kept", File: "region/creating.go",
			Old: "case s.DeadNow != nil && s.DeadNow().Has(owner), s.Dead", New: "case s.Dead",
			Breaks: "what a crashed node left half made is kept until somebody makes that name", Test: "region TestNextCreationTakesHalfMadeEntriesBack"},
	}
}
