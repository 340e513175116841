package cn

import (
	"errors"
	"fmt"
	"slices"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/region"
)

// region returns the region of a memory node, or nil.
func (n *Node) region(mn fabric.MemID) *region.Region {
	for _, r := range n.Regions() {
		if r.Memory() == mn {
			return r
		}
	}
	return nil
}

// Refresh takes memory nodes in that have joined the cluster since. p is any Port of the node.
func (n *Node) Refresh(p fabric.Port) error {
	for _, m := range n.fab.Memory() {
		if n.region(m.ID) != nil {
			continue
		}
		r, err := region.Open(p, m.ID)
		if err != nil {
			return fmt.Errorf("cn: memory node %v: %w", m.ID, err)
		}
		added, err := n.add(r)
		if err != nil {
			return err
		}
		if added {
			n.table.Knows(m.ID, m.Epoch, p.Now()) // the list is older than what has been read of the region
		}
	}
	return nil
}

func (n *Node) add(r *region.Region) (bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, old := range n.regions {
		if r.Memory() == old.Memory() {
			return false, nil // another goroutine was faster
		}
		if r.CapacityLog2() != old.CapacityLog2() || r.VersionBits() != old.VersionBits() {
			return false, fmt.Errorf("cn: memory nodes %v and %v are formatted with different lock layouts", old.Memory(), r.Memory())
		}
	}
	n.regions = append(n.regions, r)
	slices.SortFunc(n.regions, func(a, b *region.Region) int { return int(a.Memory()) - int(b.Memory()) })
	return true, nil
}

// Attach takes memory nodes in that have joined the cluster since, and attaches the session to all that are up: for
// who uses its Port without a lock. ErrMemoryLost: one has restarted without its memory.
func (s *Session) Attach() error {
	if err := s.node.Refresh(s.port); err != nil {
		return err
	}
	for _, r := range s.node.Regions() {
		if err := s.locker.Ready(r.Memory()); err != nil && !errors.Is(err, fabric.ErrNodeDown) {
			return err
		}
	}
	return nil
}

// verify checks that a memory node that has restarted has the memory that it had. It
// looks with a Port of its own: that of the client must not reach other memory.
func (n *Node) verify(mn fabric.MemID) error {
	known := n.region(mn)
	if known == nil {
		return nil // it is not used yet
	}
	p, err := n.fab.Open()
	if err != nil {
		return err
	}
	defer p.Close()
	r, err := region.Open(p, mn)
	switch {
	case errors.Is(err, region.ErrNotFormatted), errors.Is(err, region.ErrHalfFormatted):
		return fmt.Errorf("%w: memory node %v is just starting: %w", fabric.ErrNodeDown, mn, err)
	case err != nil:
		return fmt.Errorf("cn: memory node %v: %w", mn, err)
	case r.UUID() != known.UUID():
		return fmt.Errorf("%w: %v", ErrMemoryLost, mn)
	}
	return nil
}
