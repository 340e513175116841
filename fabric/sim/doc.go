// Package sim is a cluster in virtual time: memory nodes, compute nodes, their
// NICs and the network, and the clients' code, which is the very code that runs
// on the other fabrics.
//
// A [Cluster] is one event loop over one heap of events, ordered by time and
// then by the order of their making. Each client is a coroutine (iter.Pull) that
// the loop resumes; while it runs, nothing else does. There is no goroutine, no
// channel, no map iteration and no source of randomness but the seed, so a run is a function
// of its configuration, its seed and the program: [Cluster.Hash] says whether two were the same.
//
// # How to use it
//
// Make a cluster with [New], [Cluster.AddMN] and [Cluster.AddCN]; start clients with
// [Cluster.Go] and agents with [Cluster.GoAgent]; then [Cluster.Run], and
// [Cluster.Close] at the end, which unwinds the coroutines that still wait. A
// Port that is used outside of a client, while Run does not run, runs the cluster
// itself until its operation is over: that is handy for setting a scene.
//
// The cluster and all that belongs to it are used by one goroutine. That goes for
// the methods, too, that fabric allows any goroutine: Port.Interrupt and those of Node.
//
// # What it models
//
// [NIC] holds the model, and says of each number where it comes from. The queues
// are: the CPU core, which clients share; its queue pair to each memory node,
// in order, with a bound on READs and atomics and with fences; the wires; and
// at the memory node the pipeline and behind it the atomic unit, where atomics of
// one slot wait for each other and too many of them stall the pipeline.
//
// An operation takes effect at one instant. A READ or WRITE of more than 8 bytes may be made to tear
// into parts with an instant each ([Tear]). Between the operations of a chain anything can happen.
//
// A compute node may be on the machine of a memory node ([Cluster.Place]): its CPU reaches the memory ([fabric.Local]), and its NIC does by loopback.
//
// # Faults
//
// [Cluster.Kill], [Cluster.Pause], [Cluster.Resume] and [Cluster.Fence] are for
// compute nodes, [Cluster.KillMN], [Cluster.RestartMN] and [Cluster.RevokeMN] for
// memory nodes, [Cluster.Cut] and [Cluster.Delay] for one direction between two nodes;
// [Cluster.At] does them at a chosen time. A [Plan] is a list of faults that
// prints and parses; [DrawPlan] draws one. An [Observer] sees the history.
//
// # Without time
//
// In an [Untimed] cluster no time passes by itself: its owner is shown what can happen, and decides what does. Package lab/explore
// tries every order of events that way.
//
// Source: DecLock, section 6.1 (the testbed that [CX4] is fitted to) and appendix C.
package sim
