package tcp

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/ram"
)

// A nic executes operations on memory: the CPU makes them atomic. Many goroutines may execute at a time.
type nic struct {
	mem *memory
	key atomic.Uint32
	// serial is held where the CPU has no 16-byte atomics: then one executes at a time.
	serial *sync.Mutex
}

func newNIC(m *memory) *nic {
	x := &nic{mem: m}
	if !ram.HasAtomic16 {
		x.serial = new(sync.Mutex)
	}
	return x
}

// counts are operations by kind, and bytes.
type counts struct {
	ops                     [fabric.OpMaskedFAA16 + 1]uint64
	bytesRead, bytesWritten uint64
}

// execute executes the operations of a chain's frame in order and appends the answer to out. An operation that
// is refused ends it. What no compute node would send is ErrProtocol: then the frame was executed up to there.
func (x *nic) execute(h *header, body, out []byte, n *counts) ([]byte, error) {
	start := len(out)
	out = append(out, make([]byte, headerSize)...)
	answer := header{kind: frameAnswer, number: uint64(uint32(h.number))}
	if uint32(h.number>>32) != x.key.Load() {
		answer.status = statusBadKey
	}
	if x.serial != nil {
		x.serial.Lock()
		defer x.serial.Unlock()
	}
	for answer.count < h.count && answer.status == statusOK {
		if len(body) < 8 {
			return out, fmt.Errorf("%w: %d operations in a frame that says %d", ErrProtocol, answer.count, h.count)
		}
		word := binary.LittleEndian.Uint64(body)
		o := operation{code: opCode(word >> codeShift), offset: word & offsetMask, args: body[8:]}
		if err := o.measure(); err != nil || byte(word>>48) != 0 {
			if err == nil {
				err = fmt.Errorf("%w: the word of an operation is %#x", ErrProtocol, word)
			}
			return out, err
		}
		if answer.status = x.admits(&o); answer.status != statusOK {
			break
		}
		if len(out)-start+pad(o.result()) > maxFrame {
			return out, fmt.Errorf("%w: an answer of more than %d bytes", ErrProtocol, maxFrame)
		}
		out = x.perform(&o, out, n)
		body = o.args[o.operands:]
		answer.count++
	}
	if answer.status == statusOK && len(body) != 0 {
		return out, fmt.Errorf("%w: %d bytes behind the operations of a frame", ErrProtocol, len(body))
	}
	answer.length = len(out) - start
	answer.put(out[start:])
	return out, nil
}

// A shape is what operations of a code have in common.
type shape struct {
	kind     fabric.OpKind
	operands int // bytes behind the first word
	size     int // bytes of memory that it touches, which are aligned to as much
}

var shapes = [...]shape{
	codeRead:        {fabric.OpRead, 8, 0}, // its operand is the size
	codeWrite:       {fabric.OpWrite, 8, 0},
	codeLoad:        {fabric.OpRead, 0, 8},
	codeStore:       {fabric.OpWrite, 8, 8},
	codeCAS:         {fabric.OpCAS, 16, 8},
	codeFAA:         {fabric.OpFAA, 8, 8},
	codeMaskedCAS:   {fabric.OpMaskedCAS, 32, 8},
	codeMaskedFAA:   {fabric.OpMaskedFAA, 16, 8},
	codeMaskedCAS16: {fabric.OpMaskedCAS16, 64, 16},
	codeMaskedFAA16: {fabric.OpMaskedFAA16, 32, 16},
}

// An operation is one of a frame.
type operation struct {
	shape
	code   opCode
	offset uint64
	align  uint64
	args   []byte // what follows the first word
}

// measure finds out what a decoded operation needs, and whether it is all there.
func (o *operation) measure() error {
	if o.code == 0 || int(o.code) >= len(shapes) {
		return fmt.Errorf("%w: an operation with code %d", ErrProtocol, o.code)
	}
	o.shape = shapes[o.code]
	o.align = uint64(o.size)
	if o.code == codeRead || o.code == codeWrite {
		if len(o.args) < 8 {
			return o.cut()
		}
		n := binary.LittleEndian.Uint64(o.args)
		if n > maxFrame {
			return fmt.Errorf("%w: %d bytes in one operation", ErrProtocol, n)
		}
		o.size, o.align = int(n), 1
		if o.code == codeWrite {
			o.operands += pad(o.size)
		}
	}
	if len(o.args) < o.operands {
		return o.cut()
	}
	return nil
}

func (o *operation) cut() error {
	return fmt.Errorf("%w: %d bytes for an operation with code %d", ErrProtocol, len(o.args), o.code)
}

// result returns the length of the result in bytes.
func (o *operation) result() int {
	if o.kind == fabric.OpWrite {
		return 0
	}
	return o.size
}

// admits checks bounds and alignment.
func (x *nic) admits(o *operation) status {
	switch {
	case o.offset > x.mem.size || uint64(o.size) > x.mem.size-o.offset:
		return statusOutOfBounds
	case o.offset%o.align != 0:
		return statusMisaligned
	}
	return statusOK
}

// perform executes an operation that was admitted and appends its result.
func (x *nic) perform(o *operation, out []byte, n *counts) []byte {
	a := unsafe.Add(x.mem.base, o.offset)
	word := (*uint64)(a)
	arg := func(i int) uint64 { return binary.LittleEndian.Uint64(o.args[8*i:]) }
	result := func(v uint64) []byte { return binary.LittleEndian.AppendUint64(out, v) }
	n.ops[o.kind]++
	switch o.kind {
	case fabric.OpRead:
		n.bytesRead += uint64(o.size)
	case fabric.OpWrite:
		n.bytesWritten += uint64(o.size)
	}
	switch o.code {
	case codeRead:
		end := len(out)
		out = slices.Grow(out, pad(o.size))[:end+pad(o.size)]
		clear(out[end+o.size:])
		if o.size > 0 {
			ram.CopyOut(unsafe.Pointer(&out[end]), a, o.size)
		}
		return out
	case codeWrite:
		if o.size > 0 {
			ram.CopyIn(a, unsafe.Pointer(&o.args[8]), o.size)
		}
		return out
	case codeLoad:
		return result(atomic.LoadUint64(word))
	case codeStore:
		atomic.StoreUint64(word, arg(0))
		return out
	case codeCAS:
		return result(ram.CompareAndSwap(word, arg(0), arg(1)))
	case codeFAA:
		return result(atomic.AddUint64(word, arg(0)) - arg(0))
	}
	return performWide(o, a, out)
}

func performWide(o *operation, a unsafe.Pointer, out []byte) []byte {
	var w fabric.Wide
	words, args := o.size/8, o.args
	for _, f := range maskedOperands(o.kind, &w) {
		for k := range words {
			f[k] = binary.LittleEndian.Uint64(args)
			args = args[8:]
		}
	}
	old := ram.Wide(o.kind, a, &w)
	for k := range words {
		out = binary.LittleEndian.AppendUint64(out, old[k])
	}
	return out
}
