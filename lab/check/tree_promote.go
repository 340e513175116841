package check

import (
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
	w.awaitWalks("tree check", p, func() (verdict, error) { return t.Check(btree.CheckOptions{Backups: true}) })
	w.promoteAll(p)
	w.readTree(t)
	if r := w.inspectTree(t, btree.CheckOptions{Repair: true}); r != nil && !r.Clean() {
		w.object("tree check", fmt.Sprint("after the last promotion: ", r))
	}
	w.readTree(t)
	t.Close() // which gives back what it keeps for itself
	w.judgeLeaks(p)
}
