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

// CheckLocal returns the error of a chain for DoLocal to a memory node that is not Near, else nil.
func CheckLocal(l Local, ops []Op) error {
	if len(ops) == 0 || l.Near(ops[0].Addr.MN()) {
		return nil
	}
	return &ChainError{Op: ops[0], Unposted: true, Err: fmt.Errorf("%w: %v is not on this machine", ErrUnsupported, ops[0].Addr.MN())}
}
