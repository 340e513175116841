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
	evDetect             // the death of member a is noticed
	evNews               // member a hears of the present state of the cluster
	evAck                // the coordinator hears that member a acts on revision b
	evCall               // call a of Cluster.At
)

var eventKindNames = [...]string{"none", "start", "arrive", "effect", "tear", "complete",
	"kick", "deliver", "wake", "timer", "unwind", "detect", "news", "ack", "call"}

func (k eventKind) String() string { return eventKindNames[k] }

// An event has no pointers: moving it in the heap costs no write barrier, and
// what it is about is found by number in the cluster's tables.
type event struct {
	at   fabric.Time
	seq  uint64 // order of events of one instant: that of their making
	kind eventKind
	a    uint32
	b    uint64
}

// before returns 1 if e comes before f, else 0. It is a subtraction of 128-bit
// numbers and no branch: which of two events comes first is not to be predicted.
func (e *event) before(f *event) int {
	_, borrow := bits.Sub64(e.seq, f.seq, 0)
	_, borrow = bits.Sub64(uint64(e.at), uint64(f.at), borrow)
	return int(borrow)
}

// An eventHeap is a 4-ary heap: half the levels of a binary one, and the four
// children share two cache lines.
type eventHeap []event

const heapArity = 4

func (h *eventHeap) push(e event) {
	*h = append(*h, e)
	h.up(len(*h)-1, e)
}

// up moves the hole at i up to where e belongs, and puts e there.
func (h *eventHeap) up(i int, e event) {
	s := *h
	for i > 0 {
		parent := (i - 1) / heapArity
		if e.before(&s[parent]) == 0 {
			break
		}
		s[i] = s[parent]
		i = parent
	}
	s[i] = e
}

// pop removes the first event.
func (h *eventHeap) pop() {
	s := *h
	n := len(s) - 1
	last := s[n]
	*h = s[:n]
	if n > 0 {
		h.replace(last)
	}
}

// replace removes the first event and adds e. It moves the hole at the top all
// the way down without a look at e, which belongs near the bottom anyway.
func (h *eventHeap) replace(e event) {
	s := *h
	n := len(s)
	i := 0
	for {
		first := i*heapArity + 1
		if first+heapArity > n {
			break
		}
		c := s[first : first+heapArity : first+heapArity]
		l := c[1].before(&c[0])
		r := 2 + c[3].before(&c[2])
		l += (r - l) * c[r].before(&c[l])
		s[i] = c[l]
		i = first + l
	}
	if first := i*heapArity + 1; first < n {
		least := first
		for j := first + 1; j < n; j++ {
			least += (j - least) * s[j].before(&s[least])
		}
		s[i] = s[least]
		i = least
	}
	h.up(i, e)
}
