package peer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/declock/declock/fabric/member"
)

// Bounds of the time between two attempts to join again.
const (
	minRejoin = 50 * time.Millisecond
	maxRejoin = 2 * time.Second
)

// stay keeps a memory node in the cluster, until it leaves or ends. A memory node that the cluster has given up, because it was silent for longer
// than its lease or because the coordinator has lost its storage, still has its memory: so it joins again, in a new epoch. stay returns why it does
// not any more.
func (s *Server) stay(m member.Member) error {
	for {
		select {
		case <-m.Done():
		case <-s.Ctx.Done():
			return nil
		}
		why := m.Err()
		if why == nil {
			return nil // it has left
		}
		s.Report(fmt.Errorf("memory node %v: %w; it joins again, with its memory", s.id, why))
		var err error
		if m, err = s.again(why); m == nil {
			return err
		}
	}
}

// again joins again, with as many attempts as it takes.
func (s *Server) again(why error) (member.Member, error) {
	var wait time.Duration
	for {
		s.suspend(why)
		m, err := s.rejoin()
		switch {
		case err == nil:
			s.Admit()
			return m, nil
		case s.Ctx.Err() != nil:
			return nil, nil
		case errors.Is(err, ErrSuperseded), errors.Is(err, member.ErrInUse):
			s.suspend(why)
			return nil, fmt.Errorf("memory node %v: %w: %v", s.id, err, why)
		}
		s.Report(fmt.Errorf("memory node %v joins again: %w", s.id, err))
		wait = min(max(2*wait, minRejoin), maxRejoin)
		if Pause(s.Ctx, wait); s.Ctx.Err() != nil {
			return nil, nil
		}
	}
}

// rejoin tries once to join in the epoch behind the last.
func (s *Server) rejoin() (member.Member, error) {
	ctx, cancel := context.WithCancel(s.Ctx)
	defer cancel()
	own := s.Member()
	s.Mu.Lock()
	own.Was = s.listed
	own.Known = nil
	for _, id := range slices.Sorted(maps.Keys(s.known)) {
		own.Known = append(own.Known, s.known[id])
	}
	s.Mu.Unlock()
	var superseded error
	m, err := s.Members.JoinMN(ctx, own, func(m member.Member) {
		// Not by the new epoch: joins that failed, our own too, have counted it.
		if served := m.MN().Served; served > own.Epoch {
			superseded = fmt.Errorf("%w (it had epoch %d, and that one %d)", ErrSuperseded, own.Epoch, served)
		}
		if superseded != nil || !s.ready(m) {
			cancel()
		}
	})
	if superseded != nil {
		return nil, superseded
	}
	return m, err
}
