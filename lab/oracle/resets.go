package oracle

import (
	"fmt"

	"github.com/declock/declock/fabric"
)

// Resets: no reset of a lock takes longer than a bound, from the first change of its header to the free lock: each compute
// node lets go when the holders that it has release, and hands the lock over to no more clients of its own.
type Resets struct {
	neutral
	capacityBits uint8
	bound        fabric.Time
	began        map[fabric.Addr]fabric.Time
}

// NewResets returns the judge of locks whose queues have 2^capacityBits entries.
func NewResets(capacityBits uint8, bound fabric.Time) *Resets {
	return &Resets{neutral: neutral{"resets"}, capacityBits: capacityBits, bound: bound, began: map[fabric.Addr]fabric.Time{}}
}

// Effect implements Judge.
func (j *Resets) Effect(x *Effect) string {
	before, after := DecodeHeader(j.capacityBits, x.Old).Reset, DecodeHeader(j.capacityBits, x.New).Reset
	switch {
	case before == 0 && after != 0:
		j.began[x.Lock] = x.Time
	case before != 0 && after == 0:
		if took := x.Time - j.began[x.Lock]; took > j.bound {
			return fmt.Sprintf("the reset of %v took %d ns, at most %d are allowed", x.Lock, took, j.bound)
		}
	}
	return ""
}
