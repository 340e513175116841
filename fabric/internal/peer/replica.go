package peer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

// A Port as a fabric.Replicator: chains to the backups of memory-node numbers (docs/replication.md).

var _ fabric.Replicator = (*Port)(nil)

// Replicas is fabric.Replicator.Replicas.
func (p *Port) Replicas(mem fabric.MemID) (g fabric.Replicas, err error) {
	r, err := p.Find(mem)
	if err != nil || r.Term == 0 {
		return g, err
	}
	now := p.n.Latest().Group(mem)
	if now == nil || now.Epoch != r.MN.Epoch {
		return g, fmt.Errorf("%w: backups of %v", fabric.ErrStaleEpoch, mem)
	}
	g.Mem, g.Epoch, g.Before, g.Term, g.MinInSync = mem, now.Epoch, now.Before, now.Term, now.MinInSync
	g.Primary = now.Replicas[0].Number
	for _, b := range now.Replicas[1:] {
		g.Backups[g.N] = fabric.Backup{Host: uint64(b.Host), Number: b.Number, Synced: b.Phase == member.InSync}
		g.N++
	}
	return g, nil
}

// PostBackup is fabric.Replicator.PostBackup.
func (p *Port) PostBackup(g *fabric.Replicas, i int, ops []fabric.Op) (fabric.Pending, error) {
	r, err := p.reachBackup(g, i)
	if err != nil {
		return 0, err
	}
	if !p.enter() {
		return 0, p.noEntry()
	}
	defer p.exit()
	if err := p.check(ops); err != nil {
		return 0, err
	}
	p.backup = r
	defer func() { p.backup = nil }()
	return p.pendingOf(p.begin(ops)), nil
}

// reachBackup returns a backup, in the epoch in which the Port is attached to the number.
func (p *Port) reachBackup(g *fabric.Replicas, i int) (*Remote, error) {
	if now := p.remote[g.Mem]; now == nil || now.MN.Epoch != g.Epoch {
		return nil, fmt.Errorf("%w: backup of %v", fabric.ErrStaleEpoch, g.Mem)
	}
	return p.n.backup(g.Mem, g.Epoch, g.Backups[i].Number)
}

// findBackup is Find of the backup to which a chain goes.
func (p *Port) findBackup() (*Remote, error) {
	r := p.backup
	switch {
	case p.n.fenced.Load():
		return nil, p.n.Dead(p.n.Own.ID)
	case !r.Up.Load():
		return nil, r.Refusal()
	}
	return r, nil
}

// backup returns a backup of a number in an epoch, and begins to use it if it is not in use yet: few operations need one.
func (n *Node) backup(mem fabric.MemID, epoch, number uint32) (*Remote, error) {
	if list := n.backups.Load(); list != nil {
		for _, r := range *list {
			if r.MN.ID == mem && r.Backup == number && r.MN.Epoch == epoch && r.Up.Load() {
				return r, nil
			}
		}
	}
	n.Mu.Lock()
	defer n.Mu.Unlock()
	st, _ := n.State()
	if g := st.Group(mem); g == nil || g.Epoch != epoch {
		return nil, fmt.Errorf("%w: backup of %v", fabric.ErrStaleEpoch, mem)
	}
	s, ok := backupIn(st, mem, number)
	if !ok || n.Work.Err() != nil {
		return nil, fmt.Errorf("%w: backup of %v", fabric.ErrNodeDown, mem)
	}
	var list []*Remote
	if l := n.backups.Load(); l != nil {
		list = slices.Clone(*l)
	}
	for _, r := range list {
		if r.Served.Backup == number && r.MN.ID == mem && r.Same(&s) && r.Up.Load() {
			return r, nil // another goroutine was faster
		}
	}
	r := n.net.Reach(s)
	if r == nil {
		return nil, fmt.Errorf("%w: backup of %v", fabric.ErrUnsupported, mem)
	}
	list = append(list, r)
	n.backups.Store(&list)
	return r, nil
}

// keepBackups forgets backups that are not in use any more; Mu is held.
func (n *Node) keepBackups() {
	if l := n.backups.Load(); l != nil {
		list := slices.DeleteFunc(slices.Clone(*l), func(r *Remote) bool { return !r.Up.Load() })
		n.backups.Store(&list)
	}
}

// dropTimeout bounds how long the drop of a backup waits for the coordinator.
const dropTimeout = 10 * time.Second

// dropAgain is how often a drop that must not end asks the coordinator anew: its node may have been fenced meanwhile.
const dropAgain = time.Second

// interruptEvery is how often a drop looks whether the Port is interrupted: so that is how long it lasts at most from then on.
const interruptEvery = 5 * time.Millisecond

// DropBackup is fabric.Replicator.DropBackup. It ends when the Port is interrupted or closed, unless a chain is under way: whether the backup is dropped is not known then.
func (p *Port) DropBackup(g *fabric.Replicas, i int, underWay bool) error {
	if underWay {
		return p.n.dropUntilOver(g, i)
	}
	ctx, cancel := context.WithTimeout(p.n.Work, dropTimeout)
	defer cancel()
	ctx, interrupt := context.WithCancelCause(ctx)
	defer interrupt(nil)
	go func() {
		for ctx.Err() == nil {
			Pause(ctx, interruptEvery)
			switch {
			case p.Closed():
				interrupt(fabric.ErrClosed)
			case p.Interrupted():
				interrupt(fabric.ErrInterrupted)
			}
		}
	}()
	err := p.n.dropBackup(ctx, g, i)
	if why := context.Cause(ctx); err != nil && (errors.Is(why, fabric.ErrInterrupted) || errors.Is(why, fabric.ErrClosed)) {
		err = fmt.Errorf("%w: %w", why, err)
	}
	return err
}

// dropUntilOver drops a backup where a chain may be under way. It returns when that is over: the backup is dropped, or this node is fenced, or it has heard that the primary is
// no more: then no lane of it leads there, and no lock of that epoch is released.
func (n *Node) dropUntilOver(g *fabric.Replicas, i int) error {
	for {
		ctx, cancel := context.WithTimeout(n.Work, dropAgain)
		err := n.dropBackup(ctx, g, i)
		cancel()
		st, newer := n.State()
		switch _, _, up := st.Server(g.Mem); {
		case err == nil, !up, errors.Is(err, fabric.ErrStaleEpoch), errors.Is(err, fabric.ErrFenced), n.Work.Err() != nil:
			return err
		}
		if lapsed := n.lapsed(); lapsed != nil {
			return lapsed
		}
		select {
		case <-newer:
		case <-time.After(interruptEvery):
		}
	}
}

// dropBackup has the coordinator take a backup out of its group, and waits until that is so.
func (n *Node) dropBackup(ctx context.Context, g *fabric.Replicas, i int) error {
	for {
		st, newer := n.State()
		now := st.Group(g.Mem)
		switch {
		case n.fenced.Load():
			return n.Dead(n.Own.ID)
		case now == nil:
			return fmt.Errorf("%w: backup of %v", fabric.ErrNodeDown, g.Mem)
		}
		j := slices.IndexFunc(now.Replicas, func(r member.Replica) bool { return r.Number == g.Backups[i].Number })
		switch {
		case j < 0:
			return n.lapsed()
		case now.Epoch != g.Epoch:
			return fmt.Errorf("%w: backup of %v", fabric.ErrStaleEpoch, g.Mem)
		}
		var err error
		if !now.Replicas[j].Dropped {
			err = n.Members.Change(ctx, member.Change{ID: g.Mem, Kind: member.Drop, Host: now.Replicas[j].Host, Seen: now.Changed})
		}
		if err != nil && !errors.Is(err, member.ErrChanged) {
			return fmt.Errorf("%w: backup of %v: %w", fabric.ErrNodeDown, g.Mem, err)
		}
		select {
		case <-newer:
		case <-ctx.Done():
			return fmt.Errorf("%w: backup of %v: the primary has not acknowledged its drop: %w", fabric.ErrNodeDown, g.Mem, ctx.Err())
		}
	}
}
