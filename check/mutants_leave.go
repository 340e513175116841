package check

// leaveMutants are bugs of clients that give up, and of nodes that leave.
func leaveMutants() []Mutant {
	return []Mutant{
		{Name: "left-with-tickets", File: "hier/leave.go",
			Old: "for !a.table.isEnded() {", New: "for asked && fence == 0 {",
			Breaks: "a node leaves while tickets of clients that gave up are in the queues of locks", Classes: []Class{Locks, Cancel, Wraps}},
		{Name: "left-as-if-nothing", File: "cn/node.go",
			Old: "ok && n.owes {", New: "ok && n.owes && false {",
			Breaks: "a node that could not give back what it had leaves as one that has nothing", Test: ". TestCloseWhileASessionWaits"},
		{Name: "closed-waiter-forgotten", File: "hier/stuck.go",
			Old: "\t\tk.table.stick(p)\n\t\treturn\n", New: "\t\treturn\n",
			Breaks: "the ticket of a client that was closed while it waited is not given back", Test: "hier TestLeaveAfterAWaiterWasClosed"},
		{Name: "lost-lock-kept", File: "hier/aside.go",
			Old: "if !a.node.Caps().CutsEpochs {", New: "if a != nil {",
			Breaks: "a lock that was lost with its memory node stays taken until its holder releases it", Classes: []Class{Restart}},
		{Name: "value-of-before-restart", File: "hier/locker.go",
			Old: "r.Noted, r.Owed, k.valued = 0, 0, false", New: "r.Noted, r.Owed = 0, 0",
			Breaks: "an acquisition that begins again after a restart takes a value that was kept before it, and never written", Test: "check TestRegressions"},
		{Name: "leaver-blocks-readers", File: "hier/locker.go",
			Old: "k.share(x, false) // readers that waited behind this writer", New: "_ = x",
			Breaks: "readers go on waiting behind a writer that has given up", Classes: []Class{Cancel}},
	}
}
