package sweep

import (
	"fmt"

	"github.com/declock/declock/fabric"
)

// A Stack is a free list on a memory node that others push to and pop from while it is walked. Its head has the offset of the top in
// its low bits, and a tag above them that grows with every push and pop. A member of the list has the offset of the next in the low
// bits of a word, and above them the tag that the head got when it was pushed: its stamp.
//
// The list is a stack: as long as a member is in it, what is below stays as it is. That is why it can be walked while it changes. A member is
// known to be in the list if the head is the same before and after it was read. When the head has changed, the walk begins anew at the top; but the first
// member there that was pushed before the walk, which its stamp tells, has either been visited, and then the walk goes on where it was,
// or it is below that. So only what was pushed meanwhile is walked twice.
type Stack struct {
	Head       fabric.Addr
	OffsetBits uint
	// Most is how many members there can be.
	Most uint64
	// Load reads the member at an offset, in units of 64 bytes, and returns the word that leads to the next.
	Load func(off64 uint64) (uint64, error)
	// Visit is called for each member that has been read and was in the list then, some more than once.
	Visit func(off64 uint64)
}

// Stamped returns the word of a member, given the head before it was pushed and the offset of the next.
func Stamped(head uint64, offsetBits uint, next uint64) uint64 {
	return (head>>offsetBits+1)<<offsetBits | next
}

// maxRestarts bounds how often a walk begins at the top again.
const maxRestarts = 10_000

// Walk visits every member that is in the list all the time. ErrBusy: it changes too fast.
func (s *Stack) Walk(do func([]fabric.Op) error) error {
	head, err := s.load(do)
	if err != nil {
		return err
	}
	mask := uint64(1)<<s.OffsetBits - 1
	half := uint64(1) << (64 - s.OffsetBits - 1) // of the tags
	begin := head >> s.OffsetBits
	older := map[uint64]struct{}{} // members from before the walk that have been visited
	below := uint64(0)             // the one below them
	at := head & mask
	restarts, steps := 0, uint64(0)
	for ; at != 0; steps++ {
		if steps > s.Most {
			return fmt.Errorf("%w: free list at %v does not end", ErrCorrupt, s.Head)
		}
		w, err := s.Load(at)
		if err != nil {
			return err
		}
		// In a chain of its own: READs of one chain have no order everywhere.
		now, err := s.load(do)
		if err != nil {
			return err
		}
		if now != head {
			if restarts++; restarts > maxRestarts {
				return fmt.Errorf("%w: free list at %v", ErrBusy, s.Head)
			}
			head, at, steps = now, now&mask, 0
			continue
		}
		if (begin-w>>s.OffsetBits)&(2*half-1) >= half { // pushed since
			s.Visit(at)
			at = w & mask
			continue
		}
		if _, ok := older[at]; ok {
			at = below
			continue
		}
		s.Visit(at)
		older[at] = struct{}{}
		at = w & mask
		below = at
	}
	return nil
}

func (s *Stack) load(do func([]fabric.Op) error) (uint64, error) {
	ops := [1]fabric.Op{fabric.Load(s.Head)}
	if err := do(ops[:]); err != nil {
		return 0, fmt.Errorf("sweep: free list at %v: %w", s.Head, err)
	}
	return ops[0].Old, nil
}
