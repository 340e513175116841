package tcp

import (
	"encoding/binary"
	"fmt"

	"github.com/declock/declock/fabric"
)

// The wire format: do not change it without a new version. Everything is little-endian. doc.go has
// the order of frames.
//
// The connecting node says hello:
//
//	         63             48 47    40 39    32 31             16 15              0
//	       +------------------+--------+--------+-----------------+-----------------+
//	 0     |                                "DECLOCKT"                              |
//	 8     |      index       |   CN   |  role  | highest version | lowest version  |
//	16     |                              capabilities                              |
//	24     |                      incarnation of the connecting                     |
//	32     |                        incarnation of the called                       |
//	40     |             revision of the state that the connecting acts on          |
//	48     |            tag (lanes)             | number of the next frame (lanes)  |
//	56     |               epoch                |      replica       |    memory    |
//	       +------------------------------------------------------------------------+
//
// The tag names the lane on a connection for several (roleShared). The last word is 0, unless a lane is to memory whose number is replicated (docs/replication.md): it says which number
// (8 bits), in which epoch, and of which replica (24 bits): 0 is the primary.
//
// It is answered:
//
//	         63             48 47             32 31             16 15              0
//	       +------------------+-----------------+-----------------+-----------------+
//	 0     |                                "DECLOCKT"                              |
//	 8     |      known       | length of text  |      code       |     version     |
//	16     |                              capabilities                              |
//	24     |                       size of the memory (lanes)                       |
//	32     |       number: frames executed (lanes), messages delivered (links)      |
//	40     |               epoch                |                key                |
//	48     |             revision of the state that the called acts on              |
//	56     |                                   0                                    |
//	       +------------------------------------------------------------------------+
//	64     |             text for people: why not                    |
//
// known is 1 if number means something.
const (
	magic     = "DECLOCKT"
	helloSize = 64
	replySize = 64
	maxText   = 255

	// Versions of the protocol that this code speaks.
	versionMin = 1
	versionMax = 1
)

// A role says what a connection is for.
type role uint8

const (
	roleLane  role = 1 // a compute node's operations on a memory node
	roleLink  role = 2 // messages from one compute node to another
	roleLocal role = 3 // on a unix socket: a compute node that would reach memory by its own CPU (lend.go); number is the key of the memory
	// roleShared is a connection for frames of lanes, of one incarnation and index, that have been let in over connections of their own. Their frames, and the answers, have the tags of the lanes.
	roleShared role = 4
)

// Capabilities of a memory node.
const (
	capMasked   = 1 << 0
	capAtomic16 = 1 << 1
	capShared   = 1 << 2 // frames of lanes to replicated numbers may go on a connection with roleShared
)

// A hello opens a connection.
type hello struct {
	role     role
	cn       uint8 // number of the compute node that connects
	index    uint16
	min, max uint16 // versions that the connecting speaks
	caps     uint64
	from, to uint64 // incarnations
	revision uint64
	number   uint64
	target   target
}

// A target is the memory that a lane is to. The zero value is that of the memory node's own number, which is not replicated.
type target struct {
	id      fabric.MemID
	replica uint32 // member.Replica.Number of a backup; 0: the primary
	epoch   uint32 // of the number
}

const (
	targetReplica = 8
	targetEpoch   = 32
)

func (t target) encode() uint64 {
	return uint64(uint8(t.id)) | uint64(t.replica)<<targetReplica | uint64(t.epoch)<<targetEpoch
}

func decodeTarget(w uint64) target {
	return target{fabric.MemID(uint8(w)), uint32(w) >> targetReplica, uint32(w >> targetEpoch)}
}

func (h *hello) encode() (b [helloSize]byte) {
	copy(b[:], magic)
	binary.LittleEndian.PutUint16(b[8:], h.min)
	binary.LittleEndian.PutUint16(b[10:], h.max)
	b[12] = byte(h.role)
	b[13] = h.cn
	binary.LittleEndian.PutUint16(b[14:], h.index)
	for i, v := range []uint64{h.caps, h.from, h.to, h.revision, h.number, h.target.encode()} {
		binary.LittleEndian.PutUint64(b[16+8*i:], v)
	}
	return b
}

func (h *hello) decode(b *[helloSize]byte) error {
	if string(b[:len(magic)]) != magic {
		return fmt.Errorf("%w: no hello of DecLock's TCP fabric (or TLS on one side only)", ErrProtocol)
	}
	h.min, h.max = binary.LittleEndian.Uint16(b[8:]), binary.LittleEndian.Uint16(b[10:])
	h.role, h.cn = role(b[12]), b[13]
	h.index = binary.LittleEndian.Uint16(b[14:])
	var target uint64
	for i, v := range []*uint64{&h.caps, &h.from, &h.to, &h.revision, &h.number, &target} {
		*v = binary.LittleEndian.Uint64(b[16+8*i:])
	}
	h.target = decodeTarget(target)
	switch {
	case h.role < roleLane || h.role > roleShared:
		return fmt.Errorf("%w: a connection with role %d", ErrProtocol, h.role)
	case h.index >= maxLanes:
		return fmt.Errorf("%w: lane %d, at most %d", ErrProtocol, h.index, maxLanes)
	case h.cn == 0 || h.from == 0:
		return fmt.Errorf("%w: cn%d, incarnation %d", ErrProtocol, h.cn, h.from)
	}
	return nil
}

// version returns the highest version that both speak.
func (h *hello) version() (uint16, error) {
	v := min(h.max, versionMax)
	if v < h.min || v < versionMin {
		return 0, fmt.Errorf("%w: it speaks %d to %d, here %d to %d", ErrVersion, h.min, h.max, versionMin, versionMax)
	}
	return v, nil
}

// A code says how a hello is answered.
type code uint16

const (
	codeOK code = iota
	codeFenced
	codeBehind
	codeStale
	codeProtocol
	codeVersion
	codeAuth
	codeClosed
)

// A reply answers a hello.
type reply struct {
	version  uint16
	code     code
	known    bool
	caps     uint64
	size     uint64
	number   uint64
	key      uint32
	epoch    uint32
	revision uint64
	text     string
}

func (r *reply) encode() []byte {
	text := r.text[:min(len(r.text), maxText)]
	b := make([]byte, replySize, replySize+len(text))
	copy(b, magic)
	binary.LittleEndian.PutUint16(b[8:], r.version)
	binary.LittleEndian.PutUint16(b[10:], uint16(r.code))
	binary.LittleEndian.PutUint16(b[12:], uint16(len(text)))
	if r.known {
		b[14] = 1
	}
	for i, v := range []uint64{r.caps, r.size, r.number, uint64(r.key) | uint64(r.epoch)<<32, r.revision} {
		binary.LittleEndian.PutUint64(b[16+8*i:], v)
	}
	return append(b, text...)
}

// decode decodes the fixed part, and returns the length of the text.
func (r *reply) decode(b *[replySize]byte) (text int, err error) {
	if string(b[:len(magic)]) != magic {
		return 0, fmt.Errorf("%w: it is not a node of DecLock's TCP fabric (or TLS on one side only)", ErrProtocol)
	}
	r.version, r.code = binary.LittleEndian.Uint16(b[8:]), code(binary.LittleEndian.Uint16(b[10:]))
	r.known = b[14] == 1
	var keys uint64
	for i, v := range []*uint64{&r.caps, &r.size, &r.number, &keys, &r.revision} {
		*v = binary.LittleEndian.Uint64(b[16+8*i:])
	}
	r.key, r.epoch = uint32(keys), uint32(keys>>32)
	if text = int(binary.LittleEndian.Uint16(b[12:])); text > maxText {
		return 0, fmt.Errorf("%w: a text of %d bytes", ErrProtocol, text)
	}
	return text, nil
}

// Then frames follow, in both directions: a header, and what it says. Lengths are
// multiples of 8.
//
//	 63              48 47    40 39    32 31                               0
//	+------------------+--------+--------+-----------------------------------+
//	|      status      | count  |  kind  |      length, with the header      |
//	+------------------+--------+--------+-----------------------------------+
//	|                                 number                                 |
//	+------------------------------------------------------------------------+
//
// Of chains and answers, number is the number of the frame on its lane (32 bits, it wraps), and above it the
// key of the memory, or, on a connection for several lanes, the lane's tag. Of messages it is the number of the first message; of acknowledgements,
// how many messages have been delivered.
const (
	headerSize = 16
	// maxFrame bounds a frame, in bytes. Larger operations are sent in parts.
	maxFrame = 64 << 10
)

// A frameKind says what a frame holds.
type frameKind uint8

const (
	frameChain    frameKind = 1 // compute node to memory node: operations
	frameAnswer   frameKind = 2 // back: their results
	frameMessages frameKind = 3 // compute node to compute node: messages
	frameAck      frameKind = 4 // back: how many messages have been delivered
)

// A header begins a frame.
type header struct {
	length int
	kind   frameKind
	count  int // operations, messages
	status status
	number uint64
}

func (h *header) put(b []byte) {
	_ = b[headerSize-1]
	binary.LittleEndian.PutUint64(b, uint64(uint32(h.length))|uint64(h.kind)<<32|uint64(uint8(h.count))<<40|uint64(h.status)<<48)
	binary.LittleEndian.PutUint64(b[8:], h.number)
}

// laneNumber is number of a frame on a lane.
func laneNumber(number, key uint32) uint64 { return uint64(number) | uint64(key)<<32 }

// parse takes the header of a frame that begins with b, if it is there as a whole. A header that
// cannot be is ErrProtocol.
func (h *header) parse(b []byte) (ok bool, err error) {
	if len(b) < headerSize {
		return false, nil
	}
	w := binary.LittleEndian.Uint64(b)
	h.length, h.kind, h.count, h.status = int(uint32(w)), frameKind(w>>32), int(uint8(w>>40)), status(w>>48)
	h.number = binary.LittleEndian.Uint64(b[8:])
	if h.length < headerSize || h.length > maxFrame || h.length%8 != 0 {
		return false, fmt.Errorf("%w: a frame of %d bytes", ErrProtocol, h.length)
	}
	return len(b) >= h.length, nil
}

// A status is how the chain of a frame ended: of an answer, count operations have been executed, and
// if it is not statusOK, the one behind them was refused for this reason and the rest not looked at.
type status uint16

const (
	statusOK status = iota
	statusOutOfBounds
	statusMisaligned
	statusBadKey
	statusUnsupported
	statusCut // the lane has been cut, on a connection with roleShared
)

// ackNow asks the receiver of messages to acknowledge them at once.
const ackNow status = 1
