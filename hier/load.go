package hier

import (
	"slices"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
)

// A Load is what the clients of a compute node have to do with locks at a moment.
type Load struct {
	Locks   int // that are held or wanted
	Holders int
	Waiters int // for other clients of the node, and for other nodes
	Longest int // most waiters for one lock
}

// Load counts. It takes the shards' mutexes one after the other, for as long as it takes to
// look at each lock that is held or wanted.
func (t *Table) Load() (l Load) {
	t.each(l.add)
	return l
}

// LoadOf is Load of one lock.
func (t *Table) LoadOf(l fabric.Addr) (load Load) {
	s := t.shardOf(l)
	s.mu.Lock()
	defer s.mu.Unlock()
	for x := range s.all(l) {
		load.add(x)
	}
	return load
}

// add counts a local lock.
func (l *Load) add(x *local) {
	n := 0
	for w := x.queue.head; w != nil; w = w.next {
		n++
	}
	if x.state.queued() || x.state == parked {
		n++ // the owner waits for another node
	}
	l.Locks++
	l.Holders += x.holders
	l.Waiters += n
	l.Longest = max(l.Longest, n)
}

// Resetting returns the locks in whose resets this compute node takes part, as of the agent's last message. Any goroutine may call it.
func (t *Table) Resetting() []fabric.Addr {
	return slices.Compact(slices.Sorted(slices.Values(t.fences.resetting())))
}

// Counted returns the counters of resets as they were after the last message. Any goroutine may call it.
func (a *Agent) Counted() cql.AgentStats {
	a.countedMu.Lock()
	defer a.countedMu.Unlock()
	return a.counted
}

func (a *Agent) count() {
	a.countedMu.Lock()
	a.counted = *a.resets.Stats()
	a.countedMu.Unlock()
}
