package fabric

import "fmt"

// OpKind is the kind of a one-sided operation.
type OpKind uint8

// The operations of a NIC. MaskedCAS, MaskedFAA and the 16-byte kinds are
// there only where [Caps] says so.
const (
	OpNone OpKind = iota
	OpRead
	OpWrite
	OpCAS
	OpFAA
	OpMaskedCAS
	OpMaskedFAA
	OpMaskedCAS16
	OpMaskedFAA16
	numOpKinds
)

var opKindNames = [numOpKinds]string{"NONE", "READ", "WRITE", "CAS", "FAA",
	"MASKED_CAS", "MASKED_FAA", "MASKED_CAS16", "MASKED_FAA16"}

func (k OpKind) String() string {
	if k < numOpKinds {
		return opKindNames[k]
	}
	return fmt.Sprintf("OpKind(%d)", uint8(k))
}

// IsAtomic reports whether the kind is a read-modify-write.
func (k OpKind) IsAtomic() bool { return k >= OpCAS && k < numOpKinds }

// An Op is one one-sided operation on the memory of a memory node. Make it
// with [Read], [Load], [Write], [Store], [CAS] or [FAA].
//
// While a chain is under way its Ops and their Bufs belong to the Port.
type Op struct {
	Kind OpKind
	Addr Addr
	// Buf is the local buffer of a READ or WRITE. It must lie in memory that
	// the Port handed out (Port.Alloc), or was lent (Port.Lend). A READ or WRITE without Buf moves the 8
	// bytes at an aligned Addr to Old or from Arg: see Load and Store.
	Buf []byte
	// Arg is the addend of an FAA, the new value of a CAS, the value of a Store.
	Arg uint64
	// Cmp is the expected value of a CAS.
	Cmp uint64
	// Old is set by completion: the value before an atomic, the value of a Load.
	Old uint64
	// Wide holds the operands of masked and 16-byte atomics; nil otherwise.
	Wide *Wide
}

// Wide holds the operands of masked and 16-byte atomics, low word first (the
// 8-byte kinds use the low word).
//
// A masked CAS compares (old & CmpMask) with (Cmp & CmpMask) and, if equal,
// replaces the bits of SwapMask by those of Swap. A masked FAA adds Swap, and
// no carry leaves a bit that is set in Boundary (mlx5 extended atomics:
// field boundary mask).
type Wide struct {
	Cmp, CmpMask   [2]uint64
	Swap, SwapMask [2]uint64
	Boundary       [2]uint64
	Old            [2]uint64
}

// Read reads len(buf) bytes at a into buf.
func Read(a Addr, buf []byte) Op { return Op{Kind: OpRead, Addr: a, Buf: buf} }

// Load reads the aligned 8 bytes at a into Old, as a little-endian word.
func Load(a Addr) Op { return Op{Kind: OpRead, Addr: a} }

// SetRead makes o what Read returns, field by field: a copy of an Op that has just been made waits until its fields are in the cache.
func (o *Op) SetRead(a Addr, buf []byte) {
	o.Kind, o.Addr, o.Buf = OpRead, a, buf
	o.Arg, o.Cmp, o.Old, o.Wide = 0, 0, 0, nil
}

// SetLoad makes o what Load returns, as SetRead.
func (o *Op) SetLoad(a Addr) { o.SetRead(a, nil) }

// Write writes buf to a.
func Write(a Addr, buf []byte) Op { return Op{Kind: OpWrite, Addr: a, Buf: buf} }

// Store writes v, as a little-endian word, to the aligned 8 bytes at a.
func Store(a Addr, v uint64) Op { return Op{Kind: OpWrite, Addr: a, Arg: v} }

// CAS replaces the aligned word at a by swap if it equals expect. It took
// place if Old == expect afterwards.
func CAS(a Addr, expect, swap uint64) Op {
	return Op{Kind: OpCAS, Addr: a, Cmp: expect, Arg: swap}
}

// FAA adds delta (modulo 2^64) to the aligned word at a.
func FAA(a Addr, delta uint64) Op { return Op{Kind: OpFAA, Addr: a, Arg: delta} }

// Swapped reports whether a completed CAS took place.
func (o *Op) Swapped() bool { return o.Old == o.Cmp }

// Size returns how many bytes of the memory node the operation touches.
func (o *Op) Size() int {
	switch o.Kind {
	case OpRead, OpWrite:
		if o.Buf != nil {
			return len(o.Buf)
		}
		return 8
	case OpMaskedCAS16, OpMaskedFAA16:
		return 16
	}
	return 8
}

// Align returns the alignment in bytes that the operation demands of Addr.
func (o *Op) Align() uint64 {
	if o.Buf != nil && !o.Kind.IsAtomic() {
		return 1
	}
	return uint64(o.Size())
}

func (o Op) String() string {
	switch o.Kind {
	case OpFAA:
		return fmt.Sprintf("FAA %v %+#x", o.Addr, o.Arg)
	case OpCAS:
		return fmt.Sprintf("CAS %v %#x->%#x", o.Addr, o.Cmp, o.Arg)
	case OpWrite:
		if o.Buf == nil {
			return fmt.Sprintf("WRITE %v =%#x", o.Addr, o.Arg)
		}
	}
	return fmt.Sprintf("%v %v [%d]", o.Kind, o.Addr, o.Size())
}

// MaxChain is the largest number of operations in a chain.
const MaxChain = 16

// CheckChain validates a chain against the contract, without knowledge of the
// target: its length, that all operations are for one node, kinds and
// alignment. Backends call it (or do the same) before they post.
func CheckChain(ops []Op, caps Caps) error {
	if len(ops) > MaxChain {
		return fmt.Errorf("%w: %d operations, at most %d", ErrBadChain, len(ops), MaxChain)
	}
	for i := range ops {
		o := &ops[i]
		if o.Addr.MN() == ops[0].Addr.MN() && o.isCommon() {
			continue
		}
		if o.Addr.MN() != ops[0].Addr.MN() {
			return &ChainError{Index: i, Op: *o, Unposted: true, Err: fmt.Errorf("%w: operations for %v and %v", ErrBadChain, ops[0].Addr.MN(), o.Addr.MN())}
		}
		if err := checkOp(o, caps); err != nil {
			return &ChainError{Index: i, Op: *o, Unposted: true, Err: err}
		}
	}
	return nil
}

// isCommon reports whether every fabric can execute the operation, as nearly all can be. For others, it may not say so.
func (o *Op) isCommon() bool {
	return uint64(o.Addr)%8 == 0 && o.Kind-OpRead <= OpFAA-OpRead
}

func checkOp(o *Op, caps Caps) error {
	switch o.Kind {
	case OpRead, OpWrite, OpCAS, OpFAA:
	case OpMaskedCAS, OpMaskedFAA:
		if !caps.Masked {
			return fmt.Errorf("%w: %v", ErrUnsupported, o.Kind)
		}
	case OpMaskedCAS16, OpMaskedFAA16:
		if !caps.Atomic16 {
			return fmt.Errorf("%w: %v", ErrUnsupported, o.Kind)
		}
	default:
		return fmt.Errorf("%w: %v", ErrBadChain, o.Kind)
	}
	if o.Kind >= OpMaskedCAS && o.Wide == nil {
		return fmt.Errorf("%w: %v without operands", ErrBadChain, o.Kind)
	}
	if uint64(o.Addr)%o.Align() != 0 {
		return fmt.Errorf("%w: %v at %v needs %d-byte alignment", ErrMisaligned, o.Kind, o.Addr, o.Align())
	}
	return nil
}
