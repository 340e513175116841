package check

import (
	"errors"
	"fmt"

	"github.com/declock/declock/btree"
	"github.com/declock/declock/fabric"
)

// closeReplicatedTree checks a replicated tree when all is over, as closeReplicated does a store: its backups become what the primaries are, and it is sound and has the same keys when they serve.
func (w *world) closeReplicatedTree(p fabric.Port) {
	own := w.nodes[w.s.CNs]
	t, err := own.tree.Client(w.locker(own, p))
	if err != nil {
		w.object("tree check", err.Error())
		return
	}
	defer t.Close()
	w.readTree(t) // it attaches to what serves now
	w.reclaimOn()
	w.reclaimOnWitness()
	if w.s.Repair > 0 && !w.awaitCopies(p) {
		return
	}
	w.awaitTreeWalks(t, p)
	w.promoteAll(p)
	w.readTree(t)
	if r := w.inspectTree(t, btree.CheckOptions{Repair: true}); r != nil && !r.Clean() {
		w.object("tree check", fmt.Sprint("after the last promotion: ", r))
	}
	w.readTree(t)
}

// awaitTreeWalks has the tree's backups become equal to the primaries: compute nodes settle what others that crashed, and failed operations, have left.
func (w *world) awaitTreeWalks(t *btree.Client, p fabric.Port) {
	for began := p.Now(); ; {
		r, err := t.Check(btree.CheckOptions{Backups: true})
		switch {
		case err == nil && r.Sound():
			return
		case errors.Is(err, fabric.ErrNodeDown) && p.Now() > began+4*walkLookNs: // a backup that has ended, and has missed nothing
			return
		case p.Now() < began+walkNs:
			_ = p.Pause(p.Now() + walkLookNs)
		default:
			w.object("tree check", fmt.Sprint(err, r))
			return
		}
	}
}
