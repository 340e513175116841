package oracle

import (
	"fmt"
	"maps"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// TrainOrder: in a train with readers first (docs/trains.md) a waiting ticket is overtaken by readers of its own train only, by each
// at most once, and no ticket overtakes the first. So, whenever a client holds as a reader of the train that begins at an index,
//
//   - that index is the head: until the train ends, the header counts all its members;
//   - the ticket with that index does not wait any more;
//   - the client's compute node has a ticket behind it, at most 24 behind, which the end of the train takes off the header.
//     (Tickets that are taken off by one operation follow each other, so all that it overtakes are of its train.)
//
// Such a hold is known from its token. QueueOrder judges all other order.
type TrainOrder struct {
	neutral
	tickets *QueueOrder // knows which wait
	trains  map[fabric.Addr]*train
}

// A train is the one that begins at the head of a lock's queue.
type train struct {
	head    uint64
	readers []ticket // that have held
}

const trainPlace = 24 // the last of a train is at most so far behind its first

// NewTrainOrder returns the judge of locks whose queues have 2^capacityBits entries.
func NewTrainOrder(capacityBits uint8) *TrainOrder {
	return &TrainOrder{neutral: neutral{"train order"}, tickets: NewQueueOrder(capacityBits), trains: map[fabric.Addr]*train{}}
}

// InTerms says that the locks are replicated: see QueueOrder.InTerms.
func (j *TrainOrder) InTerms() { j.tickets.InTerms() }

// Failed says that an operation of a client has failed: see QueueOrder.Failed.
func (j *TrainOrder) Failed(c fabric.ClientID) { j.tickets.Failed(c) }

// Effect implements Judge.
func (j *TrainOrder) Effect(x *Effect) (what string) {
	j.tickets.Effect(x)
	before, after := DecodeHeader(j.tickets.capacityBits, x.Old), DecodeHeader(j.tickets.capacityBits, x.New)
	t := j.trains[x.Lock]
	if t == nil || after.Reset != before.Reset || after.Head != t.head {
		if t != nil && after.Reset == before.Reset {
			for _, r := range t.readers {
				if r.index >= after.Head {
					what = fmt.Sprintf("%v at index %d held as a reader of the train at index %d, which %v ends before index %d", r.client, r.index, t.head, x.Client, after.Head)
				}
			}
		}
		j.trains[x.Lock] = &train{head: after.Head}
	}
	return what
}

// Event implements Judge.
func (j *TrainOrder) Event(e *Event) (what string) {
	switch e.Kind {
	case Restarted: // waiting clients begin anew
		maps.DeleteFunc(j.trains, func(l fabric.Addr, _ *train) bool { return l.MN() == e.Lock.MN() })
	case Granted:
		_, train := j.tickets.place(e.Token)
		if t := j.trains[e.Lock]; t != nil && e.Mode == lock.Shared && train {
			what = j.reader(e, t)
		}
	}
	j.tickets.Event(e)
	return what
}

// reader judges a hold of a reader of a train.
func (j *TrainOrder) reader(e *Event, t *train) (what string) {
	first, _ := j.tickets.place(e.Token)
	if first != t.head {
		return fmt.Sprintf("[%v] as a reader of the train at index %d, and the head is %d", e, first, t.head)
	}
	for _, x := range j.tickets.locks[e.Lock] {
		switch {
		case x.mode == lock.Exclusive && x.index == first:
			what = fmt.Sprintf("[%v] as a reader of the train at index %d, and its first, %v, waits", e, first, x.client)
		case x.mode == lock.Shared && x.client.CN() == e.Client.CN():
			t.readers = append(t.readers, x)
			if x.index <= first || x.index > first+trainPlace {
				what = fmt.Sprintf("[%v] at index %d, as a reader of the train at index %d", e, x.index, first)
			}
		}
	}
	return what
}
