package baseline

import (
	"errors"
	"fmt"
	"slices"

	"github.com/declock/declock/fabric"
)

// Tickets are a client's tickets in the queues of locks. T is what a lock knows of one.
type Tickets[T any] struct {
	Queued []*T // of which messages may come
	spare  []*T
}

// New returns memory for a ticket.
func (s *Tickets[T]) New() *T {
	n := len(s.spare)
	if n == 0 {
		return new(T)
	}
	t := s.spare[n-1]
	s.spare = s.spare[:n-1]
	return t
}

// Find returns the queued ticket that is the wanted one, or nil.
func (s *Tickets[T]) Find(wanted func(*T) bool) *T {
	if i := slices.IndexFunc(s.Queued, wanted); i >= 0 {
		return s.Queued[i]
	}
	return nil
}

// Drop takes a ticket back, which may be queued.
func (s *Tickets[T]) Drop(t *T) {
	if i := slices.Index(s.Queued, t); i >= 0 {
		s.Queued = slices.Delete(s.Queued, i, i+1)
	}
	s.spare = append(s.spare, t)
}

// IDs counts, for client IDs that clients have left to the agent, the tickets that it has still to give up.
type IDs map[fabric.ClientID]int

// Done counts a ticket down, and retires the ID after its last.
func (d IDs) Done(node fabric.Node, id fabric.ClientID) {
	if d[id]--; d[id] <= 0 {
		delete(d, id)
		node.Retire(id)
	}
}

// Run handles the messages of an agent until its Port is closed or interrupted, and calls work when the time that next
// returns has come. What goes wrong with a single lock goes to report (nil: nowhere).
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
func Run(name string, p fabric.Port, next func() fabric.Time, work func() error, handle func(*fabric.Message) error, report func(error)) error {
	for {
		m, err := p.Recv(next())
		switch {
		case errors.Is(err, fabric.ErrClosed), errors.Is(err, fabric.ErrInterrupted):
			return nil
		case errors.Is(err, fabric.ErrDeadline):
			err = work()
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
