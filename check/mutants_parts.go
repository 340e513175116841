package check

// partMutants are bugs in what is done while memory nodes are down, and with what has been dropped. Named tests find them.
func partMutants() []Mutant {
	return []Mutant{
		{Name: "tree-missing-is-gone", File: "btree/missing.go",
			Old: "if err := c.takeIn(p.node()); err != nil {\n\t\treturn err", New: "if err := c.takeIn(p.node()); err != nil {\n\t\treturn errGone",
			Breaks: "a node on a memory node that is down is taken for one that is gone", Test: "btree TestOpenWithoutParts"},
		{Name: "tree-missing-leaks", File: "btree/missing.go",
			Old: "t.forgotten.Store(true)", New: "",
			Breaks: "large values that are replaced while their memory node is down are lost", Test: "btree TestOpenWithoutParts"},
		{Name: "tree-missing-marked", File: "btree/sweep.go",
			Old: "if err := c.whole(); err != nil {\n\t\treturn nil, err\n\t}", New: "",
			Breaks: "slots are looked for that nobody has while a memory node of the tree is down", Test: "btree TestOpenWithoutParts"},
		{Name: "record-unlooked", File: "region/sweep/member.go",
			Old: "if err := there(); err != nil {", New: "if err := there(); false && err != nil {",
			Breaks: "who registers with a store writes into memory that is something else by then", Test: "region/sweep TestRecordInMemoryThatIsUsedAgain"},
		{Name: "record-zero", File: "region/sweep/member.go",
			Old: "\tops := [1]fabric.Op{fabric.Write(base.Add(Offset+recordsAt), b)}", New: "\tclear(b)\n\tops := [1]fabric.Op{fabric.Write(base.Add(Offset+recordsAt), b)}",
			Breaks: "who registers late takes a zero in memory that is used again for a record", Test: "region/sweep TestRecordInMemoryThatIsUsedAgain"},
		{Name: "drop-unheard", File: "objstore/sweep.go",
			Old: "\treturn c.tend(view)\n}\n", New: "\tif c.s.survivors || !c.s.registered() {\n\t\treturn false, nil\n\t}\n\treturn c.tend(view)\n}\n",
			Breaks: "a compute node that takes no part in rounds does not hear that a store has been dropped", Test: "objstore TestDroppedForWhoTakesNoPart"},
		{Name: "leave-unsettled", File: "objstore/sweep.go",
			Old: "\tif err := c.settleAll(); err != nil {\n\t\treturn err\n\t}\n", New: "",
			Breaks: "a store is closed while an operation of unknown outcome may still be on its way to its memory", Test: "objstore TestLeaveSettlesEachPart"},
		{Name: "tree-flush-leaks", File: "btree/flush.go",
			Old: "c.free(v.at, classFor(v.size))", New: "_ = v",
			Breaks: "a flush loses the memory of large values", Test: "btree TestFlush"},
		{Name: "tree-unlimited", File: "btree/heap.go",
			Old: "Limit: t.geo.limit, ", New: "",
			Breaks: "a tree takes more memory than its limit", Test: "btree TestMemoryLimit"},
	}
}
