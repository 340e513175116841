package cql

import (
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// Layout gives the widths of a lock's fields. All users of a lock must agree.
// Encodings are a memory format: do not change.
type Layout struct {
	// CapacityBits is c: the queue has 2^c entries. There must be no more
	// participants than entries (compute nodes; or clients, without hierarchy).
	CapacityBits uint8
	// VersionBits is the width that versions use of an entry's field: 2 to
	// MaxVersionBits. The paper's is 16. It only says how often a lock is reset
	// for version overflow: every (2^VersionBits-2) * 2^c acquisitions.
	VersionBits uint8
}

// Limits of a Layout.
const (
	MinCapacityBits = 1
	MaxCapacityBits = 11
	MinVersionBits  = 2
	MaxVersionBits  = entryVersionBits
)

// LayoutFor returns the smallest layout with room for n participants, with
// the widest versions.
func LayoutFor(n int) (Layout, error) {
	for c := MinCapacityBits; c <= MaxCapacityBits; c++ {
		if n <= 1<<c {
			return Layout{CapacityBits: uint8(c), VersionBits: MaxVersionBits}, nil
		}
	}
	return Layout{}, fmt.Errorf("cql: %d participants are too many for a queue: at most %d", n, 1<<MaxCapacityBits)
}

// LayoutWithTrains returns the smallest layout with room for n participants, and for whole trains of them (docs/trains.md): members that have
// gone are counted until the last of theirs has, and may come again meanwhile.
func LayoutWithTrains(n int) (Layout, error) { return LayoutFor(n + min(n, maxTrain) - 1) }

// Validate says what is wrong with a layout.
func (y Layout) Validate() error {
	if y.CapacityBits < MinCapacityBits || y.CapacityBits > MaxCapacityBits {
		return fmt.Errorf("cql: queue capacity of 2^%d entries: must be 2^%d to 2^%d", y.CapacityBits, MinCapacityBits, MaxCapacityBits)
	}
	if y.VersionBits < MinVersionBits || y.VersionBits > MaxVersionBits {
		return fmt.Errorf("cql: versions of %d bits: must be %d to %d", y.VersionBits, MinVersionBits, MaxVersionBits)
	}
	return nil
}

// Capacity returns the number of queue entries.
func (y Layout) Capacity() uint64 { return 1 << y.CapacityBits }

// Lock returns size and alignment of a lock.
func (y Layout) Lock() lock.Layout { return lock.Layout{Size: 8 + 8*y.Capacity(), Align: 8} }

// Slot returns the slot of the queue that an index uses.
func (y Layout) Slot(index uint64) uint64 { return index & (y.Capacity() - 1) }

// entryAddr returns the address of the queue entry of an index.
func (y Layout) entryAddr(l fabric.Addr, index uint64) fabric.Addr {
	return l.Add(8 + 8*y.Slot(index))
}

// Version returns the version of the entry of an index: which traversal of
// the queue it belongs to, modulo the version cycle; never 0.
func (y Layout) Version(index uint64) uint32 {
	return uint32(y.roundOf(index)) + 1
}

// versions returns the length of a version cycle, in rounds (traversals).
func (y Layout) versions() uint64 { return 1<<y.VersionBits - 1 }

// roundOf returns the round of an index in its version cycle. Most locks never see a second cycle, and a
// division is the slowest there is on the way to a lock that is free.
func (y Layout) roundOf(index uint64) uint64 {
	r, n := index>>y.CapacityBits, y.versions()
	if r < n {
		return r
	}
	return r % n
}

// exhausted reports whether an index lies in the last round of a version cycle, which
// is never used: the lock must be reset first.
func (y Layout) exhausted(index uint64) bool {
	return y.roundOf(index) == y.versions()-1
}

// freshIndex returns where the queue goes on after a reset, when indices
// below used may have been given out: the start of a round that has not been used.
func (y Layout) freshIndex(used uint64) uint64 {
	r := used>>y.CapacityBits + 1
	if r%y.versions() == y.versions()-1 {
		r++
	}
	return r << y.CapacityBits
}

// maxIndex is the bound of indices: the width of qhead, and what a token can hold.
func (y Layout) maxIndex() uint64 {
	bits := y.headBits()
	if bits > tokenIndexBits {
		bits = tokenIndexBits
	}
	return 1<<bits - 4*y.Capacity()
}

// Tokens are the memory that the lock lies in (memory.Params.Generation), an index, and the number of the exclusive grant within the tenure
// of that index. A memory node that has lost its memory has nothing left of the lock, whose index begins anew:
// tokens still grow, because the generation is greater.
//
//	 63       54 53                    10 9         0
//	+-----------+------------------------+-----------+
//	|generation |       index + 1        |    seq    |
//	+-----------+------------------------+-----------+
const (
	tokenSeqBits   = 10
	tokenIndexBits = 44
	// MaxSeq is the largest seq: a tenure has at most so many exclusive grants.
	MaxSeq = 1<<tokenSeqBits - 1
	// MaxGeneration is the last memory of a memory node for which there are tokens.
	MaxGeneration = 1<<(64-tokenSeqBits-tokenIndexBits) - 1
)

// Token returns the fencing token of the seq-th grant under the entry index, in a memory.
func Token(generation uint32, index uint64, seq uint16) lock.Token {
	return lock.Token(uint64(generation)<<(tokenIndexBits+tokenSeqBits) | (index+1)<<tokenSeqBits | uint64(seq))
}

// A Header is the first word of a lock: the control plane.
//
//	 63                         2c+10 2c+9      c+9 c+8        8 7         0
//	+--------------------------------+-------------+------------+-----------+
//	|        qhead (54-2c)           | qsize (c+1) | wcnt (c+1) | resetID 8 |
//	+--------------------------------+-------------+------------+-----------+
//
// qhead is the index of the queue's head; qsize the number of holders and
// waiters; wcnt the writers among them; resetID the compute node that resets
// the lock, or 0. Only qhead may run over (Fig. 5).
type Header uint64

const (
	resetIDBits = 8
	wcntShift   = resetIDBits
	resetIDMask = 1<<resetIDBits - 1
)

func (y Layout) countBits() uint   { return uint(y.CapacityBits) + 1 }
func (y Layout) sizeShift() uint   { return wcntShift + y.countBits() }
func (y Layout) headShift() uint   { return wcntShift + 2*y.countBits() }
func (y Layout) headBits() uint    { return 64 - y.headShift() }
func (y Layout) countMask() uint64 { return 1<<y.countBits() - 1 }

// Head returns qhead.
func (y Layout) Head(h Header) uint64 { return uint64(h) >> y.headShift() }

// Size returns qsize.
func (y Layout) Size(h Header) uint64 { return uint64(h) >> y.sizeShift() & y.countMask() }

// Writers returns wcnt.
func (y Layout) Writers(h Header) uint64 { return uint64(h) >> wcntShift & y.countMask() }

// ResetID returns the compute node that is resetting the lock, or 0.
func (h Header) ResetID() fabric.CNID { return fabric.CNID(h & resetIDMask) }

// Header encodes a header.
func (y Layout) Header(head, size, writers uint64, reset fabric.CNID) Header {
	return Header(head<<y.headShift() | size<<y.sizeShift() | writers<<wcntShift | uint64(reset))
}

// FormatHeader returns the header for people.
func (y Layout) FormatHeader(h Header) string {
	return fmt.Sprintf("qhead=%d qsize=%d wcnt=%d reset=%d", y.Head(h), y.Size(h), y.Writers(h), h.ResetID())
}

// acquireDelta is what an acquire adds to the header: 1 to qsize and, for a writer,
// 1 to wcnt. No field below qhead runs over while there are less than
// 2^(c+1) participants.
func (y Layout) acquireDelta(m lock.Mode) uint64 {
	d := uint64(1) << y.sizeShift()
	if m == lock.Exclusive {
		d += 1 << wcntShift
	}
	return d
}

// releaseDelta is what a release adds: 1 to qhead, -1 to qsize and, for a writer, -1
// to wcnt. As one 64-bit addition, -1 to a field is 2^64 minus its unit: the
// borrow of a field that is at least 1 ends inside it, so nothing reaches the
// field above. (If a field were 0, the borrow would run up into qhead: that
// is a corrupt lock, and the old value that the FAA returns shows it.)
func (y Layout) releaseDelta(m lock.Mode) uint64 {
	d := uint64(1)<<y.headShift() - 1<<y.sizeShift()
	if m == lock.Exclusive {
		d -= 1 << wcntShift
	}
	return d
}

// A quick is what a Client has computed of its Layout, to recognise a lock that no other participant has.
type quick struct {
	acquire, release [2]uint64 // what is added to the header, by mode
	below            uint64    // mask of these fields
	headShift        uint
	young            uint64 // indices below need no look at versions, and no reset soon
}

func (y Layout) quick() quick {
	q := quick{below: 1<<y.headShift() - 1, headShift: y.headShift(), young: min(y.maxIndex(), (y.versions()-1)<<y.CapacityBits)}
	for _, m := range []lock.Mode{lock.Shared, lock.Exclusive} {
		q.acquire[m], q.release[m] = y.acquireDelta(m), y.releaseDelta(m)
	}
	return q
}

func (q *quick) head(h Header) uint64 { return uint64(h) >> (q.headShift & 63) }

// free reports whether a header is that of a free lock, which admits any participant.
func (q *quick) free(h Header) bool { return uint64(h)&q.below == 0 && q.head(h) < q.young }

// alone reports whether a header, as it was before the release of a ticket, counts no other participant.
func (q *quick) alone(h Header, p *Ticket) bool {
	return uint64(h)&q.below == q.acquire[p.Mode&1] && (p.Mode == lock.Shared || q.head(h) == p.Index)
}

// An Entry is a waiter in the queue: the data plane.
//
//	  63   62         43 42                16 15            0
//	+----+--------------+--------------------+---------------+
//	| ex |  client (20) |    version (27)    | timestamp (16)|
//	+----+--------------+--------------------+---------------+
//
// An entry that was never written is 0; no version is 0.
type Entry uint64

const (
	entryStampBits   = 16
	entryVersionBits = 27
	entryClientBits  = fabric.ClientIDBits

	entryVersionShift = entryStampBits
	entryClientShift  = entryVersionShift + entryVersionBits
	entryModeShift    = entryClientShift + entryClientBits
)

// The widths of an Entry sum up to 64.
var _ = [1]struct{}{}[entryModeShift+1-64]

// MakeEntry encodes an entry.
func MakeEntry(m lock.Mode, c fabric.ClientID, version uint32, stamp uint16) Entry {
	return Entry(uint64(m)<<entryModeShift | uint64(c)<<entryClientShift |
		uint64(version)<<entryVersionShift | uint64(stamp))
}

// Mode returns how the waiter wants the lock.
func (e Entry) Mode() lock.Mode { return lock.Mode(e >> entryModeShift & 1) }

// Client returns whom to notify.
func (e Entry) Client() fabric.ClientID {
	return fabric.ClientID(e >> entryClientShift & (1<<entryClientBits - 1))
}

// Version returns the traversal of the queue that the entry belongs to.
func (e Entry) Version() uint32 { return uint32(e >> entryVersionShift & (1<<entryVersionBits - 1)) }

// Stamp returns when the waiter asked for the lock: timesync's 16 bits of microseconds.
func (e Entry) Stamp() uint16 { return uint16(e) }

func (e Entry) String() string {
	return fmt.Sprintf("%v %v version=%d stamp=%d", e.Mode(), e.Client(), e.Version(), e.Stamp())
}

// isOf reports whether an entry, found in the slot of an index, is the one that a client wrote there with that index.
func (y Layout) isOf(e Entry, index uint64, c fabric.ClientID) bool {
	return y.freshness(e, index) == 0 && e.Client() == c
}

// freshness compares an entry in the slot of index with the version that the
// index has: 0 if it is this index's entry, -1 if it is older (not written
// yet, or never), 1 if it is newer (the slot has been used again).
func (y Layout) freshness(e Entry, index uint64) int {
	got, want := e.Version(), y.Version(index)
	switch {
	case got == want:
		return 0
	case got < want:
		return -1
	}
	return 1
}
