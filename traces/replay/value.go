package replay

import (
	"encoding/binary"
	"fmt"
)

// With Verify a value is a sequence of blocks, one per operation that wrote a part of
// it: one base (set, add, replace, cas), pieces before it (prepend) and behind it (append).
//
//	0      4      8              16              24             32            n-8      n
//	+------+------+---------------+---------------+--------------+---- ... ----+--------+
//	|magic | n    | key hash      | stamp         | seal         | pattern     | ^seal  |
//	|+kind |      |               |               |              |             |        |
//	+------+------+---------------+---------------+--------------+---- ... ----+--------+
//
// All numbers are little endian. The seal is a hash of what stands before it. The pattern is a word per 8
// bytes that follows from the seal and the offset: every byte of a block depends on its key,
// writer, version and length, so that bytes of two versions mixed at any boundary are found.
const (
	offLength  = 4
	offKey     = 8
	offStamp   = 16
	offSeal    = 24
	offPattern = 32
	tailSize   = 8
	// MinBlock is the least size of a value that verifies itself. Smaller ones are raised to it.
	MinBlock = offPattern + tailSize

	blockMagic  = 0xdec10c00 // the low byte is the kind
	patternStep = 0x9e3779b97f4a7c15
)

type blockKind uint8

const (
	kindBase  blockKind = 1
	kindPiece blockKind = 2
)

// A stamp is unique of a write: run (8 bits) | client (16) | count of the client's writes (40: enough for days).
type stamp uint64

const countBits = 40

func newStamp(w writer, count uint64) stamp { return stamp(w)<<countBits | stamp(count) }

func (s stamp) writer() writer { return writer(s >> countBits) }
func (s stamp) count() uint64  { return uint64(s) & (1<<countBits - 1) }

func (s stamp) String() string { return fmt.Sprintf("%s write %d", s.writer(), s.count()) }

// A writer is a client of a run.
type writer uint32

func newWriter(run uint8, client uint16) writer { return writer(run)<<16 | writer(client) }

func (w writer) String() string { return fmt.Sprintf("client %d of run %d", uint16(w), uint8(w>>16)) }

func seal(head, key, s uint64) uint64 {
	x := head*0xbf58476d1ce4e5b9 ^ key
	x = (x ^ x>>29) * 0x94d049bb133111eb
	x = (x ^ x>>32 ^ s) * 0xd6e8feb86659fd93
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	return x ^ x>>31
}

// putBlock fills b, of at least MinBlock bytes, with one block.
func putBlock(b []byte, kind blockKind, key uint64, s stamp) {
	le := binary.LittleEndian
	le.PutUint32(b, blockMagic|uint32(kind))
	le.PutUint32(b[offLength:], uint32(len(b)))
	le.PutUint64(b[offKey:], key)
	le.PutUint64(b[offStamp:], uint64(s))
	x := seal(le.Uint64(b), key, uint64(s))
	le.PutUint64(b[offSeal:], x)
	body, word := b[offPattern:len(b)-tailSize], x
	for len(body) >= 8 {
		word += patternStep
		le.PutUint64(body, word)
		body = body[8:]
	}
	word += patternStep
	for i := range body {
		body[i] = byte(word >> (8 * i))
	}
	le.PutUint64(b[len(b)-tailSize:], ^x)
}

// checkBlock checks the block that v begins with, and returns its length.
func checkBlock(v []byte, key uint64) (n int, kind blockKind, s stamp, what string) {
	le := binary.LittleEndian
	if len(v) < MinBlock {
		return 0, 0, 0, "the value is cut: too few bytes for a block"
	}
	kind = blockKind(le.Uint32(v))
	length := le.Uint32(v[offLength:])
	if le.Uint32(v)&^0xff != blockMagic || (kind != kindBase && kind != kindPiece) {
		return 0, 0, 0, "no block begins here: not a value of this replayer, or torn"
	}
	if length < MinBlock || uint64(length) > uint64(len(v)) {
		return 0, 0, 0, "the value is cut: its block is longer"
	}
	b := v[:length]
	holder := le.Uint64(b[offKey:])
	s = stamp(le.Uint64(b[offStamp:]))
	x := seal(le.Uint64(b), holder, uint64(s))
	if x != le.Uint64(b[offSeal:]) {
		return 0, 0, 0, "the block's header is torn"
	}
	if holder != key {
		return 0, 0, 0, "the value is of another key"
	}
	if le.Uint64(b[len(b)-tailSize:]) != ^x {
		return 0, 0, 0, "the block is torn: beginning and end are of two writes"
	}
	body, word := b[offPattern:len(b)-tailSize], x
	for len(body) >= 8 {
		word += patternStep
		if le.Uint64(body) != word {
			return 0, 0, 0, "the block is torn in the middle"
		}
		body = body[8:]
	}
	word += patternStep
	for i := range body {
		if body[i] != byte(word>>(8*i)) {
			return 0, 0, 0, "the block is torn near its end"
		}
	}
	return int(length), kind, s, ""
}

// A valueInfo is what a whole value says of itself.
type valueInfo struct {
	base   stamp
	pieces uint32 // of the given writer
}

// checkValue checks a whole value of the key; at is the offset of what is wrong.
func checkValue(v []byte, key uint64, me writer) (info valueInfo, at int, what string) {
	hasBase := false
	var lastMine uint64 // count of my last piece, walking away from the base
	for at < len(v) {
		n, kind, s, what := checkBlock(v[at:], key)
		switch {
		case what != "":
			return info, at, what
		case kind == kindBase && hasBase:
			return info, at, "two whole values in one"
		case kind == kindBase:
			info.base, hasBase, lastMine = s, true, 0
		case s.writer() == me:
			// Pieces before the base get older towards it, those behind it younger.
			if lastMine != 0 && (s.count() > lastMine) != hasBase {
				return info, at, "pieces of one client are out of order"
			}
			lastMine = s.count()
			info.pieces++
		}
		at += n
	}
	if !hasBase {
		return info, at, "the whole value that the pieces were added to is gone"
	}
	return info, at, ""
}
