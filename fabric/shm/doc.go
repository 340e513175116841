// Package shm is the fabric of one machine: memory nodes are shared memory, and
// the CPU executes the operations on it. Compute nodes are processes, or several
// of them in one process; messages between them go through rings in shared
// memory. There is no daemon in between, and no cgo. Linux, amd64 and arm64.
//
// # Use
//
// One process serves a memory node, for as long as it should exist:
//
//	server, err := shm.Serve(shm.Options{Name: "demo", Size: 1 << 30})
//
// Others, or the same, join as compute nodes:
//
//	node, err := shm.Join(ctx, shm.Options{Name: "demo"})
//
// # What it promises
//
// All of fabric's contract, and more: an aligned word of a READ or WRITE of any
// size is not torn, and words are read and written in ascending order. Masked
// 8-byte atomics are there, 16-byte ones on amd64. CPU and "NIC" atomics are the
// same here, but do not count on it: on other fabrics they are not.
//
// An operation costs 12 to 25 ns and no system call, and depends on no other process: the
// process that serves the memory may be stopped. An operation is refused when
// its server has ended (fabric.ErrNodeDown), when the memory has been served
// anew (fabric.ErrStaleEpoch: see Port.Reattach), or when the cluster has given the
// compute node up (fabric.ErrFenced). What is under way when a memory node
// ends, or the Node is closed, returns fabric.ErrUnknownOutcome.
//
// Send never blocks. What does not fit into the receiver's ring waits in the
// sender, in order, and goes when there is room; it is lost with the sender's
// process.
//
// A message is seen within an operation by a process whose clients are at work,
// and by its pump otherwise, a goroutine that sleeps when nothing comes. An idle
// node costs no CPU. Short waits (below 10 ms) end within some 50 us of their
// time, longer ones within 1 ms or so.
//
// The end of a process, however it ends, is noticed at once: its locks are
// free then, and a pidfd tells when to look. In another PID namespace pidfds do
// not help, and locks are looked at every 100 ms. A process that is stopped is
// not dead here: it holds its locks.
//
// An operation that a stopped process had begun before a memory node restarted
// is not known to the new server. Served with Keep, the memory may then still
// see that one operation when the process goes on; without Keep it cannot, for
// the memory is new.
//
// # Files
//
// A cluster is a directory, /dev/shm/declock-NAME by default, for the user that
// made it only (0700):
//
//	cluster      the members: a cache line for each compute and memory node;
//	             the access key and the clock of the cluster
//	mn0, mn1 ..  memory nodes: a header page, then the memory; or a line of text
//	             that tells where the memory is (huge pages, a device)
//	cn1, cn2 ..  compute nodes: a ring of messages for each possible sender
//	cn1.bell ..  named pipes that wake a compute node
//
// Directory and files must belong to the user of the process, and no other user may be able to write to them: each is checked when it is opened
// (ErrForeign), for a user that can write to a mapped file changes what the processes do. A file that the user itself truncates is lost
// (ErrTruncated): memory is a memory node that is down, the files "cluster" and cnN fence the compute nodes that use them. No process ends by it.
//
// An open file description lock on each mn and cn file is the proof that its
// owner exists. A lock on the file cluster is held while files come and go.
// layout.go draws the headers, ring.go a ring.
//
// The last member that leaves removes everything but memory that is to be kept (Keep, Path). What a
// crash leaves, the next Serve or Join removes; List, Inspect and Remove show and
// remove it by hand.
//
// docs/shm.md has the way of an operation and of a message, and what a crash does.
//
// Source: DecLock, section 2.1, with the machine in the place of the network.
package shm
