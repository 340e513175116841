package region

import (
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
)

// ErrNoSpace: the region's heap has no room for the request.
var ErrNoSpace = errors.New("region: no space left on memory node")

// Alloc takes size bytes, aligned to align (a power of two; 0 is 64), from the
// region's heap. They are zero if the memory was zero when it was formatted.
// Nothing is ever taken back: who allocates reuses. If it fails with
// fabric.ErrUnknownOutcome, the bytes may be lost.
//
// brk moves by CAS and never passes the end of the region, so a request that
// does not fit takes nothing from smaller ones that do.
func (r *Region) Alloc(port fabric.Port, size, align uint64) (fabric.Addr, error) {
	if align == 0 {
		align = 64
	}
	if size == 0 || align&(align-1) != 0 || align > r.params.Size {
		return 0, fmt.Errorf("region: bad allocation: %d bytes aligned to %d", size, align)
	}
	brk := fabric.At(r.mn, BrkOffset)
	ops := [1]fabric.Op{fabric.Load(brk)}
	if err := port.Do(ops[:]); err != nil {
		return 0, fmt.Errorf("region: alloc on %v: %w", r.mn, err)
	}
	for {
		old := ops[0].Old
		if old < HeapOffset || old > r.params.Size {
			return 0, fmt.Errorf("%w: brk at %v is %#x", ErrCorrupt, brk, old)
		}
		begin := (old + align - 1) &^ (align - 1)
		if size > r.params.Size || begin > r.params.Size-size {
			return 0, fmt.Errorf("%w: %v: want %d bytes, %d are left", ErrNoSpace, r.mn, size, r.params.Size-old)
		}
		// Someone else's CAS succeeded whenever this one fails.
		ops[0] = fabric.CAS(brk, old, begin+size)
		if err := port.Do(ops[:]); err != nil {
			return 0, fmt.Errorf("region: alloc on %v: %w", r.mn, err)
		}
		if ops[0].Swapped() {
			return fabric.At(r.mn, begin), nil
		}
	}
}

// Used returns how many bytes of the region are taken, with everything.
func (r *Region) Used(port fabric.Port) (uint64, error) {
	ops := [1]fabric.Op{fabric.Load(fabric.At(r.mn, BrkOffset))}
	if err := port.Do(ops[:]); err != nil {
		return 0, fmt.Errorf("region: %v: %w", r.mn, err)
	}
	return ops[0].Old, nil
}
