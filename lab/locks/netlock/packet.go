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
// odd value between. Bits: 8 machine, 12 slot, 32 value, 10 not used (in a queue: the lap), 1 try, 1 mode.
type opID uint64

const (
	opTry   opID = 2
	opMode  opID = 1
	opValue      = 12
	opSlot       = 44
	opCN         = 56

	slotBits = opCN - opSlot
)

func newOp(cn fabric.CNID, slot int) opID { return opID(cn)<<opCN | opID(slot)<<opSlot }

func (o opID) cn() fabric.CNID { return fabric.CNID(o >> opCN) }
func (o opID) slot() int       { return int(o >> opSlot & (1<<slotBits - 1)) }
func (o opID) value() uint32   { return uint32(o >> opValue) }
func (o opID) try() bool       { return o&opTry != 0 }
func (o opID) mode() lock.Mode { return lock.Mode(o & opMode) }

// next returns the next operation of the slot.
func (o opID) next(flags opID) opID {
	return o&^(1<<opSlot-1) | opID(o.value()+2)<<opValue | flags
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
