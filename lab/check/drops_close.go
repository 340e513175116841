package check

import (
	"fmt"
	"slices"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/oracle"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/memory/handle"
)

const (
	// letGoWithinNs is within which time live compute nodes let go of what has been dropped once all is quiet: they wait for a second, and for eight if they have asked in vain.
	letGoWithinNs = 20 * fabric.Second
	// closeSideNs is within which time something can be opened or dropped once all is quiet.
	closeSideNs = fabric.Second
)

// closeSides drops all that is there beside the main store or tree, and judges that the live compute nodes let go of it, and that its memory comes back. If there are backups, others serve before,
// also such as were added when it had been dropped; and something new is made, which may get memory of what was dropped.
func (w *world) closeSides(p fabric.Port) {
	w.siding = true
	defer func() { w.siding = false }()
	w.startSideKeepers()
	c := w.newClient(w.s.CNs+1, "closer beside", p)
	for _, m := range w.names {
		if m.now != nil && !(m.now.made || w.closeOpen(c, m.now)) || m.now != nil && !w.closeDrop(c, m.now) {
			return
		}
	}
	if w.s.Copies > 0 && !w.closePromote(p) {
		return
	}
	last := []*sideName{{name: "tree", tree: true}, {name: "store"}}
	for _, m := range last {
		w.names = append(w.names, m)
		if !w.closeOpen(c, m.begin(w)) || !w.closeFill(c, m.now) {
			return
		}
	}
	w.awaitLetGo(p)
	for _, m := range last {
		if !w.closeRead(c, m.now) || !w.closeDrop(c, m.now) {
			return
		}
	}
	w.awaitLetGo(p)
	w.judgeSides(c)
}

// closePromote has other backups serve, until each number is served by one that was added when all had been dropped, if new ones are made.
func (w *world) closePromote(p fabric.Port) bool {
	if w.s.Repair == 0 {
		w.promoteAll(p)
		return true
	}
	for range w.s.Copies {
		if !w.awaitCopies(p) {
			return false
		}
		w.promoteAll(p)
	}
	return w.awaitCopies(p)
}

// insist calls f until it succeeds, for as long as that may take when all is quiet.
func (w *world) insist(c *client, what string, f func() error) bool {
	for began := c.port.Now(); ; _ = c.port.Pause(c.port.Now() + walkLookNs) {
		err := f()
		if err == nil {
			return true
		}
		if c.port.Now() > began+closeSideNs {
			w.object("drops", fmt.Sprintf("at the end: %s: %v", what, err))
			return false
		}
	}
}

func (w *world) closeOpen(c *client, inc *incarnation) bool {
	return w.insist(c, "open "+inc.tag, func() error {
		x := c.n.sideOf(inc)
		if x != nil {
			return nil
		}
		if err := w.attach(c.k); err != nil {
			return err
		}
		col, err := w.openSide(c.n, c.port, inc.of.name, inc.of.tree, inc.nodes, false)
		if err == nil {
			inc.made = true
			c.n.sides = append(c.n.sides, &side{of: inc, col: col})
		}
		return err
	})
}

func (w *world) closeDrop(c *client, inc *incarnation) bool {
	inc.ending, inc.tried = true, inc.tried || inc.dropper != nil // whose node has crashed in the middle of it
	return w.insist(c, "drop "+inc.tag, func() error {
		err := w.drop(c.k, c.n, inc)
		inc.tried = true
		return err
	})
}

// closeFill gives each key a value.
func (w *world) closeFill(c *client, inc *incarnation) bool {
	k, _ := c.useSide(c.n.sideOf(inc))
	if k == nil {
		return false
	}
	for i := range 40 {
		key := fmt.Sprintf("k%d", i)
		op := oracle.StoreOp{Client: int(c.port.ID()), Method: "set", Key: key, Arg: inc.value(key, 0, i, 100*(i%20))}
		if !w.insist(c, "fill "+inc.tag, func() error { return doSide(k, &op) }) || op.Result == oracle.NoSpace {
			return op.Result == oracle.NoSpace
		}
		inc.filled++
	}
	return true
}

// closeRead reads what closeFill has written.
func (w *world) closeRead(c *client, inc *incarnation) bool {
	k, _ := c.useSide(c.n.sideOf(inc))
	if k == nil {
		return false
	}
	for i := range inc.filled {
		key := fmt.Sprintf("k%d", i)
		op := oracle.StoreOp{Client: int(c.port.ID()), Method: "get", Key: key}
		if !w.insist(c, "read "+inc.tag, func() error { return doSide(k, &op) }) {
			return false
		}
		if op.Result != oracle.Done || op.Value != inc.value(key, 0, i, 100*(i%20)) {
			w.object("drops", fmt.Sprintf("at the end: [%v] of %s, after all have let go of what was dropped: %q", &op, inc.tag, op.Value))
			return false
		}
	}
	c.closeSides(func(x *side) bool { return x.of == inc })
	return true
}

// awaitLetGo waits until the live compute nodes have let go of all that has been dropped.
func (w *world) awaitLetGo(p fabric.Port) {
	held := func() string {
		for _, n := range w.nodes {
			for _, x := range n.sides {
				if !n.dead && x.of.ending {
					return fmt.Sprintf("%v has %s, which has been dropped: it knows that: %v, %d clients", n.sim.ID(), x.of.tag, x.col.Dropped(), x.users)
				}
			}
		}
		return ""
	}
	for began := p.Now(); held() != ""; _ = p.Pause(p.Now() + maxReclaimNs) {
		if p.Now() > began+letGoWithinNs {
			w.object("drops", "not let go: "+held())
			return
		}
	}
}

// judgeSides judges that nothing is left of what was beside the main store or tree, when all of it has been dropped and let go.
func (w *world) judgeSides(c *client) {
	w.insist(c, "free what was dropped", func() error {
		if err := w.attach(c.k); err != nil {
			return err
		}
		if err := handle.FreeDropped(c.port, w.mns, c.n.sim.View); err != nil {
			return err
		}
		for _, mn := range w.mns {
			if err := w.restOf(lock.Path(c.k), mn); err != nil {
				return err
			}
		}
		return nil
	})
}

// restOf returns an error if a memory node has more than the main store or tree, and what is kept for compute nodes that have failed to open it: they are registered with it, perhaps, until they
// open it again or leave the cluster.
func (w *world) restOf(port fabric.Port, mn fabric.MemID) error {
	r, err := memory.Open(port, mn)
	if err != nil {
		return err
	}
	retired, err := r.Retired(port)
	if err != nil {
		return err
	}
	list, err := r.List(port)
	if err != nil {
		return err
	}
	pages, err := r.Pages(port)
	if err != nil {
		return err
	}
	rest, kept := r.Size()-r.HeapOffset()-pages.Free(), 0
	for i := range list {
		rest -= pages.Owned(&list[i])
	}
	for i := range retired {
		if w.failedToOpen(retired[i].Name) {
			rest -= pages.Owned(&retired[i])
			kept++
		}
	}
	if len(retired) > kept || len(list) != 1 || rest != 0 {
		return fmt.Errorf("%v has %s, of what was dropped%s, and %d bytes that no entry has", mn, tagsOf(list), tagsOf(retired), rest)
	}
	return nil
}

// tagsOf tells some entries from each other.
func tagsOf(list []memory.Entry) string {
	text := ""
	for i := range list {
		part, of := list[i].Part()
		text += fmt.Sprintf(" %q part %d of %d (%#x, %#x)", list[i].Name, part, of, list[i].Info[2], list[i].Info[5])
	}
	return text
}

// failedToOpen reports whether a live compute node has failed to open what has a name, or to close it.
func (w *world) failedToOpen(name string) bool {
	return slices.ContainsFunc(w.nodes, func(n *node) bool { return !n.dead && n.failed[name] })
}

// judgeHistories judges what was beside the main store or tree until it was dropped.
func (w *world) judgeHistories(r *Result) {
	for _, inc := range w.made {
		wrong, undecided := inc.history.Check(judgeTime)
		for _, what := range wrong {
			w.object("drops", fmt.Sprintf("%s: %s", inc.tag, what))
		}
		r.Undecided += uint64(undecided)
	}
}
