package check

// lostMutants are bugs that show when a memory node comes back without its memory.
func lostMutants() []Mutant {
	locks, stores := []Class{Lost}, []Class{StoreLost}
	return []Mutant{
		{Name: "message-of-gone-memory", File: "hier/agent.go",
			Old: "if !other() {\n\t\treturn false\n\t}", New: "if !other() || other() {\n\t\treturn false\n\t}",
			Breaks: "an agent does in new memory what a message about a lock in the lost one asks for", Classes: locks},
		{Name: "address-of-gone-memory", File: "hier/life.go",
			Old: "if l.gen != a.Gen() {\n\t\treturn nil, fmt.Errorf(\"%w: %v is in", New: "if false {\n\t\treturn nil, fmt.Errorf(\"%w: %v is in",
			Breaks: "a lock's address in lost memory leads to the lock in the new one", Classes: locks},
		{Name: "loss-untold", File: "hier/life.go",
			Old: "if l.lost > max(a.told, k.since) {", New: "if l.lost > max(a.told, k.since) && false {",
			Breaks: "a session that was open is not told that memory is lost", Classes: locks},
		{Name: "loss-told-again", File: "hier/life.go",
			Old: "\t\ta.told = l.lost\n", New: "",
			Breaks: "a session is told of the same loss whenever it attaches", Classes: locks},
		{Name: "token-without-birth", File: "hier/remote.go",
			Old: "h.Aux, h.Token, h.Held = x, cql.Token(x.life.birth, place.Index, 0), true", New: "h.Aux, h.Token, h.Held = x, cql.Token(0, place.Index, 0), true",
			Breaks: "tokens begin anew in new memory", Classes: locks},
		{Name: "store-of-before", File: "objstore/lost.go",
			Old: "return s.losses != s.line.losses.Load()", New: "return false",
			Breaks: "a client goes on with the store that is gone", Classes: stores},
	}
}
