package lock

import "github.com/declock/declock/fabric"

// MaxValue is the largest size of a Value, in bytes.
const MaxValue = 64

// A Value is data that a lock protects, which comes and goes with the lock. It must be
// touched under the lock only, and by Keepers only.
type Value struct {
	// Addr is where the value is: 8-byte aligned, on the lock's memory node, and
	// the same for all that use the lock.
	Addr fabric.Addr
	// Buf is memory of the Port, 8 to MaxValue bytes, a multiple of 8; of the same length for
	// all that use the lock. AcquireValue fills it.
	Buf []byte
	// Overwrite says, before AcquireValue, that the holder does not want to know the value, for it will
	// write all of Buf. Then Buf is not filled.
	Overwrite bool
	// Dirty says, before ReleaseValue, that the holder has changed Buf. It must hold the lock exclusively.
	Dirty bool
}

// A Keeper is a Locker that keeps a lock's value on the compute node for as long as the
// lock stays there: holders of a streak hand it on without a trip to the memory node,
// which sees one READ and one WRITE for all of them.
type Keeper interface {
	Locker

	// AcquireValue is Acquire; when it returns nil, v.Buf is the value.
	AcquireValue(h *Hold, r *Request, v *Value) error

	// ReleaseValue is Release of a lock that AcquireValue acquired, with the new value if
	// v.Dirty. It returns when all that this holder has written, or seen of others, is on
	// the memory node: nothing that was acknowledged is lost with the compute
	// node. So it may wait for holders after this one, but not if the client holds
	// another lock.
	ReleaseValue(h *Hold, v *Value, before []fabric.Op) error
}
