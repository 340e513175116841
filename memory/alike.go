package memory

import (
	"fmt"

	"github.com/declock/declock/fabric"
)

// CheckCopies returns ErrParams if a backup is formatted for other lock queues than the primary: each memory node formats its copies by its own settings, and locks are where
// those say. A backup that does not answer is dropped.
func (r *Region) CheckCopies(port fabric.Port) error {
	b, err := r.Backups(port)
	if err != nil || b.None() {
		return err
	}
	buf := port.Alloc(identityLen)
	defer port.Free(buf)
	for i := range b.group.N {
		if err := b.do(i, []fabric.Op{fabric.Read(r.At(0), buf)}); err != nil {
			return err
		}
		if b.group.Backups[i].Number == 0 {
			continue
		}
		p, _, err := decodeIdentity(buf)
		if err != nil {
			return fmt.Errorf("memory: backup %d of %v: %w", i+1, r.mn, err)
		}
		if p.CapacityLog2 != r.params.CapacityLog2 || p.VersionBits != r.params.VersionBits {
			return fmt.Errorf("%w: lock queues of %v have %d entries and %d version bits at the primary, %d and %d at backup %d: all memory nodes of a cluster have the same",
				ErrParams, r.mn, 1<<r.params.CapacityLog2, r.params.VersionBits, 1<<p.CapacityLog2, p.VersionBits, i+1)
		}
	}
	return nil
}
