package sim

import (
	"fmt"
	"runtime"
)

// What a client remembers can only be known from what it was told since it was last known otherwise. It is known otherwise
// where its program has nothing of it in variables of functions, or these can be reached by somebody: then it
// is where it is in the program, and a digest of what it has elsewhere. Histories that led to the same make no difference from there on.

// ClientMemory says what the client that runs remembers while it waits for the fabric, and its node must have been given
// to NodeMemory. keeps is called with the client's call stack when it begins to wait. It hashes all that the client will
// go by when it goes on, apart from the results of what it waits for, the stack, and what NodeMemory covers; with false, that is not
// known there. A client that has ended remembers nothing: see Forget. Errors that it was told since the last Forget may be kept anywhere: they count in addition.
// ExploreConfig.Audit tells whether that is so.
func (c *Cluster) ClientMemory(keeps func(stack []uintptr) (uint64, bool)) {
	if c.ex != nil && c.cur != nil && c.cur.node.shares != nil {
		c.cur.remembers = keeps
	}
}

// maxStack is how much of a call stack there may be: what has more is not known.
const maxStack = 48

// settle notes what a client remembers that begins to wait.
func (t *Task) settle() {
	if t.remembers == nil || t.port.inflight > 1 {
		return
	}
	ex := t.c.ex
	told, known := uint64(0), uint64(1)
	if !ex.blind {
		ok := false
		if told, ok = ex.recall(); !ok {
			told, ok = t.memory()
			ex.keep(told)
			ex.keep(flag(ok))
			known = flag(ok)
		} else {
			known, _ = ex.recall()
		}
	}
	if known == 1 {
		t.private.told = fold(told, t.failed)
	}
}

// memory returns a hash of what a client remembers, if that is known.
func (t *Task) memory() (uint64, bool) {
	var buf [maxStack]uintptr
	stack := buf[:runtime.Callers(4, buf[:])] // from the caller of the Port's method
	if len(stack) == maxStack {
		return 0, false
	}
	told, ok := t.remembers(stack)
	for _, pc := range stack {
		told = fold(told, uint64(pc))
	}
	return fold(told, uint64(t.index)), ok
}

// forgetAll notes that a client remembers nothing any more.
func (t *Task) forgetAll() {
	if t.remembers != nil {
		t.private.told = fold(uint64(t.index), 9)
	}
}

// taskState returns the hash of what a client remembers.
func (ex *explorer) taskState(t *Task) uint64 {
	told := t.private.told
	if ex.exactly {
		told = t.private.exact
	}
	if t.remembers == nil {
		return told
	}
	h := fold(told, flag(t.started)|flag(t.acted)<<1|flag(t.done)<<2|flag(t.killed)<<3)
	if k := t.port.told; k.live && !t.done && k.heard == t.turns().heard {
		h = fold(fold(h, k.place), hashBytes(k.data)|flag(k.polls))
		for i := range k.ops {
			h = fold(fold(h, hashOp(&k.ops[i])), k.ops[i].Old)
		}
	}
	return h
}

// idState returns the hash of which clients' messages go where on a node.
func (n *Node) idState() uint64 {
	h := uint64(len(n.freed))
	for i := range n.clients {
		c := &n.clients[i]
		h = fold(h, uint64(c.state))
		if c.port != nil {
			h = fold(h, uint64(c.port.index))
		}
	}
	return h
}

// fails notes that a client was told an error.
func (t *Task) fails(err error) {
	if t.remembers != nil {
		t.failed = fold(t.failed, hashError(err))
	}
}

// An audit tells whether clients remember what Cluster.ClientMemory says: states are told apart by all that clients were told, and of those
// that ClientMemory does not tell apart, the same choice must lead to such again.
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
		menu += mix64(ex.nameOf(x))
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

// nameOf names a choice in all states that ClientMemory does not tell apart.
func (ex *explorer) nameOf(x choice) uint64 {
	if id := ex.idOf(x); id != 0 {
		return id
	}
	id := uint64(x.kind)<<56 | 1<<55 // no name of idOf
	switch x.kind {
	case chFence:
		return id | uint64(ex.dead[x.a].id)
	case chNews:
		return id | 1<<54 | uint64(x.a)
	}
	return id | uint64(x.a)
}
