package explore

import (
	"fmt"

	"github.com/declock/declock/fabric/sim"
)

// An audit looks whether programs forget what they say, and whether AppendState methods leave anything out: states are told apart by all that
// the clients of each node were ever told, in order; and of those that exploration would take for one, the same choice must lead to such again.
type audit struct {
	next  map[uint64]audited // by state and choice: the state after it
	menus map[uint64]audited // by state: what can happen
	last  uint64             // state and choice of the present run, 0: none
}

func newAudit() audit {
	return audit{next: map[uint64]audited{}, menus: map[uint64]audited{}}
}

type audited struct {
	hash  uint64
	taken Schedule // how it was found
}

// check notes a hash for a key, and tells of another hash that there is for it.
func check(m map[uint64]audited, key, hash uint64, ex *explorer, what string) string {
	was, ok := m[key]
	if !ok {
		m[key] = audited{hash, Schedule{Choices: append([]int(nil), ex.taken...)}}
	} else if was.hash != hash {
		return fmt.Sprintf("%s after %v is another than after %v", what, Schedule{Choices: ex.taken}, was.taken)
	}
	return ""
}

// arrives notes that a run is in a state.
func (a *audit) arrives(ex *explorer) (state uint64, objection string) {
	state = ex.state()
	menu := uint64(0)
	for _, x := range ex.menu {
		menu += sim.Mix(ex.nameOf(x))
	}
	if a.last != 0 {
		objection = check(a.next, a.last, state, ex, "the state")
	}
	if more := check(a.menus, state, menu, ex, "what can happen"); objection == "" {
		objection = more
	}
	return state, objection
}

// leaves notes a choice.
func (a *audit) leaves(state uint64, ex *explorer, x choice) { a.last = fold(state, ex.nameOf(x)) }

// nameOf names a choice in all states that exploration takes for one.
func (ex *explorer) nameOf(x choice) uint64 {
	if id := ex.idOf(x); id != 0 {
		return id
	}
	id := uint64(x.kind)<<56 | 1<<55 // no name of idOf
	switch x.kind {
	case chFence:
		return id | uint64(ex.u.Doomed[x.a].ID())
	case chNews:
		return id | 1<<54 | uint64(x.a)
	}
	return id | uint64(x.a)
}
