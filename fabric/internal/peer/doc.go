// Package peer is what nodes of fabrics between machines (tcp, verbs) share, whatever the network: the state of the
// cluster that a node acts on, its clock, and the address that it tells others.
package peer
