package slab

import (
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/memory"
)

// Lists of many blocks side by side go back in few chains. When one of them is refused, all that was not given back stays in the lists, and goes back later.
func TestListsGoBackInFewChains(t *testing.T) {
	for refused := 1; ; refused++ {
		w := newWorldOf(t, 1, 4*size) // more blocks than the free bits of a chain are of
		a := w.hand(0, 0)
		all := func() (items []uint64) {
			for {
				item, err := a.get(0)
				if errors.Is(err, memory.ErrNoSpace) {
					return items
				}
				w.want(err)
				items = append(items, item)
			}
		}
		items := all()
		a.Keep(&a.Worker, 0, items)
		do, chains := a.Do, 0
		a.Do = func(ops []fabric.Op) error {
			if chains++; chains == refused {
				return &fabric.ChainError{Op: ops[0], Unposted: true, Err: fabric.ErrNodeDown}
			}
			return do(ops)
		}
		err := a.GiveLists(&a.Worker)
		if chains < refused {
			w.want(err)
			if n := len(items); n < 20*Batch || chains > n/Batch/4 {
				t.Errorf("%d blocks went back in %d chains", n, chains)
			}
			return
		}
		if !errors.Is(err, fabric.ErrNodeDown) {
			t.Fatalf("chain %d was refused: %v", refused, err)
		}
		w.want(a.GiveLists(&a.Worker))
		if n := len(all()); n != len(items) {
			t.Errorf("after chain %d was refused, there are %d of %d blocks", refused, n, len(items))
		}
		w.c.Close()
	}
}
