package fiss

import (
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/internal/baseline"
	"github.com/declock/declock/lock"
)

// Kinds of messages. docs/switch.md says who sends them to whom, and what their words are.
const (
	// To the switch.
	msgAcquire  = baseline.MsgFiss + iota
	msgRelease  // of a hold whose agent is elsewhere
	msgFree     // by an agent that no client holds or waits for
	msgTransfer // of an agent to the first waiter's machine
	msgBounce   // a msgAsk for an agent that is not here

	// From the switch.
	msgGranted // to the client
	msgBusy    // to the client, which does not wait
	msgOutside // to the client: the switch has no registers left for the lock
	msgAgain   // to the client: ask anew. From a machine without the agent, too
	msgAsk     // to the agent's machine: ACQUIRE
	msgLeave   // to the agent's machine: RELEASE
	msgFreed   // to the sender of msgFree
	msgRefused // to the sender of msgFree or msgTransfer: there are holders of whom its agent does not know
	msgMove    // to the waiter's machine: an agent

	// Between machines.
	msgWaiters  // the rest of the queue of a msgMove
	msgMoved    // the answer to a msgMove
	msgGrant    // by an agent to another machine's waiter, of a shared lock
	msgQueued   // the answer to a msgAsk: it waits
	msgHeld     // the answer to a msgAsk of which the switch has granted the lock
	msgReleased // the answer to a msgRelease, or by the switch, if the lock is free

	msgBar // to the switch, by an agent: the third word says whether readers are to wait behind a writer

	// Of recoveries (recover.go), by their leader: to the switch's control plane,
	msgBegin   // a round, if it is the next one
	msgRestore // the registers of a lock
	msgOpen    // the lock service

	msgRound // from there: the answer to a msgBegin; to a machine whose packet is of another round, too. Between machines: by a leader that gives way
	msgDone  // from there: the answer to a msgRestore or msgOpen
	msgTaken // from the switch, to a machine's ACQUIRE: another that had its number has acquired in this round. To a msgJoin: that, or another has joined or acquired that has gone

	msgPause   // between machines: to all machines
	msgReport  // to the leader: a holder; without one: that was all
	msgRebuild // to the machine of an agent: a holder; to all, without one: that was all
	msgRebuilt // to the leader
	msgResume  // to all machines

	lastUp = msgBounce

	msgAck  = baseline.MsgFissAck     // between machines: which frame comes next (link.go)
	msgWake = baseline.MsgFissAck + 1 // to a client of the own machine: something has happened to what it waits for
	msgLook = baseline.MsgFissAck + 2 // between machines, to the first: nodes have gone, by a View.Epoch
	msgJoin = baseline.MsgFissAck + 3 // to the switch's control plane, by a machine that begins: which nodes it knows

	msgJoined = baseline.MsgFissAck + 4 // from there: the answer, unless that is msgTaken
)

// No other lock has these kinds.
const _ = uint(baseline.MsgQPLock - 1 - msgResume)

// up reports whether a kind of packet is for the switch.
func up(k fabric.MsgKind) bool {
	return k <= lastUp && k >= msgAcquire || k >= msgBar && k <= msgOpen || k == msgJoin
}

// SentBack reports whether a message is one that was sent back, for the agent that it is for is not there.
func SentBack(m *fabric.Message) bool {
	return m.Kind == msgAgain || m.Body[4] > 0 && (m.Kind == msgBounce || m.Kind == msgRelease)
}

// An opID is an operation of a machine with the switch, which counts them by slot: the number of a slot grows with each. That of an acquisition
// is the name of the holder or waiter, too. Bits: 8 machine, 12 slot, 32 number, 10 the last ones of the round, 1 try, 1 mode.
type opID uint64

const (
	opTry    opID = 2
	opMode   opID = 1
	opRound       = 2
	opNumber      = 12
	opSlot        = 44
	opCN          = 56

	slotBits  = opCN - opSlot
	roundBits = opNumber - opRound
)

// inRound returns a round as the names of its operations have it.
func inRound(n uint64) uint64 { return n & (1<<roundBits - 1) }

func newOp(cn fabric.CNID, slot int, round uint64) opID {
	return opID(cn)<<opCN | opID(slot)<<opSlot | opID(inRound(round))<<opRound
}

func (o opID) cn() fabric.CNID { return fabric.CNID(o >> opCN) }
func (o opID) slot() int       { return int(o >> opSlot & (1<<slotBits - 1)) }
func (o opID) number() uint32  { return uint32(o >> opNumber) }
func (o opID) round() uint64   { return inRound(uint64(o >> opRound)) }
func (o opID) try() bool       { return o&opTry != 0 }
func (o opID) mode() lock.Mode { return lock.Mode(o & opMode) }

// next returns the next operation of the slot.
func (o opID) next(flags opID) opID {
	return newOp(o.cn(), o.slot(), o.round()) | opID(o.number()+1)<<opNumber | flags
}

// flagsOf returns the flags of an acquisition.
func flagsOf(r *lock.Request) opID {
	f := opID(r.Mode)
	if r.Try {
		f |= opTry
	}
	return f
}

// Bits of the third word, above the incarnation.
const (
	withAgent = 1 << 32 // msgGranted: and the lock's agent; msgAsk, msgBounce: the switch has granted it
	exclusive = 1 << 33 // msgFree, msgTransfer: the lock was held exclusively
	barred    = 1 << 34 // msgAsk: of a lock whose readers are to wait
)

// Waiters that fit in a msgMove, and in a msgWaiters.
const (
	inMove = 2
	inMore = 4 // in a frame one less
)
