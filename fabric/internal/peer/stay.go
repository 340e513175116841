package peer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/declock/declock/fabric/member"
)

// Bounds of the time between two attempts to join again.
const (
	minRejoin = 50 * time.Millisecond
	maxRejoin = 2 * time.Second
)

// A Keeper keeps a memory node in the cluster. A memory node that the cluster has given up, because it was silent for longer
// than its lease or because the coordinator has lost its storage, still has its memory: so it joins again, in a new epoch.
type Keeper struct {
	Members member.Service
	// Own returns what the node says of itself, with its last epoch.
	Own func() member.MN
	// Suspend shuts everybody out: when it returns, nothing that was sent in the epoch that has ended is executed any more.
	Suspend func(why error)
	// Ready begins to serve in a new epoch: see member.Service. It reports whether the node still wants to.
	Ready func(member.Member) bool
	// Admit lets others in: all that may still act have acknowledged the new epoch.
	Admit func()
	// Report is told what goes wrong.
	Report func(error)
}

// Stay joins again whenever a membership ends, until the node leaves by itself or ctx ends. It returns why it has given up.
func (k *Keeper) Stay(ctx context.Context, m member.Member) error {
	for {
		select {
		case <-m.Done():
		case <-ctx.Done():
			return nil
		}
		why := m.Err()
		if why == nil {
			return nil // it has left
		}
		k.Report(fmt.Errorf("memory node %v: %w; it joins again, with its memory", m.MN().ID, why))
		var err error
		if m, err = k.again(ctx, why); m == nil {
			return err
		}
	}
}

// again joins again, with as many attempts as it takes.
func (k *Keeper) again(ctx context.Context, why error) (member.Member, error) {
	var wait time.Duration
	for {
		k.Suspend(why)
		m, err := k.join(ctx)
		switch {
		case err == nil:
			k.Admit()
			return m, nil
		case ctx.Err() != nil:
			return nil, nil
		case errors.Is(err, ErrSuperseded), errors.Is(err, member.ErrInUse):
			k.Suspend(why)
			return nil, fmt.Errorf("memory node %v: %w: %v", k.Own().ID, err, why)
		}
		k.Report(fmt.Errorf("memory node %v joins again: %w", k.Own().ID, err))
		wait = min(max(2*wait, minRejoin), maxRejoin)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, nil
		}
	}
}

// join tries once to join in the epoch behind the last.
func (k *Keeper) join(ctx context.Context) (member.Member, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	own := k.Own()
	var superseded error
	m, err := k.Members.JoinMN(ctx, own, func(m member.Member) {
		// Not by the new epoch: joins that failed, our own too, have counted it.
		if served := m.MN().Served; served > own.Epoch {
			superseded = fmt.Errorf("%w (it had epoch %d, and that one %d)", ErrSuperseded, own.Epoch, served)
		}
		if superseded != nil || !k.Ready(m) {
			cancel()
		}
	})
	if superseded != nil {
		return nil, superseded
	}
	return m, err
}
