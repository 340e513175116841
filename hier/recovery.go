package hier

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// A recovery is what a compute node knows of failures: of memory nodes that have restarted, of compute nodes that have crashed, and of
// its own leftovers in locks. Each Table has one. doc.go says what becomes of what. Clients record what they meet; the agent deals with it
// (repair.go). No shard is locked while mu is.
type recovery struct {
	mu           sync.Mutex
	incarnations map[fabric.MemID]*incarnation // the present one of each memory node that is used
	ended        *error                        // why nothing begins any more: the node is fenced
	leftovers    map[fabric.Addr]leftover
	leakSeq      uint64                   // leaks so far
	leaks        [1 << shardBits]uint32   // of leftovers, by shard
	marks        uint64                   // unsettled operations so far
	cleared      map[fabric.Addr]struct{} // locks that have been reset since suspected

	leaky     atomic.Uint64 // the shards that have leaks: a bit for each
	losses    atomic.Uint32 // memories that were lost so far
	suspected atomic.Int64  // when the node learnt last that locks may be held by no client; 0: never
	fences    fences
}

// A leftover is what may be in a lock of tickets and operations of this node, and no client of it deals with.
type leftover struct {
	// leak is not 0 if the header may count a ticket until a reset: a client gave up before the reset that had refused it was
	// over, or the outcome of an operation is unknown. The next acquisition looks before it adds itself to the
	// header (cql.Client.EnqueueCautious), so that leaks do not add up. It is the number of the leak, from 1.
	leak uint64
	// unreleased: the header counts a ticket, or may, and no client will release it: the memory node did not answer. The agent has the lock
	// reset when it does. Of several tickets: the last index, and a reader's mode if one is.
	unreleased bool
	index      uint64
	mode       lock.Mode
	term       uint16 // of the last ticket: the tickets of a term before are void
	// mark is not 0 if an operation by which a client gave the lock up, or tried to acquire it, may still take
	// effect: a frame that lies in the socket of a memory node that stands still, for example. Until it certainly does not, this node
	// answers no reset of the lock: the next holder would see its data change under it. A chain of this node that was posted after
	// the error and has been executed shows it (fabric.ErrUnknownOutcome). It is the number of the mark, from 1.
	mark uint64
}

const (
	// maxLeftovers bounds the locks that a node remembers for when a memory node is back. A lock
	// that is forgotten is found by its waiters, after Config.CQL.RecheckNs.
	maxLeftovers = 1 << 14
	// maxLeaks bounds leaks; then the older half is forgotten. A lock of which that is so has one ticket more that no client releases.
	maxLeaks = 1 << 10
	// suspicionNs is for how long after the crash of a node locks that are not released may be its:
	// nothing in a lock names its holders.
	suspicionNs = 60 * fabric.Second
	// maxCleared bounds how many locks are known not to be a crashed node's.
	maxCleared = 1 << 12
)

// change changes the leftover of a lock, and reports whether there was room. mu is locked.
func (r *recovery) change(l fabric.Addr, room int, f func(*leftover)) bool {
	x, ok := r.leftovers[l]
	if !ok && len(r.leftovers) >= room {
		return false
	}
	leak := x.leak
	f(&x)
	if i := hash(l) >> (64 - shardBits); (leak == 0) != (x.leak == 0) {
		if x.leak != 0 {
			r.leaks[i]++
		} else {
			r.leaks[i]--
		}
		if bit := uint64(1) << i; r.leaks[i] > 0 {
			r.leaky.Or(bit)
		} else {
			r.leaky.And(^bit)
		}
	}
	switch {
	case x == leftover{}:
		delete(r.leftovers, l)
		return true
	case r.leftovers == nil:
		r.leftovers = map[fabric.Addr]leftover{}
	}
	r.leftovers[l] = x
	return true
}

// addLeak records that a lock may count a ticket that no client releases: before another client of the node can come.
func (r *recovery) addLeak(l fabric.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leakSeq++
	r.change(l, maxLeftovers+maxLeaks, func(x *leftover) { x.leak = r.leakSeq })
	n := uint32(0)
	for _, k := range r.leaks {
		n += k
	}
	if n > maxLeaks {
		r.forgetLeaks()
	}
}

// forgetLeaks forgets the older half of all leaks. mu is locked.
func (r *recovery) forgetLeaks() {
	var numbers []uint64
	for _, x := range r.leftovers {
		if x.leak != 0 {
			numbers = append(numbers, x.leak)
		}
	}
	slices.Sort(numbers)
	last := numbers[len(numbers)/2]
	for l, x := range r.leftovers {
		if x.leak != 0 && x.leak <= last {
			r.change(l, maxLeftovers, func(x *leftover) { x.leak = 0 })
		}
	}
}

// mayLeak reports whether a lock may have a leak: one of its shard has.
func (r *recovery) mayLeak(l fabric.Addr) bool {
	return r.leaky.Load()>>(hash(l)>>(64-shardBits))&1 != 0
}

// leak returns the number of the leak of a lock, 0 if there is none.
func (r *recovery) leak(l fabric.Addr) uint64 {
	if !r.mayLeak(l) {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leftovers[l].leak
}

// endLeak ends the leak with a number: the lock has admitted a client since. One that has come up meanwhile stays.
func (r *recovery) endLeak(l fabric.Addr, number uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leftovers[l].leak == number {
		r.change(l, maxLeftovers, func(x *leftover) { x.leak = 0 })
	}
}

// addUnreleased records that a ticket could not be given up.
func (r *recovery) addUnreleased(p *cql.Ticket) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.change(p.Lock, maxLeftovers, func(x *leftover) {
		switch {
		case !x.unreleased || x.term < p.Term:
			x.unreleased, x.index, x.mode, x.term = true, p.Index, p.Mode, p.Term
		case x.term == p.Term:
			x.index, x.mode = max(x.index, p.Index), min(x.mode, p.Mode)
		}
	})
}

// takeUnreleased returns the unreleased tickets on a memory node, and forgets them.
func (r *recovery) takeUnreleased(mn fabric.MemID) (list []cql.Ticket) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for l, x := range r.leftovers {
		if l.MN() == mn && x.unreleased {
			list = append(list, cql.Ticket{Lock: l, Index: x.index, Mode: x.mode, Term: x.term})
			r.change(l, maxLeftovers, func(x *leftover) { x.unreleased, x.index, x.mode, x.term = false, 0, 0, 0 })
		}
	}
	return list
}

// unreleasedOn returns the memory nodes on which the node has unreleased tickets.
func (r *recovery) unreleasedOn() (list []fabric.MemID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for l, x := range r.leftovers {
		if x.unreleased && !slices.Contains(list, l.MN()) {
			list = append(list, l.MN())
		}
	}
	slices.Sort(list) // a map has no order
	return list
}

// leftoversIn reports whether some locks may have a leftover of the node that is unreleased or unsettled, and whether its agent rests: it has no request
// of its own for a reset in its inbox, and takes part in no reset of these locks.
//
// An unreleased ticket is a leftover, then a request, then a reset, and a leftover again if that fails. Each begins before the one before it ends. A leftover
// begins and ends with mu locked, so none is missed here.
func (r *recovery) leftoversIn(some func(fabric.Addr) bool) (used, rests bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for l, x := range r.leftovers {
		if x.unreleased || x.mark != 0 {
			used = used || some(l) || x.mark != 0 && l == wholeNode(l.MN())
		}
	}
	return used, r.fences.asking.Load() == 0 && !slices.ContainsFunc(r.fences.resetting(), some) // in this order
}

// wholeNode stands for all locks of a memory node. No lock is at its first byte.
func wholeNode(mn fabric.MemID) fabric.Addr { return fabric.At(mn, 0) }

// addUnsettled marks a lock. It is called before the local lock is given up.
func (r *recovery) addUnsettled(l fabric.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.marks++
	mark := func(x *leftover) { x.mark = r.marks }
	if !r.change(l, maxLeftovers, mark) {
		r.change(wholeNode(l.MN()), math.MaxInt, mark)
	}
}

// marked returns the number of marks so far. See settle.
func (r *recovery) marked() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.marks
}

// settle removes the marks of locks on a memory node, those that are not younger than a number of marks.
func (r *recovery) settle(mn fabric.MemID, marks uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for l, x := range r.leftovers {
		if l.MN() == mn && x.mark != 0 && x.mark <= marks {
			r.change(l, maxLeftovers, func(x *leftover) { x.mark = 0 })
		}
	}
}

// settled reports whether a lock has no mark.
func (r *recovery) settled(l fabric.Addr) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leftovers[l].mark == 0 && r.leftovers[wholeNode(l.MN())].mark == 0
}

// suspect begins a suspicion of all locks: another node has crashed, or a memory node has restarted.
func (r *recovery) suspect(now fabric.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleared = map[fabric.Addr]struct{}{}
	r.suspected.Store(int64(now))
}

// suspects reports whether a lock that is not released may be that of a crashed node.
func (r *recovery) suspects(l fabric.Addr, now fabric.Time) bool {
	if !r.suspicious(now) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.cleared[l]
	return !ok
}

func (r *recovery) suspicious(now fabric.Time) bool {
	at := fabric.Time(r.suspected.Load())
	return at != 0 && now-at < suspicionNs
}

// clear records that a lock has been reset: its holders now are alive.
func (r *recovery) clear(l fabric.Addr, now fabric.Time) {
	if !r.suspicious(now) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.cleared) < maxCleared {
		r.cleared[l] = struct{}{}
	}
}

// isEnded reports whether the cluster has given the node up.
func (r *recovery) isEnded() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended != nil
}

// msgFence, to the agent, from a client of its own node: what it was asked for before has been handled. Body[0] is the number of the fence.
const msgFence = fabric.MsgHier + 3

// fences are the numbers of the fences that clients have asked for, and of the last that the agent has come to.
type fences struct {
	asked, passed atomic.Uint64
	asking        atomic.Int64 // requests for resets that the agent has sent itself and not handled yet, or is about to send
	// resets are the locks in whose resets the agent takes part, as of the last message; nil: none.
	resets atomic.Pointer[[]fabric.Addr]
}

// setResets records in which resets an agent takes part.
func (f *fences) setResets(a *cql.Agent) {
	if a.Idle() {
		f.resets.Store(nil)
		return
	}
	list := a.UnderWay()
	f.resets.Store(&list)
}

// resetting returns the locks in whose resets the agent takes part.
func (f *fences) resetting() []fabric.Addr {
	if p := f.resets.Load(); p != nil {
		return *p
	}
	return nil
}

// appendState appends what distinguishes two states of the recovery.
func (r *recovery) appendState(dst []byte) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	dst = appendMap(dst, r.incarnations, func(dst []byte, mn fabric.MemID, l *incarnation) []byte { return l.appendState(appendWord(dst, mn)) })
	dst = appendBool(dst, r.ended != nil)
	dst = appendMap(dst, r.leftovers, func(dst []byte, l fabric.Addr, x leftover) []byte {
		dst = appendBool(appendWord(appendWord(dst, l), x.leak), x.unreleased)
		dst = appendWord(appendWord(appendWord(dst, x.index), x.mode), x.mark)
		if x.term != 0 {
			dst = appendWord(dst, x.term)
		}
		return dst
	})
	dst = appendWord(appendWord(appendWord(dst, r.leakSeq), r.marks), r.losses.Load())
	dst = appendMap(appendWord(dst, r.suspected.Load()), r.cleared, func(dst []byte, l fabric.Addr, _ struct{}) []byte { return appendWord(dst, l) })
	dst = appendWord(appendWord(dst, r.fences.asked.Load()), r.fences.passed.Load())
	dst = appendWord(dst, r.fences.asking.Load())
	for _, l := range r.fences.resetting() {
		dst = appendWord(dst, l)
	}
	return dst
}

// byLock sorts tickets by their locks.
func byLock(a, b cql.Ticket) int { return cmp.Compare(a.Lock, b.Lock) }
