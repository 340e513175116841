package lock

import (
	"sync"
	"sync/atomic"
)

// InUse keeps the use of one client by two goroutines at a time apart, which would give wrong values and corrupt memory: the second one
// panics. Only Close of what the client belongs to comes between two operations, see BeginClose. The zero value is ready.
type InUse struct {
	state   atomic.Uint32
	closing sync.Mutex // held while the state is useClosing
}

// States of InUse.
const (
	useFree    uint32 = iota
	useBusy           // an operation is under way
	useClosing        // between BeginClose and EndClose
)

// Begin begins an operation. It panics if another operation of the client is under way. While another goroutine closes the client it
// waits: the operation then finds the client closed.
func (u *InUse) Begin() {
	if !u.state.CompareAndSwap(useFree, useBusy) {
		u.beginLater()
	}
}

func (u *InUse) beginLater() {
	u.closing.Lock() // after EndClose
	defer u.closing.Unlock()
	if !u.state.CompareAndSwap(useFree, useBusy) {
		panic("declock: concurrent use of a Session: an operation began while another one of the same Session, or of a client made from it, " +
			"was under way; open a Session for each goroutine")
	}
}

// End ends an operation. A callback of the user runs between End and Begin, so that it can use the client's Session.
func (u *InUse) End() { u.state.Store(useFree) }

// Busy reports whether an operation is under way. Any goroutine may ask.
func (u *InUse) Busy() bool { return u.state.Load() == useBusy }

// BeginClose reports whether no operation of the client is under way. Then the client is the caller's until EndClose. Any goroutine may
// call it.
func (u *InUse) BeginClose() bool {
	u.closing.Lock()
	if u.state.CompareAndSwap(useFree, useClosing) {
		return true
	}
	u.closing.Unlock()
	return false
}

// EndClose ends what BeginClose began. The client must be closed: operations that have waited go on.
func (u *InUse) EndClose() {
	u.state.Store(useFree)
	u.closing.Unlock()
}

// InUseOf returns the flag that all users of a Locker share; for a Locker without one, a new one.
func InUseOf(l Locker) *InUse {
	if o, ok := plain(l).(interface{ InUse() *InUse }); ok {
		return o.InUse()
	}
	return new(InUse)
}
