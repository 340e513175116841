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
	heard  fabric.Message // here, because what a method of a type parameter gets is allocated
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

// A Ticket is one that messages name by its lock and the client ID with which it was drawn, in the first two words of their body.
type Ticket[T any] interface {
	*T
	Named() (fabric.Addr, fabric.ClientID)
	Hear(*fabric.Message)
}

// Receive takes the next message, which may be about a queued ticket.
func Receive[P Ticket[T], T any](p fabric.Port, s *Tickets[T], deadline fabric.Time) error {
	m, err := &s.heard, error(nil)
	if *m, err = p.Recv(deadline); err != nil {
		return err
	}
	for _, t := range s.Queued {
		if at, id := P(t).Named(); uint64(at) == m.Body[0] && uint64(id) == m.Body[1] {
			P(t).Hear(m)
			break
		}
	}
	return nil
}

// A Successor is a Ticket that messages name the next one of its queue to; 0: not yet.
type Successor[T any] interface {
	Ticket[T]
	Next() fabric.ClientID
}

// HandOn waits until a ticket whose client releases has a successor, and hands the lock over. An interrupt leaves the ticket by abandon to the node's agent, which goes on with it.
func HandOn[P Successor[T], T any](p fabric.Port, s *Tickets[T], t *T, abandon, handOver func(*T) error) error {
	for P(t).Next() == 0 {
		if err := Receive[P](p, s, fabric.Forever); err != nil {
			if errors.Is(err, fabric.ErrInterrupted) {
				err = nil
			}
			return errors.Join(err, abandon(t))
		}
	}
	return handOver(t)
}

// Abandon leaves a ticket to the node's agent, and the client ID with it: delegate sends it, and says how many tickets of that ID the agent is to expect, this one included.
func Abandon[P Ticket[T], T any](p fabric.Port, s *Tickets[T], t *T, delegate func(t *T, tickets int) error) error {
	_, id := P(t).Named()
	tickets := 0
	for _, q := range s.Queued {
		if _, other := P(q).Named(); other == id {
			tickets++
		}
	}
	if err := p.Abandon(); err != nil {
		s.Drop(t)
		return fmt.Errorf("ticket is lost: %w", err)
	}
	return delegate(t, tickets)
}
