package ram

import (
	"sync/atomic"
	"unsafe"

	"github.com/declock/declock/fabric"
)

// LongChain is the length from which on a chain's memory is touched first.
const LongChain = 6

// Touch loads a word of each operation's memory: the processor fetches them from its memory side by side, which it would do one after the other for
// operations. What is beyond the size of the memory is left alone.
func Touch(ops []fabric.Op, base unsafe.Pointer, size uint64) {
	for i := range ops {
		at := ops[i].Addr.Offset() &^ (wordSize - 1)
		for end := min(at+max(uint64(len(ops[i].Buf)), wordSize), size); at+wordSize <= end; at += lineSize {
			atomic.LoadUint64((*uint64)(unsafe.Add(base, at)))
		}
	}
}

// Gather executes READs, which CheckReads has passed, on memory of a size. It returns how many: fewer if one is beyond the memory, before any is executed.
func Gather(ops []fabric.Op, base unsafe.Pointer, size uint64) int {
	for i := range ops {
		if !Fits(&ops[i], size) {
			return i
		}
	}
	RaceRelease()
	Touch(ops, base, size)
	for i := range ops {
		o := &ops[i]
		at := unsafe.Add(base, o.Addr.Offset())
		if o.Buf == nil {
			o.Old = atomic.LoadUint64((*uint64)(at))
		} else {
			CopyOut(unsafe.Pointer(unsafe.SliceData(o.Buf)), at, len(o.Buf))
		}
	}
	RaceAcquire()
	return len(ops)
}

// Fits reports whether an operation is within memory of a size.
func Fits(o *fabric.Op, size uint64) bool {
	offset, n := o.Addr.Offset(), uint64(wordSize)
	if o.Buf != nil || o.Wide != nil {
		n = uint64(o.Size())
	}
	return offset <= size && n <= size-offset
}

// Holds reports whether n bytes at an address are within memory of a size.
func Holds(a fabric.Addr, n int, size uint64) bool {
	return n >= 0 && a.Offset() <= size && uint64(n) <= size-a.Offset()
}

// Fill has f write to n bytes of memory, and returns how many it has written.
func Fill(at unsafe.Pointer, n int, f func(dst []byte) int) int {
	RaceRelease()
	n = f(unsafe.Slice((*byte)(at), n))
	RaceAcquire()
	return n
}

// Perform executes an operation, which Check has passed, on the memory at a. It is the CPU that makes it atomic.
func Perform(o *fabric.Op, a unsafe.Pointer) {
	RaceRelease()
	word := (*uint64)(a)
	switch o.Kind {
	case fabric.OpFAA:
		o.Old = atomic.AddUint64(word, o.Arg) - o.Arg
	case fabric.OpCAS:
		o.Old = CompareAndSwap(word, o.Cmp, o.Arg)
	case fabric.OpRead:
		if o.Buf == nil {
			o.Old = atomic.LoadUint64(word)
		} else {
			CopyOut(unsafe.Pointer(unsafe.SliceData(o.Buf)), a, len(o.Buf))
		}
	case fabric.OpWrite:
		if o.Buf == nil {
			atomic.StoreUint64(word, o.Arg)
		} else {
			CopyIn(a, unsafe.Pointer(unsafe.SliceData(o.Buf)), len(o.Buf))
		}
	default:
		o.Wide.Old = Wide(o.Kind, a, o.Wide)
		o.Old = o.Wide.Old[0]
	}
	RaceAcquire()
}
