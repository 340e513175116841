// Package netlock is NetLock: a programmable switch has the queues of the locks that are asked for most often, and a server has all other locks.
//
// [Locker] is one client's lock.Locker, [Pool] what the clients of a machine have in common, [Agent] must run on each machine. [Program] is the
// switch's, for package pswitch: a switch of the simulator runs it, or the agent of the compute node with the lowest number.
//
// A lock on the switch has a queue of [Config.Queue] entries in register arrays that all locks share. A request takes an entry, whether it is granted at once or waits: so
// an entry is a holder's or a waiter's, in the order of arrival. A release takes out the entry at the head, whosever it is: of holders together it does
// not matter whose hold has ended. Then the packet goes through the switch again (it is recirculated), once for each entry that it grants: a pass accesses one entry.
//
// A request that finds the queue full goes on to the server, which keeps it, and so do all requests after it until the queue of the switch is empty. The switch then asks the server for
// as many requests as it has entries. The server is the one that has all locks without a queue on the switch (package server).
//
// # Which locks
//
// [Config.Hot] are the locks on the switch, the hottest first, as a profile has them. Machines have the list, too, and send requests for other locks to the server, past the program. Without a profile
// the first [Config.Locks] locks that are asked for get queues, and the switch tells machines about others.
//
// # Packets that are lost, come twice, late or out of order
//
// As in package fiss: a packet that changes registers has a slot of its machine and a number, so that the switch executes it once, and it is sent anew
// until it is answered ([Config.ResendNs]). A slot is in use while a request or a release is under way. A grant that is lost is given anew when the request comes again, and so is a request that
// the server has sent back to the switch. The switch asks for requests by how many it has had of the server in all: so it may ask twice.
//
// # Differences from the paper
//
//   - The paper leaves lost packets to clients, which ask anew, and to leases: what has expired is released by the switch's control plane. There a release that comes twice, or after its lease, takes out
//     another's entry, for a release names no holder. Here packets have numbers, and there are no leases.
//   - While a switch grants waiting readers one after the other, the paper's program grants readers that arrive then at once. Those may release before it is done, by which entries that it has not seen
//     yet are free for others. Here all that arrives then waits, and is granted by the same passes.
//   - One register has what the paper keeps in two, the entries in use by mode and the requests at the server: a request that does not wait (Try) must take no entry if the lock is held.
//   - Queues of locks are equally long. The paper gives each the most that the profile has seen waiting, until its 130,000 entries are used; FissLock's evaluation has 10,000 locks of 10 entries.
//   - Quotas of tenants and priorities are not here.
//
// # Fencing tokens
//
// A lock of 16 bytes has a second word in memory that counts exclusive grants, as lab/locks/cas has. With [Config.Plain] nothing in memory is used, and Token is always 0.
//
// # Failures
//
// A machine that crashes breaks the locks on the switch that it holds or waits for: they stay held. So does one that leaves in order with a lock held, a request waiting (also one that its client has given up)
// or a release that is not answered. Other locks are not touched. Locks of the server are as those of package server. A crash of the switch or of the server's machine stops all.
//
// A machine that joins in the number of one that has gone is another: its numbers have a later incarnation, the last 20 bits of the View.Epoch when it joined. So the switch and the server take no packet of it for a copy of the other's or
// for an old one, and answer none by what has become of the other's. What the other left held stays held. A slot must not stay unused while the view changes 2^19 times, nor a packet be late by 2^20 operations of its slot.
//
// Source: Z. Yu, Y. Zhang, V. Braverman, M. Chowdhury, X. Jin, "NetLock: Fast, Centralized Lock Management Using Programmable Switches", SIGCOMM 2020, as its abstract and published
// code (github.com/netx-repo/NetLock) say; FissLock's paper (OSDI 2024), sections 2.1 and 7.1.
package netlock
