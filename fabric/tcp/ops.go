package tcp

import (
	"encoding/binary"
	"fmt"

	"github.com/declock/declock/fabric"
)

// An operation on the wire is a word that says what and where, then its operands; the result of one that
// has a result is words, too.
//
//	 63    56 55    48 47                                 0
//	+--------+--------+-----------------------------------+     operands, in words     result, in words
//	|  code  |   0    |              offset               |
//	+--------+--------+-----------------------------------+
//	  read                                                      length in bytes        the bytes, padded
//	  write                                                     length, bytes, padded  -
//	  load                                                      -                      value
//	  store                                                     value                  -
//	  cas                                                       expected, new          old
//	  faa                                                       addend                 old
//	  masked cas                                                expected, its mask,    old
//	                                                            new, its mask
//	  masked faa                                                addend, boundary       old
//	  masked cas16, masked faa16                                the same, in two       old, in two
//	                                                            words each, low first
//
// Source of the masked ones: fabric.Wide.
type opCode uint8

const (
	codeRead opCode = 1 + iota
	codeWrite
	codeLoad
	codeStore
	codeCAS
	codeFAA
	codeMaskedCAS
	codeMaskedFAA
	codeMaskedCAS16
	codeMaskedFAA16
)

const (
	offsetMask = fabric.MaxOffset
	codeShift  = 56
	// maxFixed is the size of the largest operation without bytes: masked cas16.
	maxFixed = 8 * (1 + 8)
	// minPart is the least that is worth sending of a READ or WRITE that has to be cut.
	minPart = 512
)

// pad rounds a length up to whole words.
func pad(n int) int { return (n + 7) &^ 7 }

// A cursor is a place in a chain: an operation, and bytes of it that are done.
type cursor struct{ op, off int }

// appendChain appends a frame's worth of a chain to dst: its operations from a place on, as many as fit. It returns
// the place behind them, how many of them there are, and whether one of them changes memory. The header is left to the caller.
func appendChain(dst []byte, ops []fabric.Op, at cursor) (_ []byte, to cursor, count int, modifies bool) {
	start, answer := len(dst), headerSize
	dst = append(dst, make([]byte, headerSize)...)
	word := func(v uint64) { dst = binary.LittleEndian.AppendUint64(dst, v) }
	for ; at.op < len(ops); at.op++ {
		o := &ops[at.op]
		room := min(maxFrame-(len(dst)-start), maxFrame-answer) - maxFixed
		if room < 0 {
			break
		}
		where := o.Addr.Offset()
		switch {
		case o.Buf != nil && (o.Kind == fabric.OpRead || o.Kind == fabric.OpWrite):
			n := len(o.Buf) - at.off
			where += uint64(at.off)
			cut := pad(n) > room
			if cut {
				// Between words, so that none is torn.
				if n = room&^7 - int(where&7); n < minPart {
					return dst, at, count, modifies
				}
			}
			if o.Kind == fabric.OpRead {
				word(uint64(codeRead)<<codeShift | where)
				word(uint64(n))
				answer += pad(n)
			} else {
				word(uint64(codeWrite)<<codeShift | where)
				word(uint64(n))
				dst = append(dst, o.Buf[at.off:at.off+n]...)
				dst = append(dst, make([]byte, pad(n)-n)...)
				modifies = true
			}
			count++
			if cut {
				return dst, cursor{at.op, at.off + n}, count, modifies
			}
			at.off = 0
			continue
		case o.Kind == fabric.OpRead:
			word(uint64(codeLoad)<<codeShift | where)
			answer += 8
		case o.Kind == fabric.OpWrite:
			word(uint64(codeStore)<<codeShift | where)
			word(o.Arg)
			modifies = true
		default:
			dst = appendAtomic(dst, o, where)
			answer += o.Size()
			modifies = true
		}
		count++
	}
	return dst, at, count, modifies
}

// atomicCodes are the codes of atomics.
var atomicCodes = [...]opCode{fabric.OpCAS: codeCAS, fabric.OpFAA: codeFAA, fabric.OpMaskedCAS: codeMaskedCAS, fabric.OpMaskedFAA: codeMaskedFAA,
	fabric.OpMaskedCAS16: codeMaskedCAS16, fabric.OpMaskedFAA16: codeMaskedFAA16}

func appendAtomic(dst []byte, o *fabric.Op, where uint64) []byte {
	word := func(v uint64) { dst = binary.LittleEndian.AppendUint64(dst, v) }
	word(uint64(atomicCodes[o.Kind])<<codeShift | where)
	switch o.Kind {
	case fabric.OpCAS:
		word(o.Cmp)
		word(o.Arg)
	case fabric.OpFAA:
		word(o.Arg)
	default:
		for _, f := range maskedOperands(o.Kind, o.Wide) {
			for i := range o.Size() / 8 {
				word(f[i])
			}
		}
	}
	return dst
}

// maskedOperands returns the operands of a masked operation, in their order on the wire.
func maskedOperands(k fabric.OpKind, w *fabric.Wide) []*[2]uint64 {
	if k == fabric.OpMaskedCAS || k == fabric.OpMaskedCAS16 {
		return []*[2]uint64{&w.Cmp, &w.CmpMask, &w.Swap, &w.SwapMask}
	}
	return []*[2]uint64{&w.Swap, &w.Boundary}
}

// takeResults takes the results of the first count operations of a frame from its answer. It is the way
// back of appendChain, and checks that the answer has what it should.
func takeResults(body []byte, ops []fabric.Op, at, to cursor, count int) error {
	for range count {
		if at.op >= len(ops) || at == to {
			return fmt.Errorf("%w: an answer for %d operations of %d", ErrProtocol, count, len(ops))
		}
		o := &ops[at.op]
		n := 0
		switch {
		case o.Kind == fabric.OpWrite:
		case o.Kind == fabric.OpRead && o.Buf != nil:
			end := len(o.Buf)
			if at.op == to.op {
				end = to.off
			}
			n = end - at.off
			if pad(n) > len(body) {
				return shortAnswer(o, len(body))
			}
			copy(o.Buf[at.off:end], body)
		default:
			n = 8
			if o.Kind.IsAtomic() {
				n = o.Size()
			}
			if n > len(body) {
				return shortAnswer(o, len(body))
			}
			o.Old = binary.LittleEndian.Uint64(body)
			if o.Wide != nil && o.Kind.IsAtomic() {
				o.Wide.Old[0] = o.Old
				if n == 16 {
					o.Wide.Old[1] = binary.LittleEndian.Uint64(body[8:])
				}
			}
		}
		body = body[pad(n):]
		if at.op == to.op {
			at = to
		} else {
			at = cursor{at.op + 1, 0}
		}
	}
	if len(body) != 0 {
		return fmt.Errorf("%w: %d bytes too many in an answer", ErrProtocol, len(body))
	}
	return nil
}

func shortAnswer(o *fabric.Op, n int) error {
	return fmt.Errorf("%w: %d bytes left of an answer for %v", ErrProtocol, n, *o)
}
