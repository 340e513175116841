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

// runCopier copies to new backups of memory-node numbers what is at the primary, when this node is the one to do that (docs/replication.md).
func (n *Node) runCopier() {
	reported, wait := "", copyAgain
	for n.Work.Err() == nil {
		c, newer := n.toCopy()
		if c.Kind == 0 {
			select {
			case <-newer:
			case <-n.Work.Done():
			}
			continue
		}
		err := n.copy(c)
		// What is to be done may be another by now, or not yet.
		quiet := errors.Is(err, member.ErrChanged) || errors.Is(err, fabric.ErrStaleEpoch) || errors.Is(err, fabric.ErrNodeDown)
		if err == nil || quiet {
			wait = copyAgain
		}
		if err != nil && !quiet && n.Work.Err() == nil && err.Error() != reported {
			reported = err.Error()
			st, _ := n.State()
			n.Report(fmt.Errorf("copy %v to a new backup, from %s to %s: %w", c.ID, primary(st, c.ID), host(st, c.Host), err))
		}
		Pause(n.Work, wait)
		wait = min(2*wait, maxCopyAgain)
	}
}

// toCopy returns the change that says that a backup is in sync, if this node is to copy to it: all compute nodes know of the backup, and this one has the lowest number. Otherwise it has no
// Kind, and may be another when there is a newer state.
func (n *Node) toCopy() (c member.Change, newer <-chan struct{}) {
	st, newer := n.State()
	if len(st.CNs) == 0 || st.CNs[0].ID != n.Own.ID {
		return c, newer
	}
	for _, g := range st.Groups {
		i := slices.IndexFunc(g.Replicas, func(r member.Replica) bool { return r.Phase == member.Copying && st.Has(r.Host) })
		if i > 0 && g.Serving && g.ID < MaxMN {
			return member.Change{ID: g.ID, Kind: member.Synced, Host: g.Replicas[i].Host, Seen: g.Changed}, newer
		}
	}
	return c, newer
}

// copy copies with a Port of its own, which is attached to the memory as it is now.
func (n *Node) copy(c member.Change) error {
	p, err := n.Open()
	if err != nil {
		return err
	}
	defer p.Close()
	if err := n.Config.Copy(p, c.ID); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(n.Work, dropTimeout)
	defer cancel()
	return n.Members.Change(ctx, c)
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
