// Package pswitch is what a programmable switch can do: a [Program] runs once for each packet, over register arrays of bounded memory.
//
// The restrictions are those of an ASIC with match-action stages (Tofino): a packet goes once through the stages, in their order. An [Array] of
// registers belongs to one stage, or to several that follow each other and have a range of it each. So a pass accesses each array at most once, by one read-modify-write of one register, and arrays only
// in the order in which they were made. A program that does otherwise panics. All state between packets is in the registers; stages, and the
// memory of each, are bounded ([Memory]). A pass may send any number of packets: several are a multicast.
//
// Not here: match-action tables and their memory, and how much a stage computes. Programs find a register by a Go map, from the address of a lock: it stands for the number that the published clients have in their packets.
//
// A [Switch] runs a program. In the simulator it is a node on the path of messages (sim.Cluster.AddSwitch). On other fabrics, which have no
// such hardware, the agent of a compute node hands it the packets that come for the switch: programs and locks are the same.
//
// Source: H. Zhang, K. Cheng, R. Chen, H. Chen, "Fast and Scalable In-network Lock Management Using Lock Fission", OSDI 2024, section 2.2.
package pswitch
