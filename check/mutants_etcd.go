package check

// etcdMutants are bugs of the membership in etcd.
func etcdMutants() []Mutant {
	return []Mutant{
		{Name: "etcd-hung-waited-for", File: "coordinator/etcd/lease.go",
			Old: "context.WithTimeout(l.keeping, l.c.opt.TTL/patience)", New: "context.WithTimeout(l.keeping, l.c.opt.Timeout)",
			Breaks: "a node renews its lease with one member of etcd only, though that one hangs", Test: "coordinator/etcd TestHungEndpoint"},
		{Name: "etcd-away-ends", File: "coordinator/etcd/lease.go",
			Old: "\t\t\tl.c.report(l.keeping, l.c.explain(l.keeping, err))\n", New: "\t\t\tl.lose()\n",
			Breaks: "a node that cannot reach etcd takes itself for dead", Test: "coordinator/etcd TestEtcdAway"},
		{Name: "etcd-join-outlives", File: "coordinator/etcd/member.go",
			Old: "return m.lease.c.cleanUp(ctx, func(ctx context.Context) error { return m.depart(ctx, how) })", New: "return m.depart(context.WithoutCancel(ctx), how)",
			Breaks: "a join whose context has ended waits until etcd answers", Test: "coordinator/etcd TestJoinEndsWithItsContext"},
		{Name: "etcd-epoch-not-brought", File: "coordinator/etcd/member.go",
			Old: "max(uint32(epoch.n), m.brought) + 1", New: "uint32(epoch.n) + 1",
			Breaks: "a memory node that etcd has forgotten gets an epoch that it has had", Test: "coordinator/etcd TestConformance"},
		{Name: "etcd-rollback-unseen", File: "coordinator/etcd/lease.go",
			Old: "case acked < p.acked:", New: "case acked < p.acked && revision < p.acked:",
			Breaks: "a restored etcd whose revision has grown again is not noticed", Test: "coordinator/etcd TestRestoredBusyBackup"},
		{Name: "etcd-histories-mixed", File: "coordinator/etcd/watch.go",
			Old: "if !w.view.continuedBy(events, w.c.prefix) {", New: "if false {",
			Breaks: "a node puts what a restored etcd tells beside what that etcd has lost", Test: "coordinator/etcd TestRestoredBeforeItIsAcknowledged"},
		{Name: "etcd-ack-of-lost", File: "coordinator/etcd/work.go",
			Old: "when := []clientv3.Cmp{c.in(v.history), c.since", New: "when := []clientv3.Cmp{c.since",
			Breaks: "the acknowledgement of what a restored etcd has lost counts for what it has", Test: "coordinator/etcd TestRestoredStateIsAcknowledged"},
		{Name: "etcd-ack-of-before", File: "coordinator/etcd/work.go",
			Old: "linked := ack >= uint64(v.unlinked)", New: "linked := true",
			Breaks: "the acknowledgement of a state from before a listing counts for the listing", Test: "coordinator/etcd TestRestoredStateIsAcknowledged"},
		{Name: "etcd-join-of-lost", File: "coordinator/etcd/member.go",
			Old: "_, err = m.lease.c.commit(ctx, []clientv3.Cmp{ours, m.lease.c.unchanged(dirNode+n.String(), revision)}, then...)", New: "err = nil",
			Breaks: "a node whose publication is lost with a restored backup is admitted by what others acknowledge later", Test: "coordinator/etcd TestJoinThatIsLostIsNotAdmitted"},
		{Name: "etcd-older-listing", File: "coordinator/etcd/watch.go",
			Old: "case v.revision < w.view.revision:\n", New: "case false:\n",
			Breaks: "a listing that is older than what the watch has shown replaces the view", Test: "coordinator/etcd TestOlderListing"},
		{Name: "etcd-same-revision", File: "coordinator/etcd/watch.go",
			Old: "if !same && v.revision == w.view.revision && w.own != nil {", New: "if false {",
			Breaks: "the acknowledgement of a state that a restored etcd has lost counts for that of the same revision that it has", Test: "coordinator/etcd TestListingOfAnotherHistory"},
		{Name: "etcd-lost-uncompared", File: "coordinator/etcd/coordinator.go",
			Old: "c.holds(keyFormat, format), c.in(v.history)}", New: "c.holds(keyFormat, format)}",
			Breaks: "two deaths that are forgotten at the same time are counted once", Test: "coordinator/etcd TestBothAreCounted"},
		{Name: "etcd-format-beside", File: "coordinator/etcd/view.go",
			Old: "v.format == formatBefore && len(v.live) == 0:", New: "v.format == formatBefore:",
			Also:   []Edit{{"coordinator/etcd/member.go", "c.holds(keyFormat, formatBefore), nobody}", "c.holds(keyFormat, formatBefore)}"}, {"coordinator/etcd/member.go", "\t\t\tnobody := ", "\t\t\t_ = "}},
			Breaks: "a node changes the format of the keys while a node of the version before lives", Test: "coordinator/etcd TestFormatBefore"},
	}
}

// rejoinMutants are bugs of memory nodes that join, or join again.
func rejoinMutants() []Mutant {
	return []Mutant{
		{Name: "rejoined-with-connections", File: "fabric/tcp/server.go",
			Old: "s.away = why\n\ts.cutAll()\n", New: "s.away = why\n",
			Also:   []Edit{{"fabric/tcp/server.go", "\ts.nic.key.Store(rand.Uint32())\n\ts.standing.Reset()", "\ts.standing.Reset()"}},
			Breaks: "a memory node that was given up goes on serving the connections that it had", Test: "fabric/tcp TestGivenUpMemoryNodeExecutesNothingOfBefore"},
		{Name: "let-in-by-state-of-before", File: "fabric/tcp/server.go",
			Old: "st == nil || !st.Has(s.own.Life) || ", New: "st == nil || ",
			Breaks: "a memory node lets a compute node in that was given up before the memory node was published", Test: "fabric/tcp TestNobodyIsLetInByAStateOfBefore"},
		{Name: "link-by-state-of-before", File: "fabric/tcp/link.go",
			Old: "!peer.Lives(st, n.own) || ", New: "",
			Breaks: "a compute node takes messages of one that was given up before it joined itself", Test: "fabric/tcp TestNobodyIsLetInByAStateOfBefore"},
		{Name: "joined-memory-wanted", File: "region/parts.go",
			Old: "case found > 0 && found == len(parts):", New: "case found > 0 && found == len(among):",
			Breaks: "a store or tree is found only if it has a part on each memory node", Test: ". TestNewcomersOpenWhatWasThereBeforeAMemoryNodeJoined"},
	}
}
