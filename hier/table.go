package hier

import (
	"iter"
	"sync"
	"sync/atomic"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// A local is a local lock (Fig. 9): what this compute node knows of a lock
// that one of its clients holds or wants. It exists only so long.
// The shard's mutex guards it.
type local struct {
	next    *local  // in the hash chain, or the free list
	gen     uint32  // of the tenure: a prefetch of another tenure is void
	handoff handoff // in this tenure

	relation // all that a fresh local lock has zero
}

// A relation has the fields of a local lock that begin as zero each time the node begins to use the lock, until no client of it holds or wants
// it. (The handoff does not: Locker.begin clears it, and its memory is used again.)
type relation struct {
	// Table.step changes these, by the transitions that doc.go lists.
	state  state
	frozen bool   // a reset waits for this node to let go
	used   uint64 // the reset's that froze it: tickets with this index or above are of after it

	// The node as a participant in the remote queue.
	ticket             cql.Ticket      // valid from waiting to releasing
	owner              fabric.ClientID // that acquires or waits; of an abandoned ticket, the ID it gave up
	incarnation        *incarnation    // of the memory node, in which the owner began
	grantFrom, grantTo uint64          // indices of readers that a GrantRange granted while the owner was acquiring

	tenure
	pace

	queue   waiters
	arrived uint64 // waiters so far
}

// A tenure is the time from the grant of the remote lock to this node to its release.
type tenure struct {
	mode    lock.Mode // how clients hold: the remote lock's mode, or shared under an exclusive one
	seq     uint16    // exclusive grants in this tenure
	streak  uint32    // handovers within the node in this tenure
	holders int       // clients that hold
	gate    uint64    // waiters that had arrived when the tenure began
	hot     bool      // other nodes waited when this node released the lock last, if the policy asks for it (remembers)
	// unsettled: an operation of a holder has an unknown outcome, and it is not known to be over. Set in trains only: see recordUnknown.
	unsettled bool
	stamp     cql.Stamp   // earliest remote waiter, if known (prefetched, or from the grant)
	sharing   fabric.Time // since when readers have joined without looking at the remote queue
}

// A pace says for how long readers may join without looking at the remote queue.
type pace struct {
	expired  bool        // the time of the tenure has run out, and no client of the node wanted to write since
	patience uint8       // tenures in a row of which that is so, up to readersOnly
	bound    fabric.Time // that time, if it is longer than the policy's SharingNs
}

// A waiter is a client that waits for a local lock. Each Locker has one.
type waiter struct {
	next, prev  *waiter
	client      fabric.ClientID
	mode        lock.Mode
	arrival     uint64 // number of its arrival at the local lock
	stamp       cql.Stamp
	room        int    // bytes of a handoff that it can take
	same        []byte // Request.Same
	verdict     verdict
	incarnation *incarnation // of the memory node, that the client is attached to
	token       lock.Token
}

// verdict is what becomes of a waiter.
type verdict uint8

const (
	undecided verdict = iota
	granted           // it holds the lock
	chosen            // it is the owner that acquires the remote lock
	outlived          // the memory node has restarted since it came: it begins again
)

// waiters is a queue of waiters, in order of arrival.
type waiters struct {
	head, tail *waiter
}

func (q *waiters) push(w *waiter) {
	w.next, w.prev = nil, q.tail
	if q.tail == nil {
		q.head = w
	} else {
		q.tail.next = w
	}
	q.tail = w
}

func (q *waiters) remove(w *waiter) {
	if w.prev == nil {
		q.head = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.tail = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.next, w.prev = nil, nil
}

// first returns the first waiter with a mode, or nil.
func (q *waiters) first(m lock.Mode) *waiter {
	w := q.head
	for w != nil && w.mode != m {
		w = w.next
	}
	return w
}

const (
	shardBits  = 6
	minBuckets = 8
	maxFree    = 64 // local locks that a shard keeps for reuse
)

// A Table holds the local locks of one compute node. All its clients share it.
type Table struct {
	policy Policy
	shards [1 << shardBits]shard
	// handoverNs is how long a grant from another node takes to be acted on here: a moving average.
	handoverNs atomic.Int64
	hot        hotLocks
	recovery
	seen map[fabric.Addr]sighting // by the agent: see overdue
	// OnLoss is called for each hold that becomes invalid, by the goroutine that finds that out. It must not
	// use locks. Set it before the table is used; nil: none.
	OnLoss func(lock.Loss)
	// OnTransition is called for each step of a local lock's state machine, with a shard locked. Set it before the table is used; nil: none.
	OnTransition func(Transition)
}

// NewTable returns an empty table for clients that follow a policy.
func NewTable(p Policy) *Table {
	t := &Table{policy: p}
	buckets := make([]*local, minBuckets<<shardBits)
	for i := range t.shards {
		t.shards[i].buckets, buckets = buckets[:minBuckets:minBuckets], buckets[minBuckets:]
	}
	return t
}

// measure counts a handover that was sent at one time and acted on at another.
func (t *Table) measure(sent, now cql.Stamp) {
	ns := int64(int16(now.Micros()-sent.Micros())) * int64(fabric.Microsecond)
	if ns < 0 {
		return // clocks are not synchronised yet, or it took more than 32 ms
	}
	old := t.handoverNs.Load()
	t.handoverNs.Store(old + (ns-old)/8) // a lost update is no harm
}

// slackUs returns by how much the policy prefers local waiters, in microseconds.
func (t *Table) slackUs() int16 {
	if t.policy.Slack == 0 {
		return 0
	}
	ns := min(fabric.Time(t.policy.Slack)*fabric.Time(t.handoverNs.Load()), maxSlack)
	return int16(ns / fabric.Microsecond)
}

// Policy returns the policy of the table.
func (t *Table) Policy() Policy { return t.policy }

// Len returns the number of locks that clients of this node hold or want.
func (t *Table) Len() int {
	n := 0
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		n += s.count
		s.mu.Unlock()
	}
	return n
}

// A shard is a hash table with chains, which grows and shrinks by itself.
type shard struct {
	mu      sync.Mutex
	buckets []*local // a power of two
	count   int
	free    *local
	spare   int
	_       [72]byte // shards on cache lines of their own
}

func hash(l fabric.Addr) uint64 {
	h := uint64(l) * 0x9e3779b97f4a7c15
	return h ^ h>>29
}

func (t *Table) shard(h uint64) *shard { return &t.shards[h>>(64-shardBits)] }

func (t *Table) shardOf(l fabric.Addr) *shard { return t.shard(hash(l)) }

func (s *shard) bucket(h uint64) **local { return &s.buckets[h&uint64(len(s.buckets)-1)] }

// all yields the local locks at an address: more than one only without hierarchy.
func (s *shard) all(l fabric.Addr) iter.Seq[*local] {
	return func(yield func(*local) bool) {
		for x := *s.bucket(hash(l)); x != nil; x = x.next {
			if x.ticket.Lock == l && !yield(x) {
				return
			}
		}
	}
}

// find returns the local lock at an address, or nil.
func (s *shard) find(l fabric.Addr, h uint64) *local {
	for x := *s.bucket(h); x != nil; x = x.next {
		if x.ticket.Lock == l {
			return x
		}
	}
	return nil
}

// insert adds a fresh local lock, for an owner that acquires the remote one.
func (s *shard) insert(l fabric.Addr, h uint64, m lock.Mode, owner fabric.ClientID) *local {
	x := s.free
	if x != nil {
		s.free = x.next
		s.spare--
		x.gen++
		x.relation = relation{}
	} else {
		x = new(local)
	}
	x.ticket.Lock, x.ticket.Mode, x.owner = l, m, owner
	b := s.bucket(h)
	x.next = *b
	*b = x
	if s.count++; s.count > 2*len(s.buckets) {
		s.resize(4 * len(s.buckets))
	}
	return x
}

// remove takes a local lock out, to be used again.
func (s *shard) remove(x *local) {
	s.unlink(x)
	if s.spare < maxFree {
		x.next = s.free
		s.free = x
		s.spare++
	}
}

// unlink takes a local lock out.
func (s *shard) unlink(x *local) {
	p := s.bucket(hash(x.ticket.Lock))
	for *p != x {
		p = &(*p).next
	}
	*p = x.next
	if s.count--; s.count < len(s.buckets)/8 && len(s.buckets) > minBuckets {
		s.resize(len(s.buckets) / 4)
	}
}

func (s *shard) resize(n int) {
	old := s.buckets
	s.buckets = make([]*local, max(n, minBuckets))
	for _, x := range old {
		for x != nil {
			next := x.next
			b := s.bucket(hash(x.ticket.Lock))
			x.next = *b
			*b = x
			x = next
		}
	}
}

// hotLocks remembers locks for which others waited when this node released them last: at most
// one of those that share a word.
type hotLocks [1 << hotBits]atomic.Uint64

const hotBits = 9

func (h *hotLocks) at(l fabric.Addr) *atomic.Uint64 { return &h[hash(l)>>32&(1<<hotBits-1)] }

func (h *hotLocks) has(l fabric.Addr) bool { return h.at(l).Load() == uint64(l) }

// update records a release of a lock that was hot, or not.
func (h *hotLocks) update(l fabric.Addr, was, contended bool) {
	switch {
	case contended:
		h.at(l).Store(uint64(l))
	case was:
		h.at(l).CompareAndSwap(uint64(l), 0)
	}
}
