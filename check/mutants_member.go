package check

// memberMutants are bugs of the membership. Some only show where one node hears of a death and another does not yet,
// others where nodes join in the numbers of the dead.
func memberMutants() []Mutant {
	deaths := []Class{Zombie, Chaos, StoreCrash}
	joins := []Class{Crash, Zombie, Chaos}
	return []Mutant{
		{Name: "forgotten-by-some", File: "fabric/member/ledger.go",
			Old: "if e.Phase == Joined && e.Acked < revision {", New: "if e.Phase == Joined && e.IsCN() && e.Acked < revision {",
			Breaks: "the dead are out of the views before all memory nodes have cut them off", Classes: deaths},
		{Name: "fencing-not-live", File: "fabric/member/ledger.go",
			Old: "if e.IsCN() && e.Phase != Reserved {", New: "if e.IsCN() && e.Phase == Joined {",
			Breaks: "a node that has gone is not taken for live, whether it is shut out or not", Classes: deaths},
		{Name: "acknowledged-before-cut", File: "fabric/sim/member.go",
			Old: "c.tellSoon(m)\n\t\t}", New: "c.tellSoon(m)\n\t\t\tif m.mn != nil {\n\t\t\t\tc.post(c.now+1, evAck, m.index, c.ledger.Revision)\n\t\t\t}\n\t\t}",
			Breaks: "memory nodes acknowledge a death before they have cut off who died", Classes: deaths},
		{Name: "number-of-the-fenced", File: "fabric/member/ledger.go",
			Old: "taken.Add(e.CN.ID)", New: "if !e.Gone() {\n\t\t\ttaken.Add(e.CN.ID)\n\t\t}",
			Breaks: "the number of one who is being fenced is given to another", Classes: joins},
		{Name: "join-unawaited", File: "fabric/sim/node.go",
			Old: "c.ledger.View(), !c.ledger.Admits(n.member.since)", New: "c.ledger.View(), false",
			Breaks: "who joins takes locks before all others know of him", Classes: joins},
		{Name: "admitted-early", File: "fabric/member/ledger.go",
			Old: "if e.Gone() && e.Entry < revision && e.Acked < revision {", New: "if e.Gone() && e.Entry < revision && revision == 0 {",
			Breaks: "a node joins while one that has gone, and does not know it, may still reach memory", Classes: []Class{Lease}},
		{Name: "granted-below-head", File: "cql/client.go",
			Old: "return c.passed(p, owner)", New: "return p.Mode == lock.Shared, nil",
			Breaks: "a reader takes a head beyond its index for its grant, though it may be that of a reset", Test: "hier TestWaiterThatAResetDidNotAsk"},
		{Name: "view-of-before", File: "cql/agent.go",
			Old: "began := a.port.Now()", New: "began, before := a.port.Now(), a.node.View()",
			Also:   []Edit{{"cql/agent.go", "view := a.node.View()\n\t\tused :=", "view := before\n\t\tused :="}},
			Breaks: "a reset asks those who were there when it was wanted, and not who joined until it began", Test: "check TestRegressions"},
	}
}
