package peer

import (
	"context"
	"fmt"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
	"github.com/declock/declock/internal/boottime"
)

// leaseLook is how often a node looks whether its lease has run out, at least: timers do not count the time of a suspension.
const leaseLook = 100 * time.Millisecond

// leftOf returns how long the lease of a member lasts at least. One that has none is never given up for want of renewals.
func leftOf(m member.Member) time.Duration {
	l, ok := m.(member.Leased)
	if !ok {
		return leaseLook
	}
	return l.LeasedUntil() - boottime.Near()
}

// lapsed returns fabric.ErrFenced if the node's lease has run out by its own clock. The coordinator gives the node up later, if at all.
func (n *Node) lapsed() error {
	if leftOf(n.member) > 0 {
		return nil
	}
	return Fenced(n.Own.ID, errLapsed)
}

// Leased is fabric.Node.Leased.
func (n *Node) Leased() bool { return n.leased == nil || n.leased.LeasedUntil() > boottime.Near() }

// watchLease ends the node when its lease has run out: what this node holds on replicated numbers is over, though it may not have heard of anything. It runs from when
// there is one; in a cluster without, the coordinator's word is waited for.
func (n *Node) watchLease() {
	for n.Work.Err() == nil {
		left := leftOf(n.member)
		if left <= 0 {
			n.Fence(errLapsed)
			// Its locks and tickets are others' to take: now, if the coordinator is reached.
			ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
			if err := n.member.Fail(ctx); err != nil {
				n.Report(fmt.Errorf("%v leaves: %w", n.Own.ID, err))
			}
			cancel()
			return
		}
		Pause(n.Work, min(max(left, time.Millisecond), leaseLook))
	}
}

// LeasedUntil returns when the memory node's lease may end, on the clock of package boottime: see member.Leased. It has none if ok is false.
func (s *Server) LeasedUntil() (until time.Duration, ok bool) {
	m := s.leased.Load()
	if m == nil {
		return 0, true
	}
	l, ok := (*m).(member.Leased)
	if !ok {
		return 0, false
	}
	return l.LeasedUntil(), true
}

// Passed reports whether a time on the clock of package boottime has come.
func Passed(t time.Duration) bool { return boottime.Near() >= t }

// Near is boottime.Near.
func Near() time.Duration { return boottime.Near() }

// In returns the time on the clock of package boottime after some time.
func In(d time.Duration) time.Duration { return boottime.Now() + d }

// Lapsed returns fabric.ErrNodeDown if the memory node's lease has run out by its own clock: compute nodes may be fenced, and replicated numbers be served by others, of which
// it does not hear.
func (s *Server) Lapsed() error {
	if m := s.leased.Load(); m != nil && leftOf(*m) > 0 {
		return nil
	}
	return fmt.Errorf("%w: %v: %w", fabric.ErrNodeDown, s.id, errLapsed)
}
