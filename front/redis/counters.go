package redis

import (
	"github.com/declock/declock/front"
	"github.com/declock/declock/objstore"
)

// Counters returns what the server has counted since it began, or since a client's CONFIG RESETSTAT.
func (s *Server) Counters() front.Counters {
	t := &s.counted
	c := front.Counters{Protocol: "redis", Connections: s.accept.Open(), Accepted: s.accept.Accepted.Load(), Rejected: s.accept.Rejected.Load(),
		Read: t.read.Load(), Written: t.written.Load()}
	if a := s.store.Load(); a != nil {
		c.Gets, c.Stores = a.items.Times()
	}
	c.Requests = []front.Requests{{Command: "keyspace", Result: "hit", Count: t.hits.Load()}, {Command: "keyspace", Result: "miss", Count: t.misses.Load()},
		{Command: "any", Result: "error", Count: t.errors.Load()}, {Command: "any", Result: "over_buffers", Count: t.overBuffers.Load()}}
	for _, k := range list {
		c.Requests = append(c.Requests, front.Requests{Command: k.name, Count: t.calls[k.number].Load()})
	}
	return c
}

// StoreStats returns what operations on the store have counted; zero without a cluster.
func (s *Server) StoreStats() objstore.Stats {
	if a := s.store.Load(); a != nil {
		return a.items.Stats()
	}
	return objstore.Stats{}
}
