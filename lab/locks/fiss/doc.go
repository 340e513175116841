// Package fiss is FissLock: a programmable switch decides who gets a lock, and the machine of a holder keeps the holders and waiters.
//
// [Locker] is one client's lock.Locker, [Pool] what the clients of a machine have in common, [Agent] must run on each machine. [Program] is the
// decider, for package pswitch: a switch of the simulator runs it, or the agent of the compute node with the lowest number.
//
// The switch has a held bit, a mode bit, a machine and an incarnation for each lock. ACQUIRE of a free lock is granted half-way, by the
// switch, and makes the client's machine the agent of the lock. ACQUIRE of readers together is granted by the switch, too, and goes on to the agent. Any
// other goes to the agent, which queues it. The last holder's release frees the lock at the switch, or transfers agent, queue and lock
// to the first waiter's machine. Clients of the agent's machine ask it, and not the switch. docs/switch.md has all messages and states.
//
// # Packets that are lost, come twice, late or out of order
//
// Between machines and the switch any packet may. Each operation of a machine that changes registers (ACQUIRE, FREE, TRANSFER) has a slot and
// a number: the switch executes it once, and answers a copy as it answered the first. Until it is answered, it is sent anew ([Config.ResendNs]).
// An agent cannot leave before it has come to know of all readers that the switch has granted: the incarnation counts them. What comes to a machine
// without the agent goes back to the switch or the client. Messages between machines are the fabric's, which loses none; with [Config.Acks] they may be lost, too (link.go).
//
// # Differences from the paper
//
//   - The paper numbers packets by server, and takes one that is not greater than the last for a copy: a lost packet that a later one overtakes is never executed. Here
//     each slot has its numbers, and one operation at a time, and a register with its outcome, so that a lost answer can be given anew.
//   - The paper gives up an ACQUIRE after a time-out by a RELEASE, and the switch frees the lock if that comes from the agent's machine: which
//     may be the hold of another client. Here the ACQUIRE is sent anew, and a lock that is granted to a client that has given up is released then.
//   - An incarnation is never set to 0, is wider than 8 bits ([Config.IncarnationBits]), and also counts readers that are queued behind a writer that holds the lock: it is in an early stage, before the mode is known.
//   - An agent has the switch bar readers when some have passed a writer that waits ([Config.Passes]), and the paper's when time has passed.
//   - A lock without registers is a server's (package server, with [Config.Server]). Clients ask it themselves, once the switch has said so; the paper's switch sends requests on.
//   - ACQUIRE without a grant that comes to a machine without the agent goes back to the client, which asks anew under another number. The paper's goes to the
//     switch; but then a copy of it could be granted twice.
//   - FissLock-Local is as [Config.Home] has it; the paper says only that locks are with the clients that ask for them.
//   - Locks get the numbers of their registers by the switch's control plane, and not by a daemon. Packets name a lock by its address, and not by that number.
//   - An answer is not acknowledged: the request is sent anew. What is no answer is, between machines, and need not be kept in order as by TCP.
//   - Queues go in packets of 64 bytes: two waiters with the agent, four in each further message, which goes from machine to machine.
//   - A client that would wait may ask for no wait (Try), which the switch answers.
//   - Recovery has no coordinator but the view of live compute nodes. Only holders are reported: queues are made anew, in another order.
//
// # Fencing tokens
//
// A lock of 16 bytes has a second word in memory that counts exclusive grants, as lab/locks/cas has. With [Config.Plain] nothing in memory is used, and Token is always 0.
//
// # Failures
//
// When a machine or the switch has crashed, or a machine has left, the lowest live machine leads a recovery (recover.go): all machines pause and report which locks their
// clients hold; agents are rebuilt, then the registers of the switch, and all go on. What the machine held that has gone is free, what others hold stays held, and waiting clients
// ask anew. All live compute nodes must run an [Agent]. A compute node that plays the switch, and one with a server of locks without registers, must stay.
//
// Source: H. Zhang, K. Cheng, R. Chen, H. Chen, "Fast and Scalable In-network Lock Management Using Lock Fission", OSDI 2024; published code
// github.com/SJTU-IPADS/fisslock.
package fiss
