package netlock

import (
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/internal/baseline"
	"github.com/declock/declock/lock"
)

// Kinds of messages. docs/switch.md says who sends them to whom, and what their words are.
const (
	// To the switch.
	msgAcquire = baseline.MsgNetLock + iota
	msgRelease
	msgPush // by the server: a request that it has kept

	// Within the switch: packets that are recirculated.
	msgNext
	msgLast

	// From the switch.
	msgGranted  // to the client
	msgBusy     // to the client, which does not wait
	msgOutside  // to the client: the switch has no queue for the lock
	msgReleased // to the releasing machine
	msgKeep     // to the server: a request for which there is no entry
	msgRefill   // to the server: entries are free

	msgWake // to a client of the own machine, or to its agent: look again
)

// up reports whether a kind of packet is for the program of the switch.
func up(k fabric.MsgKind) bool { return k >= msgAcquire && k <= msgLast }

// An opID is a request or release of a machine, which counts them by slot: the value of a slot grows by two with each, and a request that the server sends back has the
// odd value between. A machine that has come in the number of another begins anew, with a later incarnation. Bits: 8 machine, 12 slot, 20 incarnation, 22 value, 1 try, 1 mode.
type opID uint64

const (
	opTry         opID = 2
	opMode        opID = 1
	opNumber           = 2
	opIncarnation      = 24
	opSlot             = 44
	opCN               = 56

	slotBits        = opCN - opSlot
	incarnationBits = opSlot - opIncarnation
	valueBits       = opIncarnation - opNumber
)

// newOp returns what the first operation of a slot follows. The incarnation is the last bits of the View.Epoch when the machine joined: between two machines of one number there are two views more, as the first left
// and as the second joined. So 0, which stands for no machine in registers, may be 1.
func newOp(cn fabric.CNID, slot int, epoch uint64) opID {
	return opID(cn)<<opCN | opID(slot)<<opSlot | opID(max(epoch&(1<<incarnationBits-1), 1))<<opIncarnation
}

func (o opID) cn() fabric.CNID { return fabric.CNID(o >> opCN) }
func (o opID) slot() int       { return int(o >> opSlot & (1<<slotBits - 1)) }
func (o opID) try() bool       { return o&opTry != 0 }
func (o opID) mode() lock.Mode { return lock.Mode(o & opMode) }

// number returns the incarnation and the value.
func (o opID) number() uint64 { return uint64(o>>opNumber) & (1<<(opSlot-opNumber) - 1) }

// next returns the next operation of the slot.
func (o opID) next(flags opID) opID {
	return o&^(1<<opIncarnation-1) | (o+2<<opNumber)&(1<<opIncarnation-1<<opNumber) | flags
}

// newer reports whether an operation with a number comes after one with another, in the same slot. 0: there was none.
func newer(a, b uint64) bool {
	x, y := a>>valueBits, b>>valueBits
	return y == 0 || ahead(x, y, incarnationBits) || x == y && ahead(a, b, valueBits)
}

// ahead reports whether a count of so many bits is ahead of another.
func ahead(a, b uint64, bits int) bool {
	d := (a - b) & (1<<bits - 1)
	return d != 0 && d>>(bits-1) == 0
}

// flagsOf returns the flags of a request.
func flagsOf(r *lock.Request) opID {
	f := opID(r.Mode)
	if r.Try {
		f |= opTry
	}
	return f
}

// The third word of a packet.
const (
	left   = 1       // msgAcquire: the client has given up, and its machine takes the grant
	waited = 1       // msgGranted: it came out of the queue
	room   = 1 << 32 // msgKeep: the queue is empty, and the lower half says up to which request in all the server may send
)
