package lock

// InUse reports the use of one client by two goroutines at a time, which would give wrong values and corrupt memory. Like that of
// Go's maps its flag is a plain word: it costs a compare and a store, finds such use most of the time, and is written without synchronisation, so
// that the race detector reports the use too. The zero value is ready.
type InUse struct{ busy bool }

// Begin begins an operation. It panics if another operation of the client is under way.
func (u *InUse) Begin() {
	if u.busy {
		panic("declock: concurrent use of a Session: an operation began while another one of the same Session, or of a client made from it, " +
			"was under way; open a Session for each goroutine")
	}
	u.busy = true
}

// End ends an operation. A callback of the user runs between End and Begin, so that it can use the client's Session.
func (u *InUse) End() { u.busy = false }

// Busy reports whether an operation is under way. Any goroutine may ask.
//
//go:norace
func (u *InUse) Busy() bool { return u.busy }

// InUseOf returns the flag that all users of a Locker share; for a Locker without one, a new one.
func InUseOf(l Locker) *InUse {
	if o, ok := l.(interface{ InUse() *InUse }); ok {
		return o.InUse()
	}
	return new(InUse)
}
