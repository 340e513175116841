package check

// treeMutants are bugs of the B+tree.
func treeMutants() []Mutant {
	st := []Class{Tree, TreeCrash}
	crash := []Class{TreeCrash}
	return []Mutant{
		{Name: "tree-no-checksum", File: "btree/layout.go",
			Old: "|| checksum(b, used) != w.crc() {", New: "|| checksum(b, used) == 0 {",
			Breaks: "a READ of a node that was torn is believed", Classes: st},
		{Name: "tree-no-incarnation", File: "btree/layout.go",
			Old: "if n.self != want {\n\t\treturn errGone", New: "if n.self.slot() != want.slot() {\n\t\treturn errGone",
			Breaks: "a slot is taken for the node that it was: half a split is seen before it is published", Test: "btree TestExplore/half_.*"},
		{Name: "tree-owed-forgotten", File: "btree/write.go",
			Old: "if c.owed != 0 {\n\t\tat = c.owed\n\t}", New: "if c.owed < 0 {\n\t\tat = c.owed\n\t}",
			Breaks: "a writer does not write what a holder before has left to it", Classes: st},
		{Name: "owed-not-awaited", File: "hier/remote.go",
			Old: "if wait != nil {\n\t\terr = errors.Join(err, k.awaitCommit", New: "if wait != nil && h.Owing == 0 {\n\t\terr = errors.Join(err, k.awaitCommit",
			Breaks: "a release returns before what it has left to the next holder is written", Classes: st},
		{Name: "owed-lost", File: "hier/note.go",
			Old: "return k.join(x), nil, nil", New: "return nil, nil, nil",
			Breaks: "the next holder does not learn what has been left to it to write", Classes: st},
		{Name: "tree-value-unchecked", File: "btree/ops.go",
			Old: "if valueSum(b) != o.sum {", New: "if valueSum(b) == 0 && o.sum != 0 {",
			Breaks: "a large value is believed though its memory is used by another", Classes: st},
		{Name: "tree-first-record", File: "btree/layout.go",
			Old:    "(k == 8 || bytes.Equal(b[at+recordHeader+8:at+recordHeader+k], key[8:])) {\n\t\t\t\t\tlast = at\n\t\t\t\t}\n\t\t\t} else if bytes.Equal(b[at+recordHeader:at+recordHeader+k], key) {",
			New:    "(k == 8 || bytes.Equal(b[at+recordHeader+8:at+recordHeader+k], key[8:])) {\n\t\t\t\t\tlast = at\n\t\t\t\t}\n\t\t\t} else if last == 0 && bytes.Equal(b[at+recordHeader:at+recordHeader+k], key) {",
			Breaks: "of the records of a key the first counts, not the last", Classes: st},
		{Name: "tree-no-right", File: "btree/layout.go",
			Old: "if n.high.above(key, strict) {\n\t\treturn false, true\n\t}", New: "_ = strict",
			Breaks: "nobody goes to the right neighbour of a node that was split", Classes: st},
		{Name: "tree-dead-believed", File: "btree/client.go",
			Old: "if n.dead && step == 0 {\n\t\t\tok, right = false, false", New: "if false {\n\t\t\tok, right = false, false",
			Breaks: "a dead node is believed by who does not come from its left: its keys are another's by now", Classes: st},
		{Name: "tree-shared-write", File: "btree/client.go",
			Old: "Lock: c.t.lockAddr(p), Mode: lock.Exclusive,", New: "Lock: c.t.lockAddr(p), Mode: lock.Shared,",
			Breaks: "nodes are changed under shared locks", Classes: st},
		{Name: "tree-word-before-record", File: "btree/write.go",
			Old: "c.before[1] = fabric.Store(a, get64(b, 0))\n", New: "c.before[1] = fabric.Store(a, get64(b, 0))\n\tc.before[0], c.before[1] = c.before[1], c.before[0]\n",
			Breaks: "the word counts a record before that is written: a crash leaves a node that nobody can read", Classes: crash},
		{Name: "tree-no-shadow", File: "btree/write.go",
			Old: "ops[1] = fabric.Store(a, uint64(movingWord(m.version, shadow)))", New: "ops[1] = fabric.Store(a, uint64(n.word))",
			Breaks: "a node is written anew in place: a crash leaves half of it", Classes: crash},
		{Name: "tree-freed-alive", File: "btree/write.go",
			Old: "c.stats.Deaths++\n", New: "c.stats.Deaths++\n\tc.free(n.self, classNode)\n",
			Breaks: "the slot of a dead node is free before its left neighbour has let go of it", Classes: st},
		{Name: "tree-never-dead", File: "btree/write.go",
			Old: "uint64(makeWord(stateDead, n.used, n.word.crc()))", New: "uint64(makeWord(stateAlive, n.used, n.word.crc()))",
			Breaks: "the last key of a node is not deleted", Classes: st},
		{Name: "tree-never-unlinked", File: "btree/repair.go",
			Old: "if n.link == j.self && bytes.Equal(n.high.key, j.low) {", New: "if n.link == j.self && len(n.high.key) > 1000 {",
			Breaks: "dead nodes stay linked", Classes: st},
		{Name: "tree-separator-forgotten", File: "btree/write.go",
			Old: "c.stats.Splits++\n\tc.later(done)", New: "c.stats.Splits++",
			Breaks: "the new node of a split gets no separator from who split", Classes: st},
		{Name: "tree-value-leaks", File: "btree/ops.go",
			Old: "case err == nil && replaced.at != 0:\n\t\tc.free(replaced.at, classFor(replaced.size))", New: "case err == nil && replaced.at != 0:",
			Breaks: "the memory of large values that are replaced is lost", Classes: st},
		{Name: "tree-scan-backwards", File: "btree/scan.go",
			Old: "it.s.begin(0, it.edge, it.begun, false)", New: "it.s.begin(0, it.edge, false, false)",
			Breaks: "a descending scan asks for the leaf that it has seen", Classes: st},
	}
}

// treeMemoryMutants are bugs of the B+tree's memory: of slots that are given up, and of arguments that lie in a client's buffers.
func treeMemoryMutants() []Mutant {
	return []Mutant{
		{Name: "tree-slot-given-up", File: "btree/heap.go",
			Old: "if fabric.Refused(err) {\n\t\t\t\t\tt.nodes", New: "if err == nil {\n\t\t\t\t\tt.nodes",
			Breaks: "free slots that the memory node refused are given up until the compute node leaves", Test: "btree TestRefusedSlotIsKept"},
		{Name: "tree-key-in-result", File: "btree/ops.go",
			Old: "key = c.ownKey(key) // it may lie where the value is written from", New: "",
			Breaks: "a key that is a slice of a large value is overwritten by another large value", Test: "btree TestArgumentsInTheLastResult"},
		{Name: "tree-bound-in-result", File: "btree/scan.go",
			Old: "it.r.To = it.to", New: "",
			Breaks: "the end of a scan that is a slice of a result changes while the scan goes on", Test: "btree TestArgumentsInTheLastResult"},
	}
}
