package shm

import (
	"math/bits"
	"sync/atomic"
	"unsafe"

	"github.com/declock/declock/fabric"
)

// A ring carries the messages of one compute node to another, in the file of
// the receiver. One producer (the sender, under a mutex of its own), one
// consumer.
//
//	0        8         12       64          128
//	+--------+---------+--------+-----------+-----------+----
//	|  head  | waiting |   0    |  slot 0   |  slot 1   | ...
//	+--------+---------+--------+-----------+-----------+----
//
// head counts the slots that the consumer has emptied, since the beginning;
// it is there for the producer to see how much room there is. Where the
// producer is, the slots tell: see slotHeader.
type ringHead struct {
	head atomic.Uint64
	// waiting is set by a producer that found the ring full: the consumer tells
	// it when there is room.
	waiting atomic.Uint32
	_       [cacheLine - 12]byte
}

type ringSlot struct {
	header atomic.Uint64 // slotHeader
	body   [7]uint64
}

// A slotHeader is written last, and says by its lap that the slot is full:
// position p, counted from the ring's beginning, is in slot p mod n, and lap p/n+1 mod 256. Before,
// the slot held the lap before; in new memory 0, which is not the first lap.
//
//	 63          32 31      20 19       8 7     0
//	+--------------+----------+----------+-------+
//	|     kind     |   from   |    to    |  lap  |
//	+--------------+----------+----------+-------+
//
// from and to are client indexes. The sender's compute node is the ring's.
type slotHeader uint64

const (
	slotLapBits   = 8
	slotToShift   = slotLapBits
	slotIndexBits = 12
	slotFromShift = slotToShift + slotIndexBits
	slotKindShift = slotFromShift + slotIndexBits
	slotIndexMask = 1<<slotIndexBits - 1
)

// The index of a client fits, and the fields fill the word.
const (
	_ = uint(slotIndexMask - fabric.MaxClientIndex)
	_ = uint(slotKindShift+32-64) + uint(64-slotKindShift-32)
)

func makeSlotHeader(kind fabric.MsgKind, from, to int, lap uint8) slotHeader {
	return slotHeader(kind)<<slotKindShift | slotHeader(from)<<slotFromShift |
		slotHeader(to)<<slotToShift | slotHeader(lap)
}

func (h slotHeader) kind() fabric.MsgKind { return fabric.MsgKind(h >> slotKindShift) }
func (h slotHeader) from() int            { return int(h>>slotFromShift) & slotIndexMask }
func (h slotHeader) to() int              { return int(h>>slotToShift) & slotIndexMask }
func (h slotHeader) lap() uint8           { return uint8(h) }

const (
	minSlots = 8
	maxSlots = 1 << 16
)

// validSlots reports whether a ring may have n slots.
func validSlots(n uint32) bool { return n >= minSlots && n <= maxSlots && n&(n-1) == 0 }

// ringSize is the size of a ring of n slots.
func ringSize(n uint32) uintptr {
	return unsafe.Sizeof(ringHead{}) + uintptr(n)*unsafe.Sizeof(ringSlot{})
}

// slotsFor returns the length of the rings of a cluster: more compute nodes,
// shorter rings, or the files of 255 would take 1 GiB. A full ring costs
// little: what does not fit waits in the sender.
func slotsFor(maxCN int) uint32 {
	if maxCN <= 32 {
		return 256
	}
	return 64
}

// A ring is one side's view of a ring. What has one holds its mapping too.
type ring struct {
	shared *ringHead
	slots  []ringSlot
	shift  uint   // log2 of the number of slots
	pos    uint64 // the position of this side
	seen   uint64 // producer: the head when it last looked
}

// openRing returns the ring of sender cn in the file of a compute node.
func openRing(m *mapping, slots uint32, cn fabric.CNID) ring {
	at := ringsOffset + uintptr(cn-1)*ringSize(slots)
	return ring{
		shared: (*ringHead)(m.at(at)),
		slots:  unsafe.Slice((*ringSlot)(m.at(at+unsafe.Sizeof(ringHead{}))), slots),
		shift:  uint(bits.TrailingZeros32(slots)),
	}
}

func (r *ring) slot(pos uint64) *ringSlot { return &r.slots[pos&uint64(len(r.slots)-1)] }

func (r *ring) lap(pos uint64) uint8 { return uint8(pos>>r.shift) + 1 }

// produce makes this side the producer. An earlier incarnation may have been
// one: it goes on behind the last slot that was published.
func (r *ring) produce() {
	r.seen = r.shared.head.Load()
	r.pos = r.seen
	for range r.slots {
		if slotHeader(r.slot(r.pos).header.Load()).lap() != r.lap(r.pos) {
			return
		}
		r.pos++
	}
}

// push appends a message, unless the ring is full.
func (r *ring) push(from, to int, m *fabric.Message) bool {
	if r.pos-r.seen >= uint64(len(r.slots)) {
		head := r.shared.head.Load()
		// More than the ring holds: full, or the head is garbage.
		if r.pos-head >= uint64(len(r.slots)) {
			return false
		}
		r.seen = head
	}
	s := r.slot(r.pos)
	s.body = m.Body
	s.header.Store(uint64(makeSlotHeader(m.Kind, from, to, r.lap(r.pos))))
	r.pos++
	return true
}

// pop takes the oldest message out, if there is one. The producer sees the
// room after publish.
func (r *ring) pop(m *fabric.Message) (from, to int, ok bool) {
	s := r.slot(r.pos)
	h := slotHeader(s.header.Load())
	if h.lap() != r.lap(r.pos) {
		return 0, 0, false
	}
	m.Kind = h.kind()
	m.Body = s.body
	r.pos++
	return h.from(), h.to(), true
}

// publish shows the producer how far the consumer is, and reports whether the
// producer waits to be notified.
func (r *ring) publish() (waits bool) {
	r.shared.head.Store(r.pos)
	return r.shared.waiting.Load() != 0 && r.shared.waiting.Swap(0) != 0
}
