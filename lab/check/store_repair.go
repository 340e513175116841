package check

import (
	"fmt"
	"slices"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/memory/handle"
)

// storeRepairs adds to what storePromotes draws more memory nodes that end: each that comes back, and each spare, may get a new backup, which is copied to while all else goes
// on. Any replica may end while there is another in sync, and any compute node, that which copies too.
func (s *Scenario) storeRepairs(d *drawer) {
	if s.Class != StoreRepair && s.Class != TreeRepair && !(s.Class == Drops && d.percent(75)) {
		return
	}
	s.Repair = 1
	s.Spares = max(s.Spares, s.Copies+1-s.MNs)
	s.Rounds *= 2
	for range d.between(1, 6) {
		s.Plan = append(s.Plan, s.ends(d, true)...)
	}
}

// copiedHead is how much of a memory its host formats.
const copiedHead = 0x48

// formatCopy formats a new backup of a number as its host would.
func (w *world) formatCopy(id fabric.MemID, write func(uint64, []byte)) {
	if head := w.formatted[id]; head != nil {
		write(0, head)
	}
}

// lend has all memory nodes take new backups from now on.
func (w *world) lend() {
	w.formatted = map[fabric.MemID][]byte{}
	for _, id := range w.mns {
		w.formatted[id] = make([]byte, copiedHead)
		w.c.Peek(fabric.At(id, 0), w.formatted[id])
	}
	for i := range w.s.MNs + w.s.Spares {
		w.c.Lend(fabric.MemID(i), uint64(w.s.MNs)*storeSize)
	}
}

// copyEveryNs is how often a compute node looks whether it is to copy.
const copyEveryNs = 20 * fabric.Microsecond

// startCopiers has all live compute nodes look after new backups, while clients work, or copying is set.
func (w *world) startCopiers() {
	for i, n := range w.nodes {
		if !n.dead {
			w.c.Go(n.sim, fmt.Sprintf("copier of cn%d", i+1), func(p fabric.Port) { w.copies(i+1, p) })
		}
	}
}

func (w *world) copies(cn int, p fabric.Port) {
	n := w.nodes[cn-1]
	for w.working > 0 || w.copying {
		to, host := w.toCopy(n)
		if to.Number != 0 {
			k := w.locker(n, p)
			err := handle.CopyNumber(k, to, handle.CopyOptions{
				Use:  func(e *memory.Entry, f func(handle.Copied) error) error { return w.useFor(n, k, e, f) },
				Dead: func() fabric.CNSet { return n.sim.View().Dead() }, Creating: &n.creating,
				Free: func() error { return handle.FreeDropped(p, w.mns, n.sim.View) },
			})
			if err == nil {
				w.copied(to, host)
			} else if !w.droppedMeanwhile(err) && !w.toleratesReclaim(cn, "copy", err) {
				return
			}
		}
		_ = p.Pause(p.Now() + max(copyEveryNs, w.s.ThinkNs/1000))
	}
}

// copied returns the store or tree of a node.
func (n *node) copied() handle.Copied {
	if n.tree != nil {
		return n.tree
	}
	return n.store
}

// toCopy returns a backup to which a compute node is to copy, and its host; its Number is 0 if there is none.
func (w *world) toCopy(n *node) (to handle.NewBackup, host member.Incarnation) {
	live := n.sim.View().Live
	if first, _ := live.Next(0); first != n.sim.ID() {
		return to, 0
	}
	for _, id := range w.mns {
		g := w.c.Group(id)
		for _, r := range g.Replicas {
			if r.Phase == member.Copying && g.Serving {
				return handle.NewBackup{Mem: id, Number: r.Number, Epoch: g.Epoch}, r.Host
			}
		}
	}
	return to, 0
}

// copied tells the coordinator that a backup is in sync.
func (w *world) copied(to handle.NewBackup, host member.Incarnation) {
	g := w.c.Group(to.Mem)
	if g.Epoch == to.Epoch && slices.ContainsFunc(g.Replicas, func(r member.Replica) bool { return r.Number == to.Number && r.Host == host }) {
		if w.c.Change(member.Change{ID: to.Mem, Kind: member.Synced, Host: host, Seen: g.Changed}) == nil {
			w.counts.Copied++
		}
	}
}

// awaitCopies has all numbers get as many copies as they are to have, once the faults are over.
func (w *world) awaitCopies(p fabric.Port) bool {
	w.copying = true
	defer func() { w.copying = false }()
	w.startCopiers()
	short := func(id fabric.MemID) bool {
		g := w.c.Group(id)
		return len(g.Replicas) < w.s.Copies || slices.ContainsFunc(g.Replicas, func(r member.Replica) bool { return r.Phase != member.InSync })
	}
	for began := p.Now(); slices.ContainsFunc(w.mns, short); _ = p.Pause(p.Now() + walkLookNs) {
		if p.Now() > began+walkNs {
			for _, id := range w.mns {
				w.object("copies", fmt.Sprintf("%v has too few, or one that is not in sync: %+v", id, w.c.Group(id).Replicas))
			}
			return false
		}
	}
	return true
}
