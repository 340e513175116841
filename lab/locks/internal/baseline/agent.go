package baseline

import (
	"errors"
	"fmt"
	"slices"

	"github.com/declock/declock/fabric"
)

// A Task is what an agent looks after at some time. Locks embed it in what they know of the task.
type Task struct{ Due fabric.Time }

func (t *Task) due() fabric.Time { return t.Due }

// Tasks are those of an agent.
type Tasks[T interface{ due() fabric.Time }] []T

// Run handles the messages of an agent until its Port is closed or interrupted, and looks after
// each task when it is due. What goes wrong with a single lock goes to report (nil: nowhere). handle must not keep the message.
//
// What an agent owes to the clients behind its tickets:
//
//   - The memory node does not answer. A lock with leases drops the ticket: the lease takes it back. A lock without leases that is to
//     survive this keeps the ticket and tries again. One that survives no failure (mcs) drops and reports it: clients behind it wait
//     until their deadlines.
//   - A chain with a ticket's operation has an unknown outcome (fabric.ErrUnknownOutcome). It must not be repeated: an FAA that draws or
//     returns a ticket would count twice. A lease, or a recovery, takes back what has been drawn.
//   - Run ends, for the Port is closed (the node leaves, or has been fenced) or interrupted. Tickets that are left are dropped, and nothing
//     waits for them: no baseline lock is a lock.Leaver. Leases take them back, or nothing does.
func (a *Tasks[T]) Run(name string, p fabric.Port, look func(T) (done bool, err error), handle func(*fabric.Message) error, report func(error)) error {
	var m fabric.Message
	for {
		var err error
		m, err = p.Recv(a.Next())
		switch {
		case errors.Is(err, fabric.ErrClosed), errors.Is(err, fabric.ErrInterrupted):
			return nil
		case errors.Is(err, fabric.ErrDeadline):
			err = a.Look(p.Now(), look)
		case err != nil:
			return err
		default:
			err = handle(&m)
		}
		if err != nil && report != nil {
			report(fmt.Errorf("%s: agent of %v: %w", name, p.ID().CN(), err))
		}
	}
}

// Next returns when the first task is due.
func (a *Tasks[T]) Next() fabric.Time {
	next := fabric.Forever
	for _, t := range *a {
		next = min(next, t.due())
	}
	return next
}

// Look looks after each task that is due by now.
func (a *Tasks[T]) Look(now fabric.Time, look func(T) (done bool, err error)) (err error) {
	kept := (*a)[:0]
	for _, t := range *a {
		done := false
		if t.due() <= now {
			var e error
			if done, e = look(t); e != nil {
				err = errors.Join(err, e)
			}
		}
		if !done {
			kept = append(kept, t)
		}
	}
	clear((*a)[len(kept):])
	*a = kept
	return err
}

// A Left is a ticket that a client has abandoned, or may have: a message to it may come before the client's. Locks embed it in what they
// know of the ticket.
type Left struct {
	Task
	Tried bool // to free the lock: there is a successor

	lock      fabric.Addr
	id        fabric.ClientID
	abandoned bool
	early     []fabric.Message // that came before the client's
}

func (t *Left) left() *Left { return t }

// Rest is how a lock does the rest of its algorithm for a ticket T that a client has abandoned.
type Rest[T any] struct {
	// Name is the lock's, for errors. First is the first kind of its messages about tickets, and Abandoned the last: the client's own.
	Name             string
	First, Abandoned fabric.MsgKind
	// EarlyNs is for how long a message waits for the client's, which leaves its ID and sends that message next.
	EarlyNs fabric.Time

	// Other handles messages of other kinds; nil: there are none.
	Other func(m *fabric.Message) error
	// Adopt makes an empty ticket the client's, by all that it knew. It returns how many tickets the client had under the ID,
	// this one included; 0 if it has said so before.
	Adopt func(t T, m *fabric.Message) (tickets uint64)
	Hear  func(t T, m *fabric.Message)
	// Advance does what can be done now, after a message, and Look when the ticket is due.
	Advance, Look func(t T) (done bool, err error)
}

// An Agent looks after tickets that clients of its compute node have abandoned. It uses the node's agent Port, to which messages come
// for client IDs that have been left to it, and retires each ID after its last ticket.
type Agent[T any, P interface {
	*T
	due() fabric.Time
	left() *Left
}] struct {
	Port    fabric.Port
	Tickets Tasks[P]

	node fabric.Node
	rest Rest[P]
	ids  map[fabric.ClientID]int // tickets that are still to be given up
}

// Start makes it the agent of a node.
func (a *Agent[T, P]) Start(node fabric.Node, rest Rest[P]) {
	a.Port, a.node, a.rest, a.ids = node.Agent(), node, rest, map[fabric.ClientID]int{}
}

// Run handles messages until the Port is closed or interrupted. What goes wrong with a
// single lock goes to report (nil: nowhere).
func (a *Agent[T, P]) Run(report func(error)) error {
	return a.Tickets.Run(a.rest.Name, a.Port, a.look, a.handle, report)
}

// handle handles a message about a ticket, if it is one.
func (a *Agent[T, P]) handle(m *fabric.Message) error {
	switch {
	case m.Kind >= a.rest.First && m.Kind <= a.rest.Abandoned:
	case a.rest.Other != nil:
		return a.rest.Other(m)
	default:
		return nil
	}
	id, own := fabric.ClientID(m.Body[1]), m.Kind == a.rest.Abandoned
	if id.CN() != a.node.ID() || own && m.From.CN() != a.node.ID() {
		return nil // not of this node
	}
	t := a.find(fabric.Addr(m.Body[0]), id)
	switch x := t.left(); {
	case !own && !x.abandoned:
		x.early = append(x.early, *m)
		return nil
	case !own:
		a.rest.Hear(t, m)
	case !x.abandoned: // else the client's message has come twice
		x.abandoned = true
		if n := a.rest.Adopt(t, m); n > 0 {
			a.ids[id] = int(n)
		}
		for i := range x.early {
			a.rest.Hear(t, &x.early[i])
		}
		x.early = nil
	}
	done, err := a.rest.Advance(t)
	if done {
		a.Tickets = slices.DeleteFunc(a.Tickets, func(x P) bool { return x == t })
		a.gone(id)
	}
	return err
}

// find returns the ticket of a client ID for a lock, a new one if there is none.
func (a *Agent[T, P]) find(l fabric.Addr, id fabric.ClientID) P {
	if i := slices.IndexFunc(a.Tickets, func(t P) bool { return t.left().lock == l && t.left().id == id }); i >= 0 {
		return a.Tickets[i]
	}
	t := P(new(T))
	x := t.left()
	x.lock, x.id, x.Due = l, id, a.Port.Now()+a.rest.EarlyNs
	a.Tickets = append(a.Tickets, t)
	return t
}

func (a *Agent[T, P]) look(t P) (done bool, err error) {
	if !t.left().abandoned { // only messages have come, to a ticket that is no more
		return true, nil
	}
	if done, err = a.rest.Look(t); done {
		a.gone(t.left().id)
	}
	return done, err
}

// gone counts a ticket of a client ID down.
func (a *Agent[T, P]) gone(id fabric.ClientID) {
	if a.ids[id]--; a.ids[id] <= 0 {
		delete(a.ids, id)
		a.node.Retire(id)
	}
}
