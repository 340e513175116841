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
		{Name: "leaver-blocks-readers", File: "hier/locker.go",
			Old: "k.share(x, false) // readers that waited behind this writer", New: "_ = x",
			Breaks: "readers go on waiting behind a writer that has given up", Classes: []Class{Cancel}},
	}
}
