package check

import "slices"

// lapseMutants are bugs in what clients and agents do after errors and deaths, and in what lives on in a local lock from one tenure,
// or reset, to the next. Named tests find them: seeds hardly ever meet them, or something else repairs what they break, later.
func lapseMutants() []Mutant {
	return slices.Concat(queueLapses(), localLapses(), sweepLapses())
}

func queueLapses() []Mutant {
	return []Mutant{
		{Name: "signal-not-repeated", File: "cql/agent.go",
			Old: "\t\t\tif died {\n\t\t\t\ta.signal(r)\n\t\t\t}\n", New: "\t\t\t_ = died\n",
			Breaks: "a reset waits for a new node that has the number of a dead one, and that got no signal", Test: "cql TestAgentSignalsAgainAfterADeath"},
		{Name: "delayed-signal-answered", File: "cql/agent.go",
			Old: "r.lock == l && r.used > used", New: "r.lock == l && r.used > used && false",
			Breaks: "a delayed signal of an earlier reset takes the place of the one that waits for an answer", Test: "cql TestAgentAnswersTheLaterReset"},
		{Name: "taken-over-ended", File: "cql/agent.go",
			Old: "case now.ResetID() != a.self():\n\t\t\treturn nil", New: "case now == 0:\n\t\t\treturn nil",
			Breaks: "a node ends the reset that another has taken over from it", Test: "cql TestAgentLeavesAResetThatWasTakenOver"},
		{Name: "reset-outlives-memory", File: "cql/agent.go",
			Old: "return r.lock.MN() == mn })", New: "return false })",
			Breaks: "a reset of before a memory node's restart goes on after it", Test: "cql TestAgentForgetsResetsOfARestartedMemoryNode"},
		{Name: "next-slot-used", File: "cql/release.go",
			Old: "gone = gone || i >= next", New: "gone = gone || i > next",
			Breaks: "a reader waits for the entry of one that the head has passed", Test: "cql TestReaderFindsTheNextSlotUsedAgain"},
		{Name: "unknown-unasked", File: "cql/client.go",
			Old: "if errors.Is(err, fabric.ErrUnknownOutcome) {\n\t\tc.AskReset(l, 0, UnknownOutcome)\n\t}", New: "",
			Breaks: "who may be counted by a header, and does not know, does not ask for a reset", Test: "cql TestErrorsAskForAReset"},
		{Name: "entry-unasked", File: "cql/client.go",
			Old: "c.AskReset(p.Lock, p.Index, UnknownOutcome)\n\t\treturn err", New: "return err",
			Breaks: "a waiter that could not write its entry does not ask for a reset", Test: "cql TestErrorsAskForAReset"},
		{Name: "queue-unread-unasked", File: "cql/release.go",
			Old: "c.AskReset(p.Lock, p.Index, UnknownOutcome)\n\t\treturn errors.Join(why, err)", New: "return errors.Join(why, err)",
			Breaks: "a client that released and cannot read which client to notify does not ask for a reset", Test: "cql TestQueueThatCannotBeRead"},
		{Name: "refetch-unasked", File: "cql/release.go",
			Old: "c.AskReset(l, index, UnknownOutcome)\n\t\treturn over, err", New: "return over, err",
			Breaks: "a client that waits for an entry and cannot read it does not ask for a reset", Test: "cql TestErrorsAskForAReset"},
		{Name: "dead-granted-unasked", File: "cql/release.go",
			Old: "\t\t// It is dead and holds the lock now.\n\t\tc.AskReset(l, index, NodeFailure)", New: "",
			Breaks: "a lock that was handed to a dead node is not reset at once", Test: "cql TestErrorsAskForAReset"},
	}
}

func localLapses() []Mutant {
	return []Mutant{
		{Name: "frozen-of-after", File: "hier/agent.go",
			Old: "x.state != acquiring && x.place.Index >= used", New: "x.state != acquiring && x.place.Index > used",
			Breaks: "a late signal of a reset aborts the first that came after it", Test: "hier TestFreezeLeavesPlacesOfAfterTheReset"},
		{Name: "frozen-for-ever", File: "hier/remote.go",
			Old: "at, frozen := x.place.Lock, x.frozen\n\tx.frozen = false\n", New: "at, frozen := x.place.Lock, x.frozen\n",
			Breaks: "a client that acquires a lock after a reset answers for that reset once more", Test: "hier TestQuiescedOnceForAReset"},
		{Name: "grant-while-acquiring", File: "hier/remote.go",
			Old: "x.grantFrom <= place.Index && place.Index < x.grantTo", New: "x.grantFrom > x.grantTo",
			Breaks: "a reader that writes its entry does not see the grant that has come for all readers", Test: "hier TestGrantWhileTheEntryIsWritten"},
		{Name: "joined-in-reset", File: "hier/policy.go",
			Old: "x.holders == 0 || x.frozen || x.queue.head", New: "x.holders == 0 || x.queue.head",
			Breaks: "readers join the holders of a lock while a reset waits for them", Test: "hier TestNoReaderJoinsInAReset"},
		{Name: "shared-in-reset", File: "hier/remote.go",
			Old: "x.queue.head != nil && !x.frozen {", New: "x.queue.head != nil {",
			Breaks: "readers that wait get a lock along with one that has it while a reset waits for the node", Test: "hier TestNoReaderJoinsInAReset"},
		{Name: "note-of-failed", File: "hier/note.go",
			Old: "if err != nil || len(text) > lock.MaxNote {", New: "if len(text) > lock.MaxNote {",
			Breaks: "a holder whose operations failed tells the next one that they are done", Test: "hier TestNoNoteOfAFailedRelease"},
		{Name: "grant-of-before-restart", File: "hier/remote.go",
			Old: "k.haveRead(s, x, r, reads)\n\t\t\t}\n\t\t\tif x.over() {", New: "k.haveRead(s, x, r, reads)\n\t\t\t}\n\t\t\tif false {",
			Breaks: "a client holds a lock that was lost before it heard of the grant", Test: "hier TestGrantFromBeforeARestart"},
		{Name: "restart-unlooked", File: "hier/life.go",
			Old: "\tif renewed {\n", New: "\tif renewed && false {\n",
			Breaks: "a node whose clients find that a memory node has restarted does not look after those who wait", Test: "hier TestWaiterHearsOfARestart"},
		{Name: "overdue-again", File: "hier/lease.go",
			Old: "if now-s.at > leaseNs && !s.told {", New: "if now-s.at > leaseNs {",
			Breaks: "a lock that is held for too long is reported again and again", Test: "hier TestOverdueHold"},
		{Name: "handovers-of-before", File: "hier/remote.go",
			Old: "x.seq, x.streak, x.sharing = 0, 0, 0", New: "x.streak, x.sharing = 0, 0",
			Breaks: "a tenure goes on with the count of handovers of the one before", Test: "hier TestTenureBeginsAnew"},
	}
}

func sweepLapses() []Mutant {
	return []Mutant{
		{Name: "sweep-late-leader", File: "region/sweep/lead.go",
			Old: "\t\tdefault:\n\t\t\tl.whole = false // a leader", New: "\t\tcase 1:\n\t\t\tl.whole = false // a leader",
			Breaks: "what a leader of before overwrites of a batch is never looked for again", Test: "region/sweep TestALeaderOfBeforeWritesLate"},
		{Name: "sweep-unstamped", File: "region/sweep/member.go",
			Old: "c == 0 || !c.stamped(k) || !m.has", New: "c == 0 || !m.has",
			Breaks: "what a leader of before has written late is struck out of the present batch", Test: "region/sweep TestALeaderOfBeforeWritesLate"},
	}
}
