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
			Breaks: "a node that joins between the view and the records is taken for dead", Test: "region/sweep TestTheOthersBetweenAnyTwoOperationsOfTheLeader"},
		{Name: "drop-view-before-records", File: "region/sweep/member.go",
			Old:    "\tvar v fabric.View\n\tif view != nil {\n\t\tv = view()\n\t}\n",
			New:    "",
			Also:   []Edit{{"region/sweep/member.go", "\tbuf := port.Alloc(8 * maxNodes)\n\tdefer port.Free(buf)", "\tvar v fabric.View\n\tif view != nil {\n\t\tv = view()\n\t}\n\tbuf := port.Alloc(8 * maxNodes)\n\tdefer port.Free(buf)"}},
			Breaks: "memory of a dropped store is given back while somebody uses it who joined meanwhile", Test: "region/sweep TestInUseBySomebodyWhoHasJustJoined"},
	}
}

// clerkMutants are bugs of bookkeeping, which named tests find: of sweeps, clocks and the membership.
func clerkMutants() []Mutant {
	return []Mutant{
		{Name: "sweep-owed-once", File: "region/sweep/member.go",
			Old: "makeRecord(old.open() || old.owes(),", New: "makeRecord(old.open(),",
			Breaks: "what a dead node had is forgotten when its number has been used and closed again", Test: "region/sweep TestANumberOwesUntilItIsFound"},
		{Name: "sweep-in-use-forgotten", File: "region/sweep/lead.go",
			Old: "l.whole = !pieces.Again", New: "l.whole = true",
			Breaks: "what a dead node had and others still use is never looked for again", Test: "region/sweep TestAPieceInUseIsFoundLater"},
		{Name: "sweep-wish-lost", File: "region/sweep/lead.go",
			Old: "\t\tm.forced = m.forced || m.lead.forced\n", New: "",
			Breaks: "a round that was asked for, and broken, is not begun again", Test: "region/sweep TestAForcedRoundThatIsBrokenIsBegunAgain"},
		{Name: "clock-round-exact", File: "timesync/timesync.go",
			Old: "if arrived >= n {", New: "if arrived == n {",
			Breaks: "nobody begins a round of clocks when more come than the last one knows of", Test: "timesync TestSyncMoreThanExpected"},
		{Name: "clock-round-twice", File: "timesync/timesync.go",
			Old: "ops[0].Swapped() || ops[0].Old>>arrivedBits != round", New: "ops[0].Swapped()",
			Breaks: "a node that begins a round of clocks that has begun takes off those that came since", Test: "timesync TestSyncMoreThanExpected"},
		{Name: "acknowledged-beforehand", File: "fabric/member/ledger.go",
			Old: "max(e.Acked, min(revision, l.Revision))", New: "max(e.Acked, revision)",
			Breaks: "a member acknowledges what has not happened yet", Test: "fabric/member TestLedgerAcknowledgements"},
		{Name: "last-one-kept", File: "fabric/member/ledger.go",
			Old: "\t\te.Phase, e.Since = how, l.Revision\n\t\tl.settle()", New: "\t\te.Phase, e.Since = how, l.Revision",
			Breaks: "the last member's end is forgotten by nobody", Test: "fabric/member TestLedgerAcknowledgements"},
	}
}
