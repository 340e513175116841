package peer

import (
	"context"
	"time"

	"github.com/declock/declock/fabric/member"
)

// Follow gives each state that a membership tells of to take, and acknowledges it when take returns, until the membership
// ends or ctx does. States may be skipped; the first may be one that was taken before. It returns why the
// membership has ended: nil if the node has left, or ctx has ended.
func Follow(ctx context.Context, m member.Member, take func(st *member.State)) error {
	for {
		st, newer := m.State()
		take(st)
		m.Ack(st.Revision)
		select {
		case <-newer:
		case <-m.Done():
			return m.Err()
		case <-ctx.Done():
			return nil
		}
	}
}

// leaveTimeout bounds how long a node that closes waits for the coordinator.
const leaveTimeout = 2 * time.Second

// Leave ends a membership, so that what follows is no death; nil has none. It returns when ctx ends, if that is before leaveTimeout is over.
func Leave(ctx context.Context, m member.Member) error {
	if m == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	return m.Leave(ctx)
}

// Fail ends a membership as a death does. m may be nil, and ctx bounds it as it does Leave.
func Fail(ctx context.Context, m member.Member) error {
	if m == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	return m.Fail(ctx)
}
