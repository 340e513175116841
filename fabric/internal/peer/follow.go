package peer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

// Follow calls take with each state of a membership, and acknowledges it when take returns, until the membership
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

// Fenced returns the error of a compute node that the cluster has given up, and why.
func Fenced(id fabric.CNID, why error) error {
	if errors.Is(why, fabric.ErrFenced) {
		return fmt.Errorf("%v: %w", id, why)
	}
	return fmt.Errorf("%w: %v: %w", fabric.ErrFenced, id, why)
}

// leaveTimeout bounds how long a node that closes waits for the coordinator.
const leaveTimeout = 2 * time.Second

// leave ends a membership by one of its methods: Leave, or Fail, which ends it as a crash does. nil has none. It
// returns when ctx ends, if that is before leaveTimeout is over.
func leave(ctx context.Context, m member.Member, how func(member.Member, context.Context) error) error {
	if m == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	return how(m, ctx)
}
