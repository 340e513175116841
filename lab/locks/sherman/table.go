package sherman

import (
	"slices"
	"sync"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// DefaultBound is the paper's number of handovers in a row within a node.
const DefaultBound = 4

// maxBound is the largest bound: what a token has room for.
const maxBound = 1<<seqBits - 2

// seqBits are the bits of a token that number the grants within a node.
const seqBits = 16

// state is a local lock's relation to the remote lock.
type state uint8

const (
	acquiring state = iota // its owner is acquiring the remote lock
	held                   // the node holds the remote lock
	releasing              // the last holder is giving the remote lock up
)

// A local is a local lock. It exists while a client of the node holds or wants
// the lock. The shard's mutex guards it, but for remote, which belongs to
// the owner while acquiring, and to the last holder while releasing.
type local struct {
	lock    fabric.Addr
	state   state
	mode    lock.Mode // of the remote lock, and so of all holders
	remote  lock.Hold
	holders int
	streak  uint32    // handovers within the node since the remote grant
	queue   []*waiter // in order of arrival
	handoff []byte    // what the last exclusive holder left to the next
}

// token returns the fencing token of the latest grant. Readers come after all writers
// of the tenures before, whose remote token they have.
func (x *local) token() lock.Token {
	switch {
	case x.remote.Token == 0:
		return 0
	case x.mode == lock.Shared:
		return x.remote.Token<<seqBits | (1<<seqBits - 1)
	}
	return x.remote.Token<<seqBits | lock.Token(x.streak)
}

// verdict is what becomes of a waiter.
type verdict uint8

const (
	undecided verdict = iota
	granted           // it holds the lock
	chosen            // it is the owner that acquires the remote lock
)

// A waiter is a client that waits for a local lock. Each Locker has one.
type waiter struct {
	client  fabric.ClientID
	mode    lock.Mode
	verdict verdict
	token   lock.Token
}

const (
	shardBits = 8
	maxFree   = 64 // local locks that a shard keeps for reuse
)

// A Table holds the local locks of one compute node. All its clients share it.
type Table struct {
	// Handoffs has holders leave handoffs to the next of the node (lock.Hold.Handoff), which the paper's lock does not. Set it before
	// the table is used.
	Handoffs bool

	bound  uint32
	shards [1 << shardBits]shard
}

// A shard holds those local locks whose addresses hash to it: no more than the node has clients.
type shard struct {
	mu    sync.Mutex
	locks []*local
	free  []*local
	_     [8]byte // shards on cache lines of their own
}

// NewTable returns an empty table. bound is how often in a row a lock is handed over within the node: up to maxBound.
func NewTable(bound uint32) *Table { return &Table{bound: min(bound, maxBound)} }

func (t *Table) shard(l fabric.Addr) *shard {
	return &t.shards[uint64(l)*0x9e3779b97f4a7c15>>(64-shardBits)]
}

// Len returns the number of locks that clients of the node hold or want.
func (t *Table) Len() int {
	n := 0
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		n += len(s.locks)
		s.mu.Unlock()
	}
	return n
}

// find returns the local lock at an address, or nil.
func (s *shard) find(l fabric.Addr) *local {
	if i := slices.IndexFunc(s.locks, func(x *local) bool { return x.lock == l }); i >= 0 {
		return s.locks[i]
	}
	return nil
}

// insert adds a local lock, for an owner that acquires the remote one.
func (s *shard) insert(l fabric.Addr, m lock.Mode) *local {
	var x *local
	if n := len(s.free); n > 0 {
		x, s.free = s.free[n-1], s.free[:n-1]
		*x = local{queue: x.queue[:0], handoff: x.handoff[:0]}
	} else {
		x = new(local)
	}
	x.lock, x.mode = l, m
	s.locks = append(s.locks, x)
	return x
}

// remove takes a local lock out, to be used again.
func (s *shard) remove(x *local) {
	i := slices.Index(s.locks, x)
	s.locks = slices.Delete(s.locks, i, i+1)
	if len(s.free) < maxFree {
		s.free = append(s.free, x)
	}
}
