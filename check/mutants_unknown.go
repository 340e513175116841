package check

// unknownMutants are bugs of what follows an operation of unknown outcome. They show where such an operation takes effect late.
func unknownMutants() []Mutant {
	late := []Class{Break, Chaos}
	left := []Class{Break, Chaos, Cancel, Wraps}
	return []Mutant{
		{Name: "reset-before-cut", File: "hier/unsettled.go",
			Old: "if a.table.settled(l) {", New: "if a.table.settled(l) || l != 0 {",
			Breaks: "a reset does not wait until an operation of unknown outcome can no longer take effect", Classes: late},
		{Name: "unknown-place-kept", File: "hier/stuck.go",
			Old: "case unknown: // the header", New: "case false: // the header",
			Breaks: "a lock that was acquired with unknown outcome is not reset once the outcome is settled", Classes: late},
		{Name: "unknown-outcome-overtaken", File: "fabric/tcp/lane.go",
			Old: "if l.r.limbo.Load() > 0 {", New: "if l.r.limbo.Load() > 1<<30 {",
			Breaks: "an operation is executed before one of unknown outcome that its node posted earlier, over another connection",
			Test:   "fabric/tcp TestNothingOvertakesAnUnknownOutcome"},
		{Name: "unknown-without-results", File: "fabric/tcp/lane.go",
			Old: "e.chain.fail(l.firstOf(n).at,", New: "e.chain.fail(e.at,",
			Breaks: "a chain of unknown outcome says that READs have results which never came",
			Test:   "fabric/tcp TestUnknownOutcomeBeginsWhereResultsAreMissing"},
		{Name: "refused-release-settled", File: "hier/stuck.go",
			Old: "if enqueued || unknown {", New: "if unknown {",
			Breaks: "a lock is not marked when its release is refused, though the holder's WRITE of before may still take effect", Classes: left},
		{Name: "marks-after-read", File: "hier/stuck.go",
			Old:    "marks := a.table.marks() // before the READ is posted\n\terr := a.port.Do([]fabric.Op{fabric.Load(fabric.At(mn, 0))})",
			New:    "err := a.port.Do([]fabric.Op{fabric.Load(fabric.At(mn, 0))})\n\tmarks := a.table.marks()",
			Breaks: "a lock that was marked while the agent's READ was under way is taken for settled by it", Test: "hier TestMarkWhileTheAgentReads"},
		{Name: "broken-off-as-refused", File: "fabric/tcp/lane.go",
			Old: "at = c.breakOff(at, err)", New: "c.fail(at, err)\n\t\t\t\tat = cursor{op: len(c.ops)}",
			Breaks: "a chain that was interrupted when a part of it was queued is reported as refused, though its connection broke",
			Test:   "fabric/tcp TestInterruptedHalfQueuedChainThenBreak"},
		{Name: "write-in-part-refused", File: "fabric/tcp/port.go",
			Old: "if at.off == 0 ||", New: "if at.off >= 0 ||",
			Breaks: "a WRITE of which a part was executed is reported as refused",
			Test:   "fabric/tcp TestWriteInPartIsNotRefused"},
		{Name: "late-timer", File: "fabric/tcp/limbo.go",
			Old: "over := p.limit.on && !time.Now().Before(p.limit.due)", New: "over := p.limit.on",
			Breaks: "a timer that was set for an earlier chain of an interrupted client, and comes late, ends the wait for the next",
			Test:   "fabric/tcp TestLateTimerEndsNoOtherWait"},
		{Name: "unwritten-waits", File: "hier/remote.go",
			Old: "x.val.dirty && unwritten == nil && k.stays", New: "x.val.dirty && k.stays",
			Breaks: "a release that could not write the lock's value waits for the holders after it, who may want another lock that its client holds",
			Test:   "hier TestFailedWriteBackWaitsForNobody"},
		{Name: "closed-as-done", File: "fabric/tcp/port.go",
			Old: "!c.lane.await(c) {", New: "!c.lane.await(c) && !p.limit.closed.Load() {",
			Breaks: "a client whose operation ends because its Port was closed hears that it succeeded, though its results never came",
			Test:   "fabric/tcp TestCloseEndsTheWaitForAMemoryNode"},
		{Name: "closed-without-hurry", File: "fabric/tcp/turn.go",
			Old: "p.hurry()\n\t\t\treturn nil", New: "return nil",
			Breaks: "a client waits for a memory node that does not answer after its Port was closed",
			Test:   "fabric/tcp TestCloseEndsTheWaitForAMemoryNode"},
	}
}

// epochMutants are bugs of what compute nodes know of the epochs of memory nodes.
func epochMutants() []Mutant {
	return []Mutant{
		{Name: "memory-epoch-unknown", File: "fabric/internal/peer/peer.go",
			Old: "return s.epochs[id].Load()", New: "return 0",
			Breaks: "a compute node does not compare the epoch of a memory node before a lock stays on it, over TCP and RDMA",
			Test:   "cn TestLostLockIsNotHandedOver"},
		{Name: "memory-before-all-know", File: "fabric/internal/peer/peer.go",
			Old: "case s.shut:", New: "case s.shut && s.state == nil:",
			Breaks: "a memory node serves a new epoch before all compute nodes know of it",
			Test:   "fabric/tcp TestMemoryNodeWaitsForAllComputeNodes"},
		{Name: "lost-wait-kept", File: "hier/stuck.go",
			Old: "a.abortLost(mn)", New: "_ = mn",
			Breaks: "a node keeps the wait that a client gave up for a lock in memory that is gone, and the client's ID",
			Test:   "hier TestGivenUpWaitForALostLock"},
		{Name: "granted-after-restart", File: "hier/locker.go",
			Old: "if k.compare(r.Lock.MN()); x.over() {", New: "if x == nil {",
			Breaks: "a waiter takes a lock that its node handed to it just before it learnt that the memory node has restarted",
			Test:   "hier TestGrantOfTheLifeBefore"},
	}
}
