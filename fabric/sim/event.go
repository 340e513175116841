package sim

import (
	"math/bits"

	"github.com/declock/declock/fabric"
)

// eventKind says what an event does; see Cluster.dispatch.
type eventKind uint8

const (
	evNone     eventKind = iota
	evStart              // task a begins
	evArrive             // a segment of chain a reaches its memory node
	evEffect             // the next operation of chain a takes effect
	evTear               // the next part of a torn operation of chain a takes effect
	evComplete           // the client of chain a sees the completion; b: core was waited for
	evKick               // queue pair a may send again
	evDeliver            // message a arrives in the inbox
	evWake               // port a goes on, if it still waits as of generation b
	evTimer              // a deadline of port a, if its timer generation is still b
	evUnwind             // task a, which was killed, unwinds
	evDetect             // the crash of member a is noticed
	evNews               // member a hears of the present state of the cluster
	evAck                // the coordinator hears that member a acts on revision b
	evAcked              // it has worked on that
	evCall               // call a of Cluster.At
	evLocal              // the CPU executes the next operation of chain a
	evLapse              // compute node a notices that its lease has run out
)

var eventKindNames = [...]string{"none", "start", "arrive", "effect", "tear", "complete",
	"kick", "deliver", "wake", "timer", "unwind", "detect", "news", "ack", "acked", "call", "local", "lapse"}

func (k eventKind) String() string { return nameOf(eventKindNames[:], k) }

// An event has no pointers: moving it costs no write barrier, and
// what it is about is found by number in the cluster's tables.
type event struct {
	b    uint64
	a    uint32
	kind eventKind
}

// A queue holds the events to come. Nearly all are near: within some microseconds. These are in a wheel with a slot for each
// nanosecond, where the events of one instant stand in the order of their making; so to add one or to take the first costs the same however
// many there are. The others wait in a heap until the wheel reaches them, before another event of their instant can be made.
type queue struct {
	base  fabric.Time      // no event is before it; the wheel reaches from here to base + wheelSpan
	slots *[wheelSpan]slot // by time modulo wheelSpan
	full  [wheelSpan / 64]uint64
	nodes []node // of the wheel
	free  uint32 // the first node that is not in use
	near  int    // events in the wheel
	far   farHeap
	seq   uint64 // far events made
}

const (
	wheelBits = 13
	wheelSpan = 1 << wheelBits // ns
	slotMask  = wheelSpan - 1
	wordMask  = wheelSpan/64 - 1
)

// A slot is the list of the events of one instant.
type slot struct{ first, last uint32 }

// A node is an event in the wheel.
type node struct {
	event
	next uint32
}

func newQueue() queue { return queue{free: none} }

// push adds an event, not before the last that was popped.
func (q *queue) push(at fabric.Time, e event) {
	if uint64(at-q.base) >= wheelSpan {
		q.seq++
		q.far.push(farEvent{at: at, seq: q.seq, event: e})
		return
	}
	q.enter(at, e)
}

// enter puts an event into the wheel.
func (q *queue) enter(at fabric.Time, e event) {
	if q.slots == nil {
		q.slots = new([wheelSpan]slot)
	}
	k := q.free
	if k == none {
		k = uint32(len(q.nodes))
		q.nodes = append(q.nodes, node{next: none})
	}
	n := &q.nodes[k]
	q.free = n.next
	*n = node{e, none}
	i := uint64(at) & slotMask
	s, word, bit := &q.slots[i], &q.full[i>>6], uint64(1)<<(i&63)
	if *word&bit != 0 {
		q.nodes[s.last].next = k
	} else {
		*word |= bit
		s.first = k
	}
	s.last = k
	q.near++
}

// first returns when the first event is; ok is false if there is none.
func (q *queue) first() (at fabric.Time, ok bool) {
	if q.near == 0 {
		if len(q.far) == 0 {
			return 0, false
		}
		return q.far[0].at, true
	}
	i := uint64(q.base) & slotMask
	w, shift := i>>6, i&63
	if x := q.full[w] >> shift; x != 0 {
		return q.base + fabric.Time(bits.TrailingZeros64(x)), true
	}
	for k := uint64(1); ; k++ { // the word of base comes last once more
		if x := q.full[(w+k)&wordMask]; x != 0 {
			return q.base + fabric.Time(k<<6-shift) + fabric.Time(bits.TrailingZeros64(x)), true
		}
	}
}

// pop removes the first event, which is at a time that first has returned.
func (q *queue) pop(at fabric.Time) event {
	q.base = at
	for len(q.far) > 0 && uint64(q.far[0].at-at) < wheelSpan {
		q.enter(q.far[0].at, q.far[0].event)
		q.far.pop()
	}
	i := uint64(at) & slotMask
	s := &q.slots[i]
	k := s.first
	n := &q.nodes[k]
	if k == s.last {
		q.full[i>>6] &^= 1 << (i & 63)
	} else {
		s.first = n.next
	}
	n.next = q.free
	q.free = k
	q.near--
	return n.event
}

// A farEvent waits in the heap.
type farEvent struct {
	at  fabric.Time
	seq uint64 // order of events of one instant: that of their making
	event
}

func (e *farEvent) before(f *farEvent) bool {
	return e.at < f.at || e.at == f.at && e.seq < f.seq
}

// A farHeap is a binary heap.
type farHeap []farEvent

func (h *farHeap) push(e farEvent) {
	*h = append(*h, e)
	s := *h
	i := len(s) - 1
	for parent := (i - 1) / 2; i > 0 && e.before(&s[parent]); parent = (i - 1) / 2 {
		s[i] = s[parent]
		i = parent
	}
	s[i] = e
}

// pop removes the first event.
func (h *farHeap) pop() {
	s := *h
	n := len(s) - 1
	e := s[n] // moves down from the top
	*h = s[:n]
	i := 0
	for c := 1; c < n; c = 2*i + 1 {
		if c+1 < n && s[c+1].before(&s[c]) {
			c++
		}
		if !s[c].before(&e) {
			break
		}
		s[i] = s[c]
		i = c
	}
	s[i] = e
}
