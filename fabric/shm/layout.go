package shm

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sync/atomic"
	"unsafe"

	"github.com/declock/declock/fabric"
)

// Format: do not change. A change is a new version, and the golden bytes in the tests say so.
const formatVersion = 1

const (
	pageSize     = 4096
	hugePageSize = 2 << 20
	cacheLine    = 64

	magicMemory  = "DECLMEM\n"
	magicCluster = "DECLCLU\n"
	magicCompute = "DECLCN \n"

	// headerSize is the part of each header that never changes; the last
	// four bytes are its CRC-32C.
	headerSize   = 64
	fieldsOffset = 12 // behind magic and version
	crcOffset    = headerSize - 4
)

// A liveWord reports whether a memory node is up, and in which epoch. It
// changes as one, so that one load is all that an operation needs.
//
//	 63        32 31         8 7       0
//	+------------+------------+---------+
//	|   epoch    |     0      |  state  |
//	+------------+------------+---------+
type liveWord uint64

const (
	liveEpochShift = 32
	liveStateMask  = 0xff
)

// memState is the state of a memory node.
type memState uint8

const (
	memAbsent   memState = iota // never served, or closed and removed
	memStarting                 // its server takes and zeroes memory
	memUp
	memDown // its server has gone, its memory is there
)

func (s memState) String() string {
	switch s {
	case memAbsent:
		return "absent"
	case memStarting:
		return "starting"
	case memUp:
		return "up"
	case memDown:
		return "down"
	}
	return fmt.Sprintf("memState(%d)", uint8(s))
}

func makeLive(epoch uint32, s memState) liveWord {
	return liveWord(epoch)<<liveEpochShift | liveWord(s)
}

func (w liveWord) epoch() uint32   { return uint32(w >> liveEpochShift) }
func (w liveWord) state() memState { return memState(w & liveStateMask) }
func (w liveWord) String() string  { return fmt.Sprintf("epoch %d %v", w.epoch(), w.state()) }

// A memoryHeader is the start of a memory node's file. Little-endian. The
// memory that operations address begins at offset start.
//
//	 0        8     12    16       24       32      40    42       60   64
//	+--------+-----+-----+--------+--------+-------+-----+--------+----+
//	| magic  | ver |flags|  size  | start  |  key  | mem |   0    |crc |
//	+--------+-----+-----+--------+--------+-------+-----+--------+----+
//	64       72                                                     start
//	+--------+----------------------------------------------------------+
//	|  live  |                            0                             |
//	+--------+----------------------------------------------------------+
type memoryHeader struct {
	flags uint32
	size  uint64 // bytes that operations can address
	start uint64 // pageSize or hugePageSize
	key   uint64
	mem   fabric.MemID
}

const (
	memoryLiveOffset = 64

	flagKeep = 1 << 0 // outlives its server
	flagHuge = 1 << 1 // mappings ask for huge pages
)

func (h *memoryHeader) fields() []any { return []any{&h.flags, &h.size, &h.start, &h.key, &h.mem} }

func (h *memoryHeader) encode() [headerSize]byte { return seal(magicMemory, h.fields()) }

func (h *memoryHeader) decode(b []byte) error {
	if err := unseal(b, magicMemory, h.fields()); err != nil {
		return err
	}
	if h.start != pageSize && h.start != hugePageSize || h.size > fabric.MaxOffset || h.size == 0 {
		return fmt.Errorf("%w: memory of %d bytes at %d", ErrFormat, h.size, h.start)
	}
	return nil
}

// A clusterHeader is the start of the file "cluster". Little-endian.
//
//	 0        8     12    16       24        32        48     52       60   64
//	+--------+-----+-----+--------+---------+---------+------+--------+----+
//	| magic  | ver |maxCN|  key   | clock   | boot ID |slots |   0    |crc |
//	+--------+-----+-----+--------+---------+---------+------+--------+----+
//	64       72                                                         4096
//	+--------+--------------------------------------------------------------+
//	|  lost  |                              0                               |
//	+--------+--------------------------------------------------------------+
//	4096                            20480                           24576
//	+-------------------------------+-------------------------------+
//	| 256 cnSlots, by CN            | 64 mnSlots, by MN             |
//	+-------------------------------+-------------------------------+
type clusterHeader struct {
	maxCN uint32
	key   uint64
	// clock is Unix time minus CLOCK_MONOTONIC, in ns, when the cluster was
	// created: all processes then have the same clock, and it never steps.
	clock  int64
	bootID [16]byte // CLOCK_MONOTONIC, and every process, is of this boot
	// slots is the length of a ring.
	slots uint32
}

const (
	lostOffset    = 64 // how many compute nodes were lost: fabric.View.Lost
	leaseOffset   = 72 // nanoseconds that a compute node may stand still; 0: for ever
	cnSlotsOffset = pageSize
	mnSlotsOffset = cnSlotsOffset + (int(fabric.MaxCN)+1)*cacheLine
	clusterSize   = int64(mnSlotsOffset + MaxMN*cacheLine)
)

func (h *clusterHeader) fields() []any { return []any{&h.maxCN, &h.key, &h.clock, &h.bootID, &h.slots} }

func (h *clusterHeader) encode() [headerSize]byte { return seal(magicCluster, h.fields()) }

func (h *clusterHeader) decode(b []byte) error {
	if err := unseal(b, magicCluster, h.fields()); err != nil {
		return err
	}
	if h.maxCN == 0 || h.maxCN > uint32(fabric.MaxCN) || !validSlots(h.slots) {
		return fmt.Errorf("%w: %d compute nodes, rings of %d", ErrFormat, h.maxCN, h.slots)
	}
	return nil
}

// A cnSlot is the entry of a compute node in the file "cluster".
type cnSlot struct {
	// counter is odd while the compute node is a member: its incarnation. Each
	// join and each end adds one, and the sum of all is the epoch of the view.
	counter atomic.Uint64
	pid     atomic.Uint64
	pidNS   atomic.Uint64 // inode of the process's PID namespace
	joined  atomic.Int64  // fabric.Time
	beat    atomic.Uint64 // grows while the process runs; 0: there is no lease
	_       [cacheLine - 40]byte
}

// An mnSlot is the entry of a memory node in the file "cluster".
type mnSlot struct {
	live  atomic.Uint64 // liveWord; the epoch stays when the memory node goes
	pid   atomic.Uint64
	pidNS atomic.Uint64
	size  atomic.Uint64
	_     [cacheLine - 32]byte
}

// A computeHeader is the start of a compute node's file, which holds what
// others tell it: a ring for each possible sender. Little-endian. Each
// incarnation has a new file, so that nothing meant for an earlier one can
// reach it.
//
//	 0        8     12   14      16            24      28      60   64
//	+--------+-----+----+-------+-------------+-------+-------+----+
//	| magic  | ver | cn | maxCN | incarnation | slots |   0   |crc |
//	+--------+-----+----+-------+-------------+-------+-------+----+
//	64       72       128     136       4096
//	+--------+--------+-------+---------+-----------------------------+
//	| asleep |   0    | hint  |    0    | rings of cn1, cn2, .. maxCN |
//	+--------+--------+-------+---------+-----------------------------+
//
// asleep is odd while the node's pump sleeps and its bell has not been rung; it
// grows, so that a late "I have rung" cannot be taken for that of a later sleep.
// hint has a bit for what there may be to do: see hintOf.
type computeHeader struct {
	cn          fabric.CNID
	maxCN       uint16
	incarnation uint64
	slots       uint32
}

const (
	asleepOffset = 64
	hintOffset   = 128
	ringsOffset  = pageSize
)

func (h *computeHeader) fields() []any {
	return []any{&h.cn, new(byte), &h.maxCN, &h.incarnation, &h.slots} // a number has two bytes in the file
}

func (h *computeHeader) encode() [headerSize]byte { return seal(magicCompute, h.fields()) }

func (h *computeHeader) decode(b []byte) error {
	if err := unseal(b, magicCompute, h.fields()); err != nil {
		return err
	}
	if h.maxCN == 0 || h.maxCN > uint16(fabric.MaxCN) || !validSlots(h.slots) {
		return fmt.Errorf("%w: %d compute nodes, rings of %d", ErrFormat, h.maxCN, h.slots)
	}
	return nil
}

// computeSize is the size of a compute node's file.
func computeSize(maxCN, slots uint32) uintptr {
	return ringsOffset + uintptr(maxCN)*ringSize(slots)
}

var crcTable = crc32.MakeTable(crc32.Castagnoli)

// seal returns a header with pointers to its fields, one behind the other from fieldsOffset on.
func seal(magic string, fields []any) (b [headerSize]byte) {
	copy(b[:], magic)
	binary.LittleEndian.PutUint32(b[8:], formatVersion)
	at := fieldsOffset
	for _, f := range fields {
		n, _ := binary.Encode(b[at:], binary.LittleEndian, f)
		at += n
	}
	binary.LittleEndian.PutUint32(b[crcOffset:], crc32.Checksum(b[:crcOffset], crcTable))
	return b
}

// unseal reads the fields of a header.
func unseal(b []byte, magic string, fields []any) error {
	switch {
	case len(b) < headerSize:
		return fmt.Errorf("%w: only %d bytes", ErrFormat, len(b))
	case string(b[:8]) != magic:
		return fmt.Errorf("%w: magic is %q, not %q", ErrFormat, b[:8], magic)
	case binary.LittleEndian.Uint32(b[8:]) != formatVersion:
		return fmt.Errorf("%w: version is %d, not %d", ErrFormat, binary.LittleEndian.Uint32(b[8:]), formatVersion)
	case binary.LittleEndian.Uint32(b[crcOffset:]) != crc32.Checksum(b[:crcOffset], crcTable):
		return fmt.Errorf("%w: header checksum", ErrFormat)
	}
	at := fieldsOffset
	for _, f := range fields {
		n, _ := binary.Decode(b[at:], binary.LittleEndian, f)
		at += n
	}
	return nil
}

// The compiler refuses a negative array length: slots are cache lines.
var (
	_ [cacheLine - unsafe.Sizeof(cnSlot{})]byte
	_ [unsafe.Sizeof(cnSlot{}) - cacheLine]byte
	_ [cacheLine - unsafe.Sizeof(mnSlot{})]byte
	_ [unsafe.Sizeof(mnSlot{}) - cacheLine]byte
)
