package fabric

import "fmt"

// A Local is a Port whose client can reach memory of memory nodes by its CPU: with loads, stores and atomics of its own, and no NIC.
// A fabric whose Do takes that way by itself need not have it. Port.Do reaches such memory, too; over NICs that is called loopback.
type Local interface {
	// Near reports whether the memory of a memory node is on the machine of the client, so that DoLocal reaches it. It never changes.
	Near(mem MemID) bool

	// DoLocal is Port.Do by the CPU, for a memory node that is Near: ErrUnsupported otherwise. It executes at once, in no order with chains
	// that are posted and have not been waited for. How its atomics and those of Do go together is Caps.GlobalAtomics.
	DoLocal(ops []Op) error
}

// LocalOf returns the Local that a Port is, or is made of; nil: there is none.
func LocalOf(p Port) Local {
	for {
		if l, ok := p.(Local); ok {
			return l
		}
		u, ok := p.(Under)
		if !ok {
			return nil
		}
		p = u.Under()
	}
}

// A Gatherer is a Port whose operations are the CPU's, so that a long row of READs costs less than chains of them.
type Gatherer interface {
	// Gather executes READs on one memory node at once, in their order and however many they are, as Do executes a chain. If it fails, none of them has read
	// anything.
	Gather(ops []Op) error
}

// A Filler is a Port whose client has the memory of memory nodes in its own address space, so that what fills it needs no copy on the way.
type Filler interface {
	// Fills reports whether Fill is likely to reach the memory of a memory node now.
	Fills(mem MemID) bool

	// Fill is a WRITE of up to n bytes, which f puts to where they are to be and counts: all else of dst stays as it is. What may keep a WRITE from memory keeps f from it, and is
	// looked for after f, too; but words may be torn, so nobody else has to do with the memory. f must not wait, keep dst, or use the Port. ErrUnsupported: f was not called,
	// for the memory is out of reach; Port.Do may reach it. With another error, what f has counted may be there or not.
	Fill(a Addr, n int, f func(dst []byte) int) (int, error)
}

// CheckLocal returns the error of a chain for DoLocal to a memory node that is not Near, else nil.
func CheckLocal(l Local, ops []Op) error {
	if len(ops) == 0 || l.Near(ops[0].Addr.MN()) {
		return nil
	}
	return &ChainError{Op: ops[0], Unposted: true, Err: fmt.Errorf("%w: %v is not on this machine", ErrUnsupported, ops[0].Addr.MN())}
}
