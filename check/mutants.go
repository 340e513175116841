package check

import "slices"

// A Mutant is a planted bug: a piece of a file that is replaced. The file itself is
// not touched: the go command is told to use another (-overlay).
type Mutant struct {
	Name string
	File string // from the module's root
	Old  string // found exactly once
	New  string
	// Breaks says what it breaks.
	Breaks string
	// Classes are the classes of scenarios that may notice; none: Locks. Explore: it
	// takes the one order in a thousand that exploration finds.
	Classes []Class
	Explore string // explore the programs that contain this
	// Test is a package and a test of it that finds the mutant instead: one that seeds hardly ever meet.
	Test string
	// Also are further edits, where the code checks twice and one would not do.
	Also []Edit
}

// An Edit replaces a piece of a file.
type Edit struct{ File, Old, New string }

// countBeyondHeader is the program that finds that mutant.
const countBeyondHeader = "cql [1s 2x 3x] x1, 4 entries, 27 version bits"

// Mutants returns the planted bugs.
func Mutants() []Mutant {
	return slices.Concat(queueMutants(), resetMutants(), nodeMutants(), memberMutants(), unknownMutants(), epochMutants(), valueMutants(), fieldMutants(), storeMutants(), sweepMutants(), lifetimeMutants(), treeMutants(), treeMemoryMutants(), longMutants(), lostMutants(), toldMutants(), clerkMutants(), lapseMutants(), partMutants(), leaveMutants(), etcdMutants(), rejoinMutants(), promiseMutants())
}

// queueMutants are bugs of the queue on the memory node.
func queueMutants() []Mutant {
	return []Mutant{
		{Name: "release-borrow", File: "cql/layout.go",
			Old:    "d := uint64(1)<<y.headShift() - 1<<y.sizeShift()",
			New:    "d := uint64(1)<<y.headShift() | y.countMask()<<y.sizeShift()",
			Breaks: "the borrow of -1 in qsize runs on into qhead"},
		{Name: "no-version-check", File: "cql/layout.go",
			Old: "case got == want:", New: "case got != 0:",
			Breaks: "entries of an earlier round of the queue are taken for new ones"},
		{Name: "count-beyond-header", File: "cql/release.go",
			Old: "for i := head; i < end; i++ {", New: "for i := head; i < head+c.lay.Capacity(); i++ {",
			Breaks: "a reader counts writers that came after its release", Explore: countBeyondHeader},
		{Name: "grant-without-index", File: "cql/client.go",
			Old: "case m.Kind == msgGrant && m.Body[1] == p.Index:", New: "case m.Kind == msgGrant:",
			Breaks: "a notification for a place of before, or that comes a second time, is accepted", Classes: []Class{Cancel, Net, Break, Chaos}},
		{Name: "no-refetch", File: "cql/release.go",
			Old:    "switch more, err := c.refetch(l, i); {\n\t\t\tcase more == passed && writers == 0:",
			New:    "switch more, err := over, error(nil); {\n\t\t\tcase more == passed && writers == 0:",
			Breaks: "a writer does not wait for the entry of the next in the queue"},
		{Name: "no-refetch-reader", File: "cql/release.go",
			Old:    "if more, err := c.refetch(l, next); more != again {\n\t\t\treturn err\n\t\t}",
			New:    "return nil",
			Breaks: "a reader does not wait for the entry of the next in the queue"},
		{Name: "one-reader-only", File: "cql/release.go",
			Old: "if e.Mode() == lock.Exclusive {\n\t\t\treturn nil\n\t\t}\n\t\ti++", New: "return nil",
			Breaks: "a writer notifies the first of several readers only"},
		{Name: "reader-passes-writer", File: "cql/client.go",
			Old: "if size == 0 || p.Mode == lock.Shared && writers == 0 {\n\t\treturn c.immediate(p, reads, c.ops[1:n], chainErr)",
			New: "if size == 0 || p.Mode == lock.Shared || writers > size {\n\t\treturn c.immediate(p, reads, c.ops[1:n], chainErr)", Breaks: "readers are granted at once though a writer is there"},
		{Name: "try-ignores-readers", File: "cql/client.go",
			Old: "size > 0 && (p.Mode == lock.Exclusive || writers > 0)", New: "size > 0 && writers > 0",
			Breaks: "Try takes a lock exclusively that readers hold", Classes: []Class{Cancel, Wraps}},
		{Name: "no-entry-of-readers", File: "cql/client.go",
			Old: "e := MakeEntry(p.Mode, c.port.ID(),", New: "if p.Mode == lock.Shared {\n\t\treturn nil\n\t}\n\te := MakeEntry(p.Mode, c.port.ID(),",
			Breaks: "readers that wait write no entry"},
		{Name: "worn-round", File: "cql/layout.go",
			Old: "return y.roundOf(index) == y.versions()-1", New: "return false",
			Breaks: "the last round of a version cycle is used: entries of a cycle ago are taken for new", Classes: []Class{Wraps}},
		{Name: "overflow-unnoticed", File: "cql/client.go",
			Old: "return h.ResetID() == 0 && y.Size(h) < y.Capacity() && !y.worn", New: "return h.ResetID() == 0 && !y.worn",
			Also:   []Edit{{"cql/release.go", "case size > y.Capacity():", "case size > 2*y.Capacity():"}},
			Breaks: "more participants wait than the queue has entries", Classes: []Class{Wraps}},
		{Name: "missing-fence", File: "cql/client.go",
			Old:    "chainErr := c.port.Do(c.ops[:n])",
			New:    "chainErr := error(nil)\n\tif n > 1 {\n\t\tchainErr = c.port.Do(c.ops[1:n])\n\t}\n\tif chainErr == nil {\n\t\tchainErr = c.port.Do(c.ops[:1])\n\t}",
			Breaks: "READs of the data are executed before the FAA that acquires the lock"},
		{Name: "write-after-release", File: "cql/release.go",
			Old:    "if err := c.port.Do(c.ops[:m]); err != nil {",
			New:    "late := append([]fabric.Op(nil), c.ops[:n]...)\n\terr := c.port.Do(c.ops[n:m])\n\tif err == nil && n > 0 {\n\t\terr = c.port.Do(late)\n\t}\n\tif err != nil {",
			Breaks: "the data is written after the FAA that releases the lock"},
	}
}

// resetMutants are bugs of resets.
func resetMutants() []Mutant {
	return []Mutant{
		{Name: "wish-dropped", File: "cql/agent.go",
			Old: "case QueueOverflow, VersionOverflow:\n\t\t// It is counted", New: "case Reason(99):\n\t\t// It is counted",
			Breaks: "a lock that the head has passed on is not reset, though it counts one who was refused", Test: "check TestRegressions"},
		{Name: "acquire-in-reset", File: "cql/client.go",
			Old: "return h.ResetID() == 0 && y.Size(h) < y.Capacity() && !y.worn", New: "return y.Size(h) < y.Capacity() && !y.worn",
			Breaks: "a lock is acquired while it is reset", Classes: []Class{Wraps, Crash}},
		{Name: "reset-ignores-holders", File: "cql/agent.go",
			Old: "r.busy, a.waiting = a.parts.Freeze(l, used, a.waiting[:0])", New: "_, a.waiting = a.parts.Freeze(l, used, a.waiting[:0])",
			Breaks: "a reset does not wait for the holders", Classes: []Class{Wraps, Crash}},
		{Name: "token-reused", File: "cql/layout.go",
			Old: "r := used>>y.CapacityBits + 1", New: "r := used >> y.CapacityBits",
			Breaks: "after a reset indices, and tokens with them, are given out again", Classes: []Class{Wraps, Crash}},
		{Name: "reset-by-one", File: "cql/agent.go",
			Old: "if r.await.Len() > 0 {\n\t\treturn nil\n\t}\n\treturn a.finish(r)", New: "return a.finish(r)",
			Breaks: "a reset ends with the first answer", Classes: []Class{Wraps, Crash}},
		{Name: "no-takeover", File: "cql/agent.go",
			Old: "dead := h.ResetID() != 0 && !a.node.View().Live.Has(h.ResetID())", New: "dead := false",
			Breaks: "nobody takes the reset of a dead node over", Classes: []Class{Crash, Zombie}},
		{Name: "dead-never-answer", File: "cql/agent.go",
			Old: "r.await[w] &= live[w]", New: "_, _ = live, w",
			Breaks: "a reset waits for the answers of the dead", Classes: []Class{Crash, Zombie}},
	}
}

// nodeMutants are bugs of the hierarchy.
func nodeMutants() []Mutant {
	return []Mutant{
		{Name: "old-waiter-kept", File: "hier/life.go",
			Old: "if w.life.epoch < l.epoch {", New: "if w.life.epoch > l.epoch {",
			Breaks: "a lock of the new life is handed to a client that waits since the life before, and cannot release it", Test: "hier TestWaiterOfTheLifeBefore"},
		{Name: "handed-on-after-restart", File: "hier/remote.go",
			Old:    "if x.over() { // since we looked: clients of the new life may wait here\n\t\treturn errors.Join(err, k.releaseLost(s, x))\n\t}",
			New:    "",
			Breaks: "a lock that was lost with its memory node is handed on within the node", Classes: []Class{Restart}},
		{Name: "frozen-by-an-old-signal", File: "hier/agent.go",
			Old: "x.used = max(x.used, used)", New: "",
			Breaks: "a participant frozen by the signal of an old reset is forgotten by the next", Test: "hier TestTrapSignalOfAnOlderReset"},
		{Name: "release-overtaken", File: "hier/remote.go",
			Old:    "hold := x.place\n\ts.mu.Unlock()\n\tplace := &hold",
			New:    "hold := x.place\n\tk.resign(s, x)\n\tplace := &hold\n\tif true {\n\t\treturn k.remote.Release(place, before)\n\t}",
			Breaks: "the next client of the node does not wait for the end of the release, and overtakes it", Classes: []Class{Chaos}},
		{Name: "stamp-without-wrap", File: "hier/policy.go",
			Old: "int16(w.stamp.Micros()-x.stamp.Micros()) <= slackUs", New: "int(w.stamp.Micros()) <= int(x.stamp.Micros())+int(slackUs)",
			Breaks: "timestamps are compared without their wrap: a node keeps the lock from the others", Classes: []Class{Fair}},
		{Name: "cancelled-in-queue", File: "hier/locker.go",
			Old: "x.queue.remove(w)", New: "_ = x",
			Breaks: "a cancelled waiter stays in the queue of the local lock", Classes: []Class{Cancel}},
		{Name: "orphan-dropped", File: "hier/agent.go",
			Old: "_ = a.locker.Release(&h, nil)", New: "_ = h",
			Breaks: "the grant of a waiter that gave up is not passed on", Classes: []Class{Cancel}},
		{Name: "shared-to-writer", File: "hier/policy.go",
			Old: "w.mode != x.place.Mode && (!p.Downgrade || w.mode == lock.Exclusive)", New: "false",
			Breaks: "a node that holds a lock shared hands it to a writer of its own"},
		{Name: "readers-join-writer", File: "hier/policy.go",
			Old: "x.state != held || x.mode != lock.Shared || x.holders == 0", New: "x.state != held || x.holders == 0",
			Breaks: "a reader joins a local writer"},
		{Name: "write-after-handover", File: "hier/note.go",
			Old: "s.mu.Unlock()\n\terr := k.do(before)\n\ts.mu.Lock()", New: "var err error\n\tdefer k.do(before)",
			Breaks: "the lock is handed to a client of the node before what it protects is written"},
		{Name: "same-token", File: "hier/remote.go",
			Old: "x.seq++", New: "_ = x.seq",
			Breaks: "writers of one tenure have the same token"},
		{Name: "forever-shared", File: "hier/policy.go",
			Old: "return !x.expired", New: "return true",
			Breaks: "readers of one node keep the writers of others out", Classes: []Class{Fair}},
		{Name: "prefetch-any-tenure", File: "hier/locker.go",
			Old: "x.gen == gen && x.state == held", New: "x.state == held",
			Breaks: "a prefetched timestamp of an earlier tenure is used", Test: "hier TestTrapStalePrefetch"},
		{Name: "retired-early", File: "hier/remote.go",
			Old: "x.orphan = true", New: "x.orphan = true\n\tk.node.Retire(left)",
			Breaks: "a client's number is given to another while its grant is on its way", Classes: []Class{Cancel}},
		{Name: "impatient-users", File: "hier/doubt.go",
			Old: "if t.doubts.Load() == 0 {", New: "if t.doubts.Load() >= 0 {",
			Breaks: "who gave up comes again by FAA, as often as it likes: the counts run over", Classes: []Class{Wraps, Cancel}},
		{Name: "no-quiesced", File: "hier/remote.go",
			Old: "if frozen {\n\t\tk.remote.Quiesced(at)\n\t}", New: "_ = frozen",
			Breaks: "a holder does not tell the reset that it has released", Classes: []Class{Wraps, Crash}},
	}
}

// valueMutants are bugs of values that stay on the compute node, and of what makes releases quick.
func valueMutants() []Mutant {
	return []Mutant{
		{Name: "acknowledged-early", File: "hier/remote.go",
			Old: "wait = k.join(x)", New: "k.join(x)",
			Breaks: "a release does not wait for its value to be on the memory node: a crash loses it", Classes: []Class{Crash}},
		{Name: "value-outlives-tenure", File: "hier/remote.go",
			Old: "x.val.size, x.val.dirty = 0, false", New: "",
			Breaks: "a node takes the value of an earlier tenure for the present one"},
		{Name: "value-not-written", File: "hier/value.go",
			Old: "err := k.do(k.one[:])\n\ts.mu.Lock()", New: "var err error\n\ts.mu.Lock()",
			Breaks: "a value is taken for written that is not", Classes: []Class{Crash}},
		{Name: "lean-forgets", File: "cql/release.go",
			Old: "p.Contended && p.Lean {", New: "p.Contended && p.Lean {\n\t\treturn nil",
			Breaks: "a release that has not read the queue notifies nobody"},
		{Name: "batch-without-end", File: "hier/policy.go",
			Old: "p.Batch && w.ticket < x.gate", New: "p.Batch",
			Breaks: "a node keeps the lock for clients that came after it got it", Classes: []Class{Fair}},
	}
}

// storeMutants are bugs of the object store.
func storeMutants() []Mutant {
	st := []Class{Store, StoreCrash}
	return []Mutant{
		{Name: "freed-before-publish", File: "objstore/ops.go",
			Old: "c.before[0] = fabric.Write(k.n.at(ch.off64), b)", New: "if k.found {\n\t\tc.free(k.n, k.word.chunk())\n\t\tk.n.heap.Pop(uint8(k.word.class()))\n\t}\n\tc.before[0] = fabric.Write(k.n.at(ch.off64), b)\n\tif k.found {\n\t\tc.free(k.n, ch)\n\t}",
			Breaks: "a chunk is given to others while it is published", Classes: st},
		{Name: "stale-location", File: "objstore/client.go",
			Old: "if w.fp() != k.fp {\n\t\t\t\tcontinue\n\t\t\t}", New: "if w.fp() != k.fp {\n\t\t\t\tcontinue\n\t\t\t}\n\t\t\tif k.loaded != 0 {\n\t\t\t\tw = k.loaded\n\t\t\t}",
			Breaks: "what the location cache says is used though the bucket says otherwise", Classes: st},
		{Name: "unlocked-stale", File: "objstore/unlocked.go",
			Old: "case found != w:", New: "case w == 0:",
			Breaks: "a get without the lock takes what the location cache says, though the slot says otherwise", Classes: st},
		{Name: "unlocked-half", File: "objstore/unlocked.go",
			Old: "|| ops[0].Old != ops[4].Old {", New: "{",
			Breaks: "a get without the lock does not look whether its object was written anew meanwhile", Test: "objstore TestUnlockedGetMeetsWriter"},
		{Name: "note-of-before", File: "objstore/note.go",
			Old: "if slot >= 0 {", New: "if slot > 64 {",
			Breaks: "a holder leaves the slots as they were before its change to the next of its node", Classes: st},
		{Name: "answer-from-note", File: "objstore/note.go",
			Old: "if !k.noted {", New: "if !k.noted || k.noted {",
			Breaks: "a node that was declared dead answers what a note says", Test: "objstore TestNoteIsNoAnswerOfTheDead"},
		{Name: "any-key", File: "objstore/client.go",
			Old: "|| !bytes.Equal(b[headerSize:end], k.key)", New: "|| !bytes.Equal(b[headerSize:end], b[headerSize:end])",
			Breaks: "an object is taken for that of any key with its fingerprint", Classes: st},
		{Name: "publish-before-write", File: "objstore/client.go",
			Old: "if err := c.l.Release(&c.hold, c.before[:n+1]); err != nil {", New: "cas = &c.before[0]\n\tc.before[0], c.before[n] = c.before[n], c.before[0]\n\tif err := c.l.Release(&c.hold, c.before[:n+1]); err != nil {",
			Breaks: "the slot points to the object before it is written: a crash leaves half an object", Classes: st},
		{Name: "old-chunk-leaks", File: "objstore/ops.go",
			Old: "if k.found {\n\t\tc.free(k.n, k.word.chunk())\n\t}\n\treturn nil", New: "return nil",
			Breaks: "the memory of replaced objects is lost", Classes: st},
		{Name: "chunk-freed-twice", File: "objstore/ops.go",
			Old: "if k.found {\n\t\tc.free(k.n, k.word.chunk())\n\t}\n\treturn nil", New: "if k.found {\n\t\tc.free(k.n, k.word.chunk())\n\t\tc.free(k.n, k.word.chunk())\n\t}\n\treturn nil",
			Breaks: "a chunk is free twice: two objects share it", Classes: st},
		{Name: "append-unlocked", File: "objstore/ops.go",
			Old: "if err := c.lookup(k, lock.Exclusive); err != nil {", New: "if err := c.lookup(k, lock.Shared); err != nil {",
			Breaks: "an object is changed under a shared lock", Classes: st},
		{Name: "unique-reused", File: "objstore/client.go",
			Old: "u.next++\n\treturn u.next - 1, nil", New: "return u.next, nil",
			Breaks: "versions of an object have the same unique: cas succeeds on a changed one", Classes: st},
		{Name: "batch-given-up", File: "region/slab/slab.go",
			Old: "unknown := executed(err), !fabric.Refused(err)", New: "unknown := executed(err), err != nil",
			Breaks: "free chunks that the memory node refused are given up until the compute node leaves", Test: "objstore TestRefusedBatchIsKept"},
		{Name: "part-guessed", File: "region/parts.go",
			Old: " && len(odd) == 0", New: "",
			Breaks: "a part that is not found is taken to be on the memory node that is down, whatever other nodes have lost", Test: "region TestPartsWithANodeDown"},
		{Name: "change-unregistered", File: "objstore/missing.go",
			Old: "i == 0 && what != toRead || ", New: "",
			Breaks: "a compute node changes a store whose first memory node is down, without being registered", Test: "objstore TestOpenWithNodesDown"},
		{Name: "made-beside-down", File: "objstore/lost.go",
			Old: "return false, down\n", New: "_ = down\n\treturn false, nil\n",
			Breaks: "a store is made while a memory node that may have it is down", Test: "objstore TestMakeWithANodeDown"},
		{Name: "key-in-result", File: "objstore/client.go",
			Old: "key = c.key[:copy(c.key[:], key)]", New: "",
			Breaks: "a key that is a slice of the last result is overwritten while it is looked for", Test: "objstore TestArgumentsInTheLastResult"},
		{Name: "data-in-result", File: "objstore/ops.go",
			Old: "c.obj, c.out = c.trim(c.out), c.obj", New: "",
			Breaks: "data that is a slice of the last result is overwritten before it is appended", Test: "objstore TestArgumentsInTheLastResult"},
	}
}
