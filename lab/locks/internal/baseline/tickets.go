package baseline

import "slices"

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
