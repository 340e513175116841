// Package front has what the servers of other systems' protocols, in the folders below it, have in common.
package front

// Counters are what a server has counted since it began, or since a client had it begin anew.
type Counters struct {
	Protocol           string
	Connections        int    // that there are
	Accepted, Rejected uint64 // connections
	Read, Written      uint64 // bytes, from and to clients
	Gets, Stores       Timed  // operations on the store: those that read, and those that may change something
	Requests           []Requests
}

// Requests are requests of one kind with one result, in the words of the protocol's own statistics.
type Requests struct {
	Command, Result string
	Count           uint64
}
