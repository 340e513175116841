// Package cn is a compute node: it joins the parts that its clients share (the
// table of local locks, the clock, the agent) to a fabric, and opens sessions.
//
// A [Node] is one process's membership of a cluster. A [Session] is one
// client: a Port and a lock.Locker, with contexts on top. Sessions are cheap;
// give each goroutine one of its own.
//
// docs/walks.md follows operations from a session down; docs/failures.md says what a session sees when something crashes.
//
// Start works over any fabric in real time. In the simulator there are no
// goroutines: use [New], and run [Node.Agent] as a coroutine.
package cn
