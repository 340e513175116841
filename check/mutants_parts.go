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
	}
}
