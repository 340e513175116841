package peer

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
	"github.com/declock/declock/internal/boottime"
)

// A Served is a memory-node number as it is served in a state: by the memory node that has joined with it, or, if it is replicated, by its primary.
type Served struct {
	// MN has the number, its size, and the epoch in which it is served; Incarnation and Addr are those of the memory node, as a process, that serves it.
	MN   member.MN
	Host fabric.MemID // with which that process has joined
	Term uint32       // of the number's locks; 0: it is not replicated
	// Backup is the number of the replica (member.Replica.Number) that the process has, if that is not what serves the number; 0: it is.
	Backup uint32
}

// servedIn returns how a number is served in a state. One whose primary is not in force yet is not.
func servedIn(st *member.State, id fabric.MemID) (s Served, ok bool) {
	mn, epoch, ok := st.Server(id)
	g := st.Group(id)
	if !ok || g == nil {
		return Served{MN: mn, Host: mn.ID}, ok
	}
	s = Served{MN: mn, Host: mn.ID, Term: g.Term}
	s.MN.ID, s.MN.Size, s.MN.Epoch = id, g.Size, epoch
	return s, g.Serving
}

// backupIn returns a backup of a number in a state, by the number of the replica.
func backupIn(st *member.State, id fabric.MemID, number uint32) (s Served, ok bool) {
	g := st.Group(id)
	if g == nil {
		return s, false
	}
	i := slices.IndexFunc(g.Replicas, func(r member.Replica) bool { return r.Number == number })
	if i <= 0 {
		return s, false
	}
	j := slices.IndexFunc(st.MNs, func(m member.MN) bool { return m.Incarnation == g.Replicas[i].Host })
	if j < 0 {
		return s, false
	}
	s = Served{MN: st.MNs[j], Host: st.MNs[j].ID, Term: g.Term, Backup: number}
	s.MN.ID, s.MN.Size, s.MN.Epoch = id, g.Size, g.Epoch
	return s, true
}

// Same reports whether both are of one memory node, in one epoch.
func (s *Served) Same(o *Served) bool {
	return s.MN.Incarnation == o.MN.Incarnation && s.MN.Epoch == o.MN.Epoch
}

// isServed reports whether a state has a number served, or a backup of it, as it is in use here.
func isServed(st *member.State, s *Served) bool {
	if s.Backup != 0 {
		now, ok := backupIn(st, s.MN.ID, s.Backup)
		return ok && now.Same(s)
	}
	now, ok := servedIn(st, s.MN.ID)
	return ok && now.Same(s)
}

// Leased returns fabric.ErrFenced if the memory is that of a replicated number, and this node's lease has run out: others may go on without it.
func (r *Remote) Leased() error {
	if r.Term == 0 {
		return nil
	}
	return r.LeasedAt(boottime.Near())
}

// LeasedAt is Leased at a time on the clock of package boottime, which is the present.
func (r *Remote) LeasedAt(now time.Duration) error {
	if r.Term == 0 || r.Node.leased == nil || r.Node.leased.LeasedUntil() > now {
		return nil
	}
	return Fenced(r.Node.Own.ID, errLapsed)
}

// Counts returns why the results of a chain that a memory node has executed do not count; nil: they do. A number that is replicated may have another primary, of which this node has
// not heard: so the node goes by its lease (docs/replication.md), as it did when the chain was posted: lease is what Leased returned when the chain had ended. And one of which it
// has heard is believed no more. That a backup has executed WRITEs stays true.
func (r *Remote) Counts(ops []fabric.Op, lease error) error {
	if r.Term == 0 {
		return nil
	}
	err := lease
	if err == nil && !r.Up.Load() && !(r.Backup != 0 && OnlyWrites(ops)) {
		err = fmt.Errorf("%v is served by another memory node", r.MN.ID)
	}
	if err == nil {
		return nil
	}
	return &fabric.ChainError{Op: ops[0], Err: fmt.Errorf("%w: %w", fabric.ErrUnknownOutcome, err)}
}

// OnlyWrites reports whether a chain has no results: that it was executed is all that comes of it.
func OnlyWrites(ops []fabric.Op) bool {
	return !slices.ContainsFunc(ops, func(o fabric.Op) bool { return o.Kind != fabric.OpWrite })
}

// Suspect reports to the coordinator that the memory node refuses connections after it has taken some: its process has ended, as far as this node can see. If it has not, it is
// given up all the same, which is safe, and costs a failover. So it is done only where another has a copy.
func (r *Remote) Suspect() {
	st, _ := r.Node.State()
	g := st.Group(r.MN.ID)
	if r.Term == 0 || g == nil || g.Primary() != r.MN.Incarnation {
		return
	}
	for _, x := range g.Replicas[1:] {
		if x.Phase == member.InSync && st.Has(x.Host) {
			r.Node.member.Report(r.MN.Incarnation)
			return
		}
	}
}

// errLapsed: this node has not reached the coordinator for as long as its lease lasts.
var errLapsed = errors.New("no renewal of its lease came in time, and others may go on without it")
