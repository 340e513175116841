package check

// longMutants are bugs that show in long tenures, in resets that follow on each other, and in what is left when all is over.
func longMutants() []Mutant {
	return []Mutant{
		{Name: "tenure-without-end", File: "hier/policy.go",
			Old: "x.seq == cql.MaxSeq", New: "x.seq == cql.MaxSeq+60000",
			Breaks: "a node hands a lock over more often than the token counts", Classes: []Class{Tenure}},
		{Name: "handed-on-in-reset", File: "hier/policy.go",
			Old: "if x.frozen || x.seq == cql.MaxSeq", New: "if x.seq == cql.MaxSeq",
			Breaks: "a node hands a lock on within itself while a reset waits for it", Classes: []Class{Tenure}},
		{Name: "answer-to-another-reset", File: "cql/agent.go",
			Old: "if r == nil || r.found != found {", New: "if _ = found; r == nil {",
			Breaks: "an answer to an earlier reset of the lock counts for the present one", Classes: []Class{Resets}},
		{Name: "id-not-retired", File: "hier/remote.go",
			Old: "s.mu.Unlock()\n\t\tk.node.Retire(left)\n\t\treturn err, false", New: "s.mu.Unlock()\n\t\t_ = left\n\t\treturn err, false",
			Breaks: "a client ID is lost that was abandoned while a reset aborted its wait", Classes: []Class{Resets}},
		{Name: "later-doubt-ended", File: "hier/doubt.go",
			Old: "return d == doubt{l, since}", New: "return d.lock == l",
			Breaks: "the end of a doubt ends a later one of another client of the node, too", Test: "hier TestALaterDoubtStays"},
		{Name: "epoch-twice", File: "coordinator/etcd/member.go",
			Old: "when = append(when, c.unchanged(key, epoch.modified))", New: "",
			Breaks: "a memory node gets the epoch that one with its number has had, if its view is behind", Test: "coordinator/etcd TestAnEpochIsNeverGivenOutTwice"},
		{Name: "sweep-round-not-reloaded", File: "region/sweep/lead.go",
			Old: "if w, err = m.loadRound(o.Do); err != nil || w != l.word {\n\t\treturn true, err\n\t}", New: "",
			Breaks: "the leader of a round counts a member that has just left as one that has answered", Test: "region/sweep TestTheOthersBetweenAnyTwoOperationsOfTheLeader"},
		{Name: "sweep-view-before-table", File: "region/sweep/lead.go",
			Old:    "\tv := o.View()\n\tfor i, r",
			New:    "\tfor i, r",
			Also:   []Edit{{"region/sweep/lead.go", "\t// Who registers from now on", "\tv := o.View()\n\t// Who registers from now on"}},
			Breaks: "who joins between the view and the records is taken for dead", Test: "region/sweep TestTheOthersBetweenAnyTwoOperationsOfTheLeader"},
	}
}
