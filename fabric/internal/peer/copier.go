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

// Bounds of how long a node waits before it copies again, when that has failed: the longer, the more often it has.
const (
	copyAgain    = 20 * time.Millisecond
	maxCopyAgain = time.Second
)

// A CopyFunc copies what is at the primary of a memory-node number to a new backup: number is the replica's, and epoch that in which the number is served. If it is served in another
// meanwhile, the copy is worth nothing.
type CopyFunc func(ctx context.Context, mem fabric.MemID, number, epoch uint32) error

// CopyWith has the node call f when it is the one to copy to a new backup (docs/replication.md), until stop is called, or the node ends. A program calls it once.
func (n *Node) CopyWith(f func(ctx context.Context, mem fabric.MemID, number, epoch uint32) error) (stop func()) {
	ctx, cancel := context.WithCancel(n.Work)
	ended := make(chan struct{})
	n.Go(func() {
		defer close(ended)
		n.runCopier(ctx, f)
	})
	return func() { cancel(); <-ended }
}

// runCopier copies to new backups of memory-node numbers what is at the primary, when this node is the one to do that.
func (n *Node) runCopier(ctx context.Context, f CopyFunc) {
	reported, wait := "", copyAgain
	for ctx.Err() == nil {
		c, newer := n.toCopy()
		if c.number == 0 {
			select {
			case <-newer:
			case <-ctx.Done():
			}
			continue
		}
		err := f(ctx, c.mem, c.number, c.epoch)
		if err == nil {
			err = n.copied(ctx, c)
		}
		// What is to be done may be another by now, or not yet.
		quiet := errors.Is(err, member.ErrChanged) || errors.Is(err, fabric.ErrStaleEpoch) || errors.Is(err, fabric.ErrNodeDown)
		if err == nil || quiet {
			wait = copyAgain
		}
		if err != nil && !quiet && ctx.Err() == nil && err.Error() != reported {
			reported = err.Error()
			st, _ := n.State()
			n.Report(fmt.Errorf("copy %v to a new backup, from %s to %s: %w", c.mem, primary(st, c.mem), host(st, c.host), err))
		}
		Pause(ctx, wait)
		wait = min(2*wait, maxCopyAgain)
	}
}

// A newBackup is a backup that is not in sync.
type newBackup struct {
	mem           fabric.MemID
	number, epoch uint32
	host          member.Incarnation
}

// in returns the backup's group in a state, if what has been copied to it in its epoch is worth something.
func (c *newBackup) in(st *member.State) (*member.Group, error) {
	g := st.Group(c.mem)
	if g == nil || g.Epoch != c.epoch || !slices.ContainsFunc(g.Replicas, func(r member.Replica) bool {
		return r.Number == c.number && r.Host == c.host && r.Phase == member.Copying
	}) {
		return nil, fmt.Errorf("%w: %v: its new backup", member.ErrChanged, c.mem)
	}
	return g, nil
}

// copied says that a backup is in sync. Other replicas may have come and gone since the copy has begun.
func (n *Node) copied(ctx context.Context, c newBackup) error {
	ctx, cancel := context.WithTimeout(ctx, dropTimeout)
	defer cancel()
	for {
		st, newer := n.State()
		g, err := c.in(st)
		if err != nil {
			return err
		}
		err = n.Members.Change(ctx, member.Change{ID: c.mem, Kind: member.Synced, Host: c.host, Seen: g.Changed})
		if !errors.Is(err, member.ErrChanged) {
			return err
		}
		select {
		case <-newer:
		case <-ctx.Done():
			return err
		}
	}
}

// toCopy returns a backup to which this node is to copy: all compute nodes know of the backup, and this one has the lowest number. Otherwise its number is 0, and there may be one
// when there is a newer state.
func (n *Node) toCopy() (c newBackup, newer <-chan struct{}) {
	st, newer := n.State()
	if len(st.CNs) == 0 || st.CNs[0].ID != n.Own.ID {
		return c, newer
	}
	for _, g := range st.Groups {
		i := slices.IndexFunc(g.Replicas, func(r member.Replica) bool { return r.Phase == member.Copying && st.Has(r.Host) })
		if i > 0 && g.Serving && g.ID < MaxMN {
			return newBackup{g.ID, g.Replicas[i].Number, g.Epoch, g.Replicas[i].Host}, newer
		}
	}
	return c, newer
}

// copyOver copies by Config.Copy, with a Port of its own, which is attached to the memory as it is now.
func (n *Node) copyOver(_ context.Context, mem fabric.MemID, _, _ uint32) error {
	p, err := n.Open()
	if err != nil {
		return err
	}
	defer p.Close()
	return n.Config.Copy(p, mem)
}

// host names the memory node that is a member in an incarnation.
func host(st *member.State, l member.Incarnation) string {
	if i := slices.IndexFunc(st.MNs, func(m member.MN) bool { return m.Incarnation == l }); i >= 0 {
		return fmt.Sprintf("%v at %s", st.MNs[i].ID, st.MNs[i].Addr)
	}
	return "a memory node that has gone"
}

// primary names the memory node that serves a number.
func primary(st *member.State, id fabric.MemID) string {
	if g := st.Group(id); g != nil {
		return host(st, g.Primary())
	}
	return host(st, 0)
}
