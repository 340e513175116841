package oracle

import (
	"fmt"
	"maps"
	"slices"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// A Header is a lock's header as docs/protocol.md describes it, taken apart.
type Header struct {
	Head, Size, Writers uint64
	Reset               uint8
}

// DecodeHeader takes a header word apart; capacityBits is c.
//
//	63         2c+10 2c+9    c+9 c+8     8 7       0
//	     qhead          qsize       wcnt     resetID
func DecodeHeader(capacityBits uint8, word uint64) Header {
	width := uint64(capacityBits) + 1
	count := uint64(1)<<width - 1
	return Header{
		Head:    word >> (8 + 2*width),
		Size:    word >> (8 + width) & count,
		Writers: word >> 8 & count,
		Reset:   uint8(word),
	}
}

// CheckHeader says what is wrong with the header of a lock at rest, or "".
func CheckHeader(capacityBits uint8, word uint64) string {
	h := DecodeHeader(capacityBits, word)
	if h.Size != 0 || h.Writers != 0 || h.Reset != 0 {
		return fmt.Sprintf("a lock that nobody uses has %+v", h)
	}
	return ""
}

// CheckHeaderOf says what is wrong with the header of a lock that only crashed compute nodes use, or "". They have left a place behind for each
// of their clients at most, and perhaps a reset that was not taken over, since no client has asked for the lock.
func CheckHeaderOf(capacityBits uint8, word uint64, dead fabric.CNSet, clients int) string {
	h := DecodeHeader(capacityBits, word)
	switch {
	case h.Reset != 0 && dead.Has(fabric.CNID(h.Reset)):
		return "" // a client that was refused is counted until the reset is taken over
	case h.Reset != 0 || h.Writers > h.Size || h.Size > uint64(clients):
		return fmt.Sprintf("a lock that at most %d clients of dead nodes use has %+v", clients, h)
	}
	return ""
}

// QueueOrder: places in the queue of a lock are granted in the order in which
// the FAAs that took them came to memory. That holds for every policy, for
// compute nodes pass a lock on in no other order. A place is known from the
// token of its grants (docs/protocol.md, Fencing tokens).
//
// A reset voids all places. Places that are refused (no room) do not count.
type QueueOrder struct {
	neutral
	terms        bool
	capacityBits uint8
	locks        map[fabric.Addr][]ticket
}

// A ticket is a place in the queue that was taken and not yet granted.
type ticket struct {
	index  uint64
	client fabric.ClientID
	mode   lock.Mode
}

// NewQueueOrder returns the judge of locks whose queues have 2^capacityBits entries.
func NewQueueOrder(capacityBits uint8) *QueueOrder {
	return &QueueOrder{neutral: neutral{"queue order"}, capacityBits: capacityBits, locks: map[fabric.Addr][]ticket{}}
}

// Effect implements Judge.
func (j *QueueOrder) Effect(x *Effect) string {
	h := DecodeHeader(j.capacityBits, x.Old)
	after := DecodeHeader(j.capacityBits, x.New)
	if after.Reset != h.Reset {
		j.locks[x.Lock] = nil
		return ""
	}
	width := uint64(j.capacityBits) + 1
	head, size, writer := uint64(1)<<(8+2*width), uint64(1)<<(8+width), uint64(1)<<8
	var mode lock.Mode
	switch x.New - x.Old {
	case size:
		mode = lock.Shared
	case size + writer:
		mode = lock.Exclusive
	case head - size, head - size - writer:
		// A client that releases has held, though it may never report that: its READs
		// under the lock may have failed.
		j.drop(x.Lock, x.Client)
		return ""
	default:
		if after.Head > h.Head { // for several: see docs/trains.md
			j.drop(x.Lock, x.Client)
		}
		return ""
	}
	if h.Reset != 0 || h.Size >= 1<<j.capacityBits {
		return ""
	}
	j.drop(x.Lock, x.Client)
	j.locks[x.Lock] = append(j.locks[x.Lock], ticket{h.Head + h.Size, x.Client, mode})
	return ""
}

func (j *QueueOrder) drop(l fabric.Addr, c fabric.ClientID) {
	j.locks[l] = slices.DeleteFunc(j.locks[l], func(t ticket) bool { return t.client == c })
}

// Event implements Judge.
func (j *QueueOrder) Event(e *Event) string {
	switch e.Kind {
	case Refused:
		j.drop(e.Lock, e.Client)
	case Killed, Fenced:
		for l := range j.locks {
			j.locks[l] = slices.DeleteFunc(j.locks[l], func(t ticket) bool { return t.client.CN() == e.Client.CN() })
		}
	case Restarted: // waiting clients begin anew
		maps.DeleteFunc(j.locks, func(l fabric.Addr, _ []ticket) bool { return l.MN() == e.Lock.MN() })
	case Granted:
		index, train := j.place(e.Token)
		list := j.locks[e.Lock]
		what := ""
		for _, t := range list {
			if t.index < index && (t.mode == lock.Exclusive || e.Mode == lock.Exclusive) {
				what = fmt.Sprintf("[%v] at index %d, and %v waits for %v at index %d", e, index, t.client, t.mode, t.index)
			}
		}
		train = train && e.Mode == lock.Shared
		j.locks[e.Lock] = slices.DeleteFunc(list, func(t ticket) bool {
			return t.index == index || train && t.mode == lock.Shared && t.client.CN() == e.Client.CN()
		})
		return what
	}
	return ""
}

// InTerms says that the locks are replicated: their tokens begin with a term (docs/replication.md).
func (j *QueueOrder) InTerms() { j.terms = true }

// Failed says that an operation of a client has failed. The client may have been granted the lock then, and pass it on unseen: if its READ under the lock fails, with
// the primary, it begins again.
func (j *QueueOrder) Failed(c fabric.ClientID) {
	for l := range j.locks {
		j.drop(l, c)
	}
}

// place returns the index that a token names, and whether its last field is that of a reader that goes before writers with lower indices. 10 bits before the index
// say which memory, or 16 the term; the last 10, or 8, say which grant of the tenure.
func (j *QueueOrder) place(t lock.Token) (index uint64, train bool) {
	top, seq := 10, 10
	if j.terms {
		top, seq = 16, 8
	}
	last := lock.Token(1)<<seq - 1
	return uint64(t)<<top>>(top+seq) - 1, t&last == last
}

// A request is one that waits.
type request struct {
	Event
	passed int // later requests that were granted before it
}

// requests are those that wait, in their order.
type requests []request

// follow takes an event. If it ends the wait of a request, follow returns the requests before that one which still wait, and true.
func (rs *requests) follow(e *Event) (earlier []request, ended bool) {
	switch e.Kind {
	case Requested:
		*rs = append(*rs, request{Event: *e})
	case Granted, Refused:
		i := slices.IndexFunc(*rs, func(r request) bool { return r.Client == e.Client && r.Lock == e.Lock })
		if i < 0 {
			return nil, false
		}
		*rs = slices.Delete(*rs, i, i+1)
		return (*rs)[:i], true
	case Killed, Fenced:
		*rs = slices.DeleteFunc(*rs, func(r request) bool { return r.Client.CN() == e.Client.CN() })
	}
	return nil, false
}

// LocalOrder: of two clients of one compute node of which one wants the lock
// for itself, the one that asked first has it first. So it must be in task-fair policies.
type LocalOrder struct {
	neutral
	waiting requests
}

// NewLocalOrder returns the judge.
func NewLocalOrder() *LocalOrder { return &LocalOrder{neutral: neutral{"local order"}} }

// Event implements Judge.
func (j *LocalOrder) Event(e *Event) (what string) {
	earlier, _ := j.waiting.follow(e)
	for i := range earlier {
		r := &earlier[i]
		if e.Kind == Granted && r.Lock == e.Lock && r.Client.CN() == e.Client.CN() && (r.Mode == lock.Exclusive || e.Mode == lock.Exclusive) {
			what = fmt.Sprintf("[%v], and [%v] before", e, &r.Event)
		}
	}
	return what
}

// Overtaking: at most Bound requests that came later are granted before a request is.
type Overtaking struct {
	neutral
	bound   int
	most    int
	waiting requests
}

// NewOvertaking returns the judge.
func NewOvertaking(bound int) *Overtaking {
	return &Overtaking{neutral: neutral{"overtaking"}, bound: bound}
}

// Most returns how often the one was passed that was passed most.
func (j *Overtaking) Most() int { return j.most }

// Event implements Judge.
func (j *Overtaking) Event(e *Event) (what string) {
	earlier, _ := j.waiting.follow(e)
	for i := range earlier {
		r := &earlier[i]
		if e.Kind != Granted || r.Lock != e.Lock {
			continue
		}
		if r.passed++; r.passed == j.bound+1 {
			what = fmt.Sprintf("[%v], and %d later requests are granted before it, the last [%v]", &r.Event, r.passed, e)
		}
		j.most = max(j.most, r.passed)
	}
	return what
}
