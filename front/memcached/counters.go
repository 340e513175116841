package memcached

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/declock/declock/front"
	"github.com/declock/declock/objstore"
)

// A counter is one of those that workers count.
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

// counters are those of one worker, which alone adds to them.
type counters [numCounters]atomic.Uint64

func (n *counters) add(c counter, by uint64) {
	n[c].Store(n[c].Load() + by)
}

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
	c := front.Counters{Protocol: "memcached", Connections: s.open(), Accepted: t.accepted.Load(), Rejected: t.rejected.Load(), Read: t.read.Load(), Written: t.written.Load()}
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
	if p := s.pool.Load(); p != nil {
		return p.storeStats()
	}
	return objstore.Stats{}
}

// counted are the counters of a server.
type counted struct {
	accepted, rejected, closed, idled atomic.Uint64 // connections
	read, written                     atomic.Uint64 // bytes
	tooLarge                          atomic.Uint64 // items
	authentications, unauthenticated  atomic.Uint64

	evictedBefore atomic.Uint64 // of the store, at the last reset

	mu   sync.Mutex
	live []*counters
	done [numCounters]uint64 // of workers that are gone, less what was counted before the last reset
}

func (t *counted) add(n *counters) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.live = append(t.live, n)
}

func (t *counted) remove(n *counters) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, m := range t.live {
		if m == n {
			t.live = append(t.live[:i], t.live[i+1:]...)
			for c := range n {
				t.done[c] += n[c].Load()
			}
			return
		}
	}
}

// total returns all counters.
func (t *counted) total() (sum [numCounters]uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	sum = t.done
	for _, n := range t.live {
		for c := range n {
			sum[c] += n[c].Load()
		}
	}
	return sum
}

// reset begins to count anew.
func (t *counted) reset() {
	now := t.total()
	t.mu.Lock()
	for c := range now {
		t.done[c] -= now[c]
	}
	t.mu.Unlock()
	for _, n := range []*atomic.Uint64{&t.rejected, &t.tooLarge, &t.idled, &t.read, &t.written, &t.authentications, &t.unauthenticated} {
		n.Store(0)
	}
}
