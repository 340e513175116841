package cql

import "github.com/declock/declock/fabric"

// Kinds of messages. Body[0] is always the lock.
const (
	// msgGrant, to the client that an entry names: you hold the lock.
	// Body[1] is the granted index, Body[2] the earliest timestamp among those
	// who wait behind it, Body[3] when it was sent (Stamp encoding, both may be absent).
	msgGrant = fabric.MsgCQL + iota
	// msgGrantRange, to agents: every reader waiting with an index from
	// Body[1] to before Body[2] holds the lock.
	msgGrantRange
	// msgReset, to agents: From resets the lock; Body[1] is the header it found,
	// Body[2] the bound of indices given out before.
	msgReset
	// msgResetAck, to the resetting agent: no participant on From's node holds
	// the lock or waits for it. Body[1] is that of the msgReset.
	msgResetAck
	// msgAskReset, to the own agent: reset the lock unless its head is beyond
	// the index Body[1]; Body[2] is the Reason. From agent to agent: you lead a
	// reset of the lock, see that it goes on.
	msgAskReset
	// msgAbort, from the own agent to a waiting client: give the place with
	// index Body[1] up and try again.
	msgAbort
	// msgQuiesced, to the own agent: a frozen participant has given the lock
	// up or its acquisition.
	msgQuiesced
)

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

// Known tells whether the timestamp is there.
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

func grant(l fabric.Addr, index uint64, behind, sent Stamp) fabric.Message {
	return fabric.Message{Kind: msgGrant, Body: [7]uint64{uint64(l), index, uint64(behind), uint64(sent)}}
}
