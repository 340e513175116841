package reclaim

import (
	"slices"
	"sync"
	"sync/atomic"
)

// A Tracker remembers, while a round is under way, which blocks pass through a compute node's hands. Any goroutine may use it.
type Tracker struct {
	on atomic.Bool

	mu      sync.Mutex // never held across a fabric call
	touched map[uint64]struct{}
	lost    map[uint64]struct{}
	users   []*User
	waiting []waiting
}

// A User is a client whose operations take and give blocks. One goroutine uses it at a time.
type User struct {
	// Use tells that an operation of the client's session is under way, also one that takes and gives no blocks. nil: there are no such.
	Use interface{ Busy() bool }
	// Kept, if set, calls add for the free blocks that the client keeps for itself: see Owner.Held. Any goroutine may call it.
	Kept  func(add func(part int, from, to uint64))
	count atomic.Uint64 // odd while an operation is under way
}

// A waiting is an operation that was under way when it was looked for.
type waiting struct {
	u     *User
	count uint64
}

// Enter begins an operation in which blocks may be taken or given, and Exit ends it. They do not nest.
func (u *User) Enter() { u.count.Add(1) }

// Exit ends what Enter began.
func (u *User) Exit() { u.count.Add(1) }

// Add makes a client known that will take and give blocks, until Remove.
func (t *Tracker) Add(u *User) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.users = append(t.users, u)
}

// Remove undoes Add.
func (t *Tracker) Remove(u *User) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.users = slices.DeleteFunc(t.users, func(x *User) bool { return x == u })
	t.waiting = slices.DeleteFunc(t.waiting, func(w waiting) bool { return w.u == u })
}

// blockKey names a block in the Tracker's sets.
func blockKey(part int, off64 uint64) uint64 { return uint64(part)<<offsetBits | off64 }

// Touch notes that a block passes through the hands of the caller, which has taken it, or is about to give it back, or to put it into a list. It is called
// between Enter and Exit, and before another client can have the block.
func (t *Tracker) Touch(part int, off64 uint64) {
	if t.on.Load() {
		t.note(part, off64)
	}
}

func (t *Tracker) note(part int, off64 uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.touched != nil {
		t.touched[blockKey(part, off64)] = struct{}{}
	}
}

// Lose says that a block is neither here nor given back for certain: an operation on it may take effect at any time, as
// long as this compute node lives. No other is to have it until then.
func (t *Tracker) Lose(part int, off64 uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lost == nil {
		t.lost = map[uint64]struct{}{}
	}
	t.lost[blockKey(part, off64)] = struct{}{}
}

// track begins to remember, with nothing.
func (t *Tracker) track() {
	t.mu.Lock()
	t.touched = map[uint64]struct{}{}
	t.mu.Unlock()
	t.on.Store(true)
}

// untrack forgets.
func (t *Tracker) untrack() {
	t.on.Store(false)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.touched, t.waiting = nil, nil
}

// await notes which operations are under way.
func (t *Tracker) await() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting = t.waiting[:0]
	for _, u := range t.users {
		if n := u.count.Load(); n&1 != 0 {
			t.waiting = append(t.waiting, waiting{u, n})
		}
	}
}

// quiet reports whether what await noted is over.
func (t *Tracker) quiet() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting = slices.DeleteFunc(t.waiting, func(w waiting) bool { return w.u.count.Load() != w.count })
	return len(t.waiting) == 0
}

// Idle reports whether no operation is under way here, but for that of one User. Others of the same session have none.
func (t *Tracker) Idle(but *User) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, u := range t.users {
		if u != but && (u.count.Load()&1 != 0 || u.Use != nil && u.Use != but.Use && u.Use.Busy()) {
			return false
		}
	}
	return true
}

// kept calls add for what the clients keep for themselves.
func (t *Tracker) kept(add func(part int, from, to uint64)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, u := range t.users {
		if u.Kept != nil {
			u.Kept(add)
		}
	}
}

// losses returns how many blocks are lost.
func (t *Tracker) losses() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return uint64(len(t.lost))
}

// had reports whether a block has passed through this compute node's hands, or is lost.
func (t *Tracker) had(part int, off64 uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := blockKey(part, off64)
	_, touched := t.touched[k]
	_, lost := t.lost[k]
	return touched || lost
}
