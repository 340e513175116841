package reclaim

import (
	"fmt"
	"slices"
	"testing"
)

// pass passes blocks of a node to another, as by a free list of the memory nodes.
func (w *world) pass(from, to, n int) {
	a, b := w.mine[from], w.mine[to]
	for _, off := range a.free[:n] {
		a.m.Touch(0, off)
		b.m.Touch(0, off)
	}
	b.free = append(b.free, a.free[:n]...)
	a.free = a.free[n:]
}

// What others may do between two operations of the one who leads rounds: of nodes 0 to 3, 0 leads, 3 is dead. They return whose blocks are to be found.
var meanwhile = []struct {
	name string
	do   func(w *world) (alive, found []int)
}{
	{"a member leaves", func(w *world) (alive, found []int) {
		w.pass(2, 1, len(w.mine[2].free))
		if err := w.mine[2].m.Leave(w.mine[2].Do, nil); err != nil {
			w.t.Fatal(err)
		}
		return []int{0, 1}, []int{3}
	}},
	{"a compute node joins, and opens it", func(w *world) (alive, found []int) {
		w.cns = append(w.cns, w.c.AddCN())
		w.mine = append(w.mine, w.join(4))
		w.pass(1, 4, 5)
		return []int{0, 1, 2, 4}, []int{3}
	}},
	{"a member dies", func(w *world) (alive, found []int) {
		w.kill(2, 1)
		return []int{0, 1}, []int{2, 3}
	}},
	{"a member dies, and another opens it with its number", func(w *world) (alive, found []int) {
		w.kill(2, 1)
		for w.cns = append(w.cns, w.c.AddCN()); w.cns[4].ID() != w.cns[2].ID(); w.cns = append(w.cns[:4], w.c.AddCN()) {
		}
		w.mine = append(w.mine, w.join(4))
		w.pass(1, 4, 5)
		return []int{0, 1, 4}, []int{2, 3}
	}},
	{"another opens it with the number of the dead one", func(w *world) (alive, found []int) {
		for w.cns = append(w.cns, w.c.AddCN()); w.cns[4].ID() != w.cns[3].ID(); w.cns = append(w.cns[:4], w.c.AddCN()) {
		}
		w.mine = append(w.mine, w.join(4))
		w.pass(1, 4, 5)
		return []int{0, 1, 2, 4}, []int{3}
	}},
	{"others answer", func(w *world) (alive, found []int) {
		w.tend(2, 1, 2)
		return []int{0, 1, 2}, []int{3}
	}},
	{"a block goes from one to another", func(w *world) (alive, found []int) {
		w.pass(1, 2, 3)
		w.tend(1, 2)
		w.pass(2, 1, 3)
		return []int{0, 1, 2}, []int{3}
	}},
}

// Whatever other nodes do between any two operations of the leader, and whichever is slow to answer: the blocks that crashed nodes leaked are found, once,
// and no others.
func TestTheOthersBetweenAnyTwoOperationsOfTheLeader(t *testing.T) {
	for _, x := range meanwhile {
		t.Run(x.name, func(t *testing.T) {
			for slow := range 3 {
				for at := 0; between(t, x.do, at, slow) && !t.Failed(); at++ {
				}
			}
		})
	}
}

// between plays one of meanwhile at a time of the leader, and reports whether the leader came so far. One member, 0: none, answers at every
// fifth opportunity only.
func between(t *testing.T, do func(w *world) (alive, found []int), at, slow int) bool {
	w := newWorld(t, 4)
	defer w.c.Close()
	w.kill(3, 0)
	alive, found := []int{0, 1, 2}, []int{3}
	calls := 0
	w.mine[0].between = func() {
		if calls++; calls-1 == at {
			alive, found = do(w)
		}
	}
	for round := range 25 {
		for i := range 5 {
			if slices.Contains(alive, i) && (i != slow || i == 0 || round%5 == 0) {
				w.tend(1, i)
			}
		}
	}
	w.mine[0].between = nil
	w.tend(40, alive...)
	w.wantFound(fmt.Sprintf("before or after operation %d, node %d is slow", at/2+1, slow), found...)
	return calls > at
}
