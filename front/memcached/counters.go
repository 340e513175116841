package memcached

import (
	"errors"
	"sync/atomic"

	"github.com/declock/declock/front"
	"github.com/declock/declock/objstore"
)

// A counter is one of those of operations.
type counter uint8

const (
	cmdGet counter = iota
	cmdSet
	cmdFlush
	cmdTouch
	cmdMeta
	getHits
	getMisses
	getExpired
	getFlushed
	deleteMisses
	deleteHits
	incrMisses
	incrHits
	decrMisses
	decrHits
	casMisses
	casHits
	casBadval
	touchHits
	touchMisses
	noMemory
	totalItems
	reclaimed
	numCounters
)

// counters are those of operations.
type counters [numCounters]atomic.Uint64

func (n *counters) add(c counter, by uint64) { n[c].Add(by) }

// looked counts a key that was found or not.
func (n *counters) looked(found bool, hits, misses counter) {
	if !found {
		hits = misses
	}
	n.add(hits, 1)
}

// got counts a get.
func (n *counters) got(found bool) {
	n.add(cmdGet, 1)
	n.looked(found, getHits, getMisses)
}

// gotMany counts gets.
func (n *counters) gotMany(all, hits int) {
	n.add(cmdGet, uint64(all))
	n.add(getHits, uint64(hits))
	n.add(getMisses, uint64(all-hits))
}

// touched counts a touch.
func (n *counters) touched(found bool) {
	n.add(cmdTouch, 1)
	n.looked(found, touchHits, touchMisses)
}

// deleted counts a delete.
func (n *counters) deleted(found bool) { n.looked(found, deleteHits, deleteMisses) }

// stored counts a request to store an item.
func (n *counters) stored(r *request, err error) {
	n.add(cmdSet, 1)
	switch {
	case errors.Is(err, objstore.ErrNoSpace):
		n.add(noMemory, 1)
	case err != nil:
	case r.mode == modeCAS && r.status == stored:
		n.add(casHits, 1)
	case r.mode == modeCAS && r.status == exists:
		n.add(casBadval, 1)
	case r.mode == modeCAS:
		n.add(casMisses, 1)
	}
	if err == nil && r.status == stored {
		n.add(totalItems, 1)
	}
}

// counted counts an incr or decr.
func (n *counters) counted(d *delta, err error) {
	hit := d.status == stored && !d.created
	switch {
	case err != nil || !hit && d.status != notFound:
	case d.decr:
		n.looked(hit, decrHits, decrMisses)
	default:
		n.looked(hit, incrHits, incrMisses)
	}
}

// metricNames are command and result of those counters that Counters has.
var metricNames = [numCounters][2]string{
	totalItems: {"set", "stored"}, noMemory: {"set", "no_memory"}, cmdFlush: {"flush", ""}, cmdMeta: {"meta", ""}, getHits: {"get", "hit"}, getMisses: {"get", "miss"},
	deleteHits: {"delete", "hit"}, deleteMisses: {"delete", "miss"}, incrHits: {"incr", "hit"}, incrMisses: {"incr", "miss"},
	decrHits: {"decr", "hit"}, decrMisses: {"decr", "miss"}, casHits: {"cas", "hit"}, casMisses: {"cas", "miss"}, casBadval: {"cas", "badval"},
	touchHits: {"touch", "hit"}, touchMisses: {"touch", "miss"},
}

// Counters returns what the server has counted. A client's "stats reset" has it begin anew.
func (s *Server) Counters() front.Counters {
	t, n := &s.counted, s.counted.total()
	c := front.Counters{Protocol: "memcached", Connections: s.accept.Open(), Accepted: s.accept.Accepted.Load(), Rejected: s.accept.Rejected.Load(), Read: t.read.Load(), Written: t.written.Load()}
	c.Gets, c.Stores = s.getTime.Timed(), s.storeTime.Timed()
	c.Requests = []front.Requests{{Command: "set", Result: "too_large", Count: t.tooLarge.Load()}}
	for i, name := range metricNames {
		if name[0] != "" {
			c.Requests = append(c.Requests, front.Requests{Command: name[0], Result: name[1], Count: n[i]})
		}
	}
	return c
}

// StoreStats returns what its clients of the store have counted; zero without a cluster.
func (s *Server) StoreStats() objstore.Stats {
	if h := s.home.Load(); h != nil {
		return h.stats()
	}
	return objstore.Stats{}
}

// counted are the counters of a server.
type counted struct {
	counters
	idled                            atomic.Uint64 // connections
	read, written                    atomic.Uint64 // bytes
	tooLarge                         atomic.Uint64 // items
	authentications, unauthenticated atomic.Uint64

	evictedBefore atomic.Uint64 // of the store, at the last reset
}

// total returns the counters of operations.
func (t *counted) total() (sum [numCounters]uint64) {
	for c := range sum {
		sum[c] = t.counters[c].Load()
	}
	return sum
}

// reset begins to count anew.
func (t *counted) reset() {
	for c := range t.counters {
		t.counters[c].Store(0)
	}
	for _, n := range []*atomic.Uint64{&t.tooLarge, &t.idled, &t.read, &t.written, &t.authentications, &t.unauthenticated} {
		n.Store(0)
	}
}
