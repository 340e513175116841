package cql

import (
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// Kinds of messages. Body[0] is always the lock. The upper half of the kind is the lock's term (term.go).
const (
	// msgGrant, to the client that an entry names: you hold the lock.
	// Body[1] is the granted index, Body[2] the earliest timestamp among those
	// that wait behind it, Body[3] when it was sent (Stamp encoding, both may be absent).
	msgGrant = fabric.MsgCQL + iota
	// msgGrantRange, to agents: every reader waiting with an index from
	// Body[1] to before Body[2] holds the lock.
	msgGrantRange
	// msgReset, to agents: From resets the lock; Body[1] is the header as From has set it,
	// with the ID of From: it identifies the reset. Body[2] is the bound of indices given out before. Body[6]: see detour.
	msgReset
	// msgResetAck, to the resetting agent: no participant on From's node holds
	// the lock or waits for it. Body[1] is that of the msgReset.
	msgResetAck
	// msgAskReset, to the own agent: reset the lock, unless that is needless (see
	// Client.AskReset). Body[1] is an index, Body[2] the Reason. From agent to agent:
	// you lead a reset of the lock, see that it goes on.
	msgAskReset
	// msgAbort, from the own agent to a waiting client: give the ticket with
	// index Body[1] up and try again.
	msgAbort
	// msgQuiesced, to the own agent: a frozen participant has given the lock
	// up or its acquisition.
	msgQuiesced
	// msgReport, from a reader of a train to the next writer: it is done. Body[1] is the index of the writer, Body[2] the reader's place.
	msgReport
	// msgMembers, before a msgGrant of the same index: the members of a train that it has no room for.
	msgMembers
	// msgProbe, to agents: answer by msgAnswer, with the same Body[1], the index of a ticket that waits.
	msgProbe
	msgAnswer
)

// detour is Body[6] of a msgReset or msgResetAck that an agent passes on for two that do not reach each other; 0: it comes from its sender.
//
//	 16   15    8 7      0
//	+---+--------+--------+
//	| 1 |   to   |  from  |
//	+---+--------+--------+
func detour(from, to fabric.CNID) uint64 { return 1<<16 | uint64(to)<<8 | uint64(from) }

// detoured returns from which compute node a message is that another may have passed on, and to which.
func detoured(m *fabric.Message) (from, to fabric.CNID, ok bool) {
	w := m.Body[6]
	return fabric.CNID(w), fabric.CNID(w >> 8), w != 0 && (MessageKind(m) == msgReset || MessageKind(m) == msgResetAck)
}

// Reason says why a lock is reset.
type Reason uint64

// Reasons for resets (section 4.4, reset occasions).
const (
	QueueOverflow Reason = iota + 1
	VersionOverflow
	WaitTimeout
	UnknownOutcome
	Corruption
	NodeFailure
	numReasons
)

var reasonNames = [numReasons]string{"", "queue overflow", "version overflow", "wait timeout",
	"unknown outcome of an atomic", "corrupt lock", "failed node"}

func (r Reason) String() string {
	if r > 0 && r < numReasons {
		return reasonNames[r]
	}
	return "unknown reason"
}

// A Stamp is a timestamp that may be absent: bit 16 says that it is there.
type Stamp uint32

const stampKnown Stamp = 1 << 16

// KnownStamp makes a Stamp of 16 bits of timesync's microseconds.
func KnownStamp(us uint16) Stamp { return stampKnown | Stamp(us) }

// Known reports whether the timestamp is there.
func (s Stamp) Known() bool { return s&stampKnown != 0 }

// Micros returns the timestamp.
func (s Stamp) Micros() uint16 { return uint16(s) }

// Earliest returns the earlier of two timestamps, either of which may be
// absent. Timestamps wrap: of two that are more than half the range apart, the
// greater is the earlier (section 5.3).
func Earliest(a, b Stamp) Stamp {
	switch {
	case !a.Known():
		return b
	case !b.Known():
		return a
	case int16(b.Micros()-a.Micros()) < 0:
		return b
	}
	return a
}

// MaxCarried is the largest value that travels with a grant, in words of 8 bytes.
const MaxCarried = 3

// A Carried is the value of a lock that travels with its grant: the next holder need not
// READ it. The zero value is none.
type Carried struct {
	Offset int32 // of the value's address from the lock's, in bytes
	Words  uint8 // 0 to MaxCarried
	Word   [MaxCarried]uint64
}

// The word Body[3] of a grant, which has the value in the words behind it:
//
//	 63            32 31      19 18   17 16            0
//	+----------------+----------+-------+---------------+
//	|   offset (32)  |  0 (13)  | words |  sent (Stamp) |
//	+----------------+----------+-------+---------------+
const (
	stampBits   = 17
	wordsShift  = stampBits
	wordsBits   = 2
	offsetShift = 32
	carriedFrom = 4 // index in Body of the value's first word
)

// grant makes a msgGrant. c may be nil.
func grant(l fabric.Addr, index uint64, behind, sent Stamp, c *Carried) fabric.Message {
	m := fabric.Message{Kind: msgGrant, Body: [7]uint64{uint64(l), index, uint64(behind), uint64(sent)}}
	if c != nil && c.Words > 0 {
		m.Body[3] |= uint64(uint32(c.Offset))<<offsetShift | uint64(c.Words)<<wordsShift
		copy(m.Body[carriedFrom:], c.Word[:])
	}
	return m
}

// decodeCarried returns when a msgGrant was sent, and the value that it brings.
func decodeCarried(m *fabric.Message) (sent Stamp, c Carried) {
	w := m.Body[3]
	sent = Stamp(w & (1<<stampBits - 1))
	if c.Words = uint8(w >> wordsShift & (1<<wordsBits - 1)); c.Words > 0 {
		c.Offset = int32(uint32(w >> offsetShift))
		copy(c.Word[:c.Words], m.Body[carriedFrom:])
	}
	return sent, c
}

// Answered reports whether a message is one that an agent answers, or counts, by what it knows of its own node alone: without an operation on the
// lock's memory, so that it does not matter which memory is there now.
func Answered(m *fabric.Message, self fabric.CNID) bool {
	_, to, ok := detoured(m)
	kind := MessageKind(m)
	return kind == msgReset || kind == msgQuiesced || kind == msgProbe || ok && to != self
}

// Signals reports whether a message is the signal of a reset.
func Signals(m *fabric.Message) bool { return MessageKind(m) == msgReset }

// Wished returns the ticket of which the agent of a node is to know again if it fails to handle m: m asks for the reset of its lock. Mode says whether the ticket counts wherever the head is: a reader's does.
func Wished(m *fabric.Message) (p Ticket, ok bool) {
	p = Ticket{Lock: fabric.Addr(m.Body[0]), Mode: lock.Shared, Term: MessageTerm(m)}
	if MessageKind(m) == msgAskReset && Reason(m.Body[2]) == NodeFailure {
		p.Index, p.Mode = m.Body[1], lock.Exclusive
	}
	return p, MessageKind(m) == msgAskReset
}
