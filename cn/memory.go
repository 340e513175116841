package cn

import (
	"errors"
	"fmt"
	"slices"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
)

// Region returns the region of a memory node, or nil if the node has not reached it yet.
func (n *Node) Region(mn fabric.MemID) *memory.Region {
	for _, r := range n.Regions() {
		if r.Memory() == mn {
			return r
		}
	}
	return nil
}

// plain reports whether programs that know of no trains may use a lock.
func (n *Node) plain(l fabric.Addr) bool {
	r := n.Region(l.MN())
	return r == nil || r.Plain()
}

// Memory returns the memory nodes that belong to the cluster, by number: those that are up, and those that are down and expected back. Fabrics
// between machines list the latter apart.
func (n *Node) Memory() []fabric.Memory { return MemoryOf(n.fab) }

// Unserved reports whether a replicated memory-node number has no memory node: none of its copies is there.
func (n *Node) Unserved() bool {
	f, ok := n.fab.(interface{ Down() []fabric.Memory })
	return ok && slices.ContainsFunc(f.Down(), func(m fabric.Memory) bool { return m.Term != 0 })
}

// MemoryOf is Node.Memory for a member that no Node has been made of.
func MemoryOf(f fabric.Node) []fabric.Memory {
	list := f.Memory()
	follower, ok := f.(interface{ Down() []fabric.Memory })
	if !ok {
		return list
	}
	for _, m := range follower.Down() {
		if !slices.ContainsFunc(list, func(x fabric.Memory) bool { return x.ID == m.ID }) {
			list = append(list, m)
		}
	}
	slices.SortFunc(list, func(a, b fabric.Memory) int { return int(a.ID) - int(b.ID) })
	return list
}

// Refresh takes in memory nodes that have joined the cluster since. One that is down is left for later, if another is up. p is any Port of the node.
func (n *Node) Refresh(p fabric.Port) error {
	var down error
	for _, m := range n.fab.Memory() {
		if n.Region(m.ID) != nil {
			continue
		}
		r, err := memory.Open(p, m.ID)
		if errors.Is(err, fabric.ErrNodeDown) {
			down = errors.Join(down, fmt.Errorf("cn: memory node %v: %w", m.ID, err))
			continue
		}
		if err != nil {
			return fmt.Errorf("cn: memory node %v: %w", m.ID, err)
		}
		n.table.Knows(m, r.Generation(), p.Now()) // the list is older than what has been read of the region
		if err := n.add(r); err != nil {
			return err
		}
	}
	if len(n.Regions()) == 0 {
		return down
	}
	return nil
}

// add adds a region. If the node knows the memory node, another goroutine was faster; what that has read may be lost since.
func (n *Node) add(r *memory.Region) error {
	old := n.Region(r.Memory())
	if old != nil && r.Generation() <= old.Generation() {
		return nil
	}
	lost, err := n.replace(r)
	if now := n.Region(r.Memory()); err != nil && now != old && now != nil && r.Generation() <= now.Generation() {
		return nil // so it was meanwhile
	}
	n.reportLost(lost, r.Memory())
	return err
}

// insert adds the region of a memory node that the node does not know. n.mu is held.
func (n *Node) insert(r *memory.Region) error {
	for _, old := range n.regions {
		if r.CapacityLog2() != old.CapacityLog2() || r.VersionBits() != old.VersionBits() {
			return fmt.Errorf("cn: memory nodes %v and %v are formatted with different lock layouts", old.Memory(), r.Memory())
		}
	}
	n.regions = append(n.regions, r)
	slices.SortFunc(n.regions, func(a, b *memory.Region) int { return int(a.Memory()) - int(b.Memory()) })
	return nil
}

// Attach takes in memory nodes that have joined the cluster since, and attaches the session to all that are up, as they are now:
// for callers that use its Port without a lock, and have no state that a loss would change.
func (s *Session) Attach() error {
	if err := s.node.Refresh(s.port); err != nil {
		return err
	}
	for _, r := range s.node.Regions() {
		if err := lock.Renew(s.locker, r.Memory()); err != nil && !errors.Is(err, fabric.ErrNodeDown) {
			return err
		}
	}
	return nil
}

// verify returns the generation of the memory of a memory node that has restarted. If it is not the memory of
// before, the node uses the new one from then on, and has notified all of the loss. It
// looks with a Port of its own: that of the client must not reach other memory.
func (n *Node) verify(mn fabric.MemID) (generation uint32, err error) {
	for {
		known := n.Region(mn)
		r, err := n.look(mn)
		if err != nil {
			return 0, err
		}
		lost, err := n.replace(r)
		if err != nil && n.Region(mn) != known {
			continue // another goroutine was faster, and r may be older than what that has found
		}
		n.reportLost(lost, mn)
		return r.Generation(), err
	}
}

// look opens the region of a memory node with a Port of its own.
func (n *Node) look(mn fabric.MemID) (*memory.Region, error) {
	p, err := n.fab.Open()
	if err != nil {
		return nil, err
	}
	defer p.Close()
	r, err := memory.Open(p, mn)
	switch {
	case errors.Is(err, memory.ErrNotFormatted), errors.Is(err, memory.ErrHalfFormatted):
		return nil, fmt.Errorf("%w: memory node %v is just starting: %w", fabric.ErrNodeDown, mn, err)
	case err != nil:
		return nil, fmt.Errorf("cn: memory node %v: %w", mn, err)
	}
	return r, nil
}

func (n *Node) reportLost(lost bool, mn fabric.MemID) {
	if lost && n.cfg.Report != nil {
		n.cfg.Report(fmt.Errorf("%w: %v: what was there is gone; locks, stores and trees are made again", ErrMemoryLost, mn))
	}
}

// replace puts a region in the place of the one that the node knows of the memory node, if it does, and reports whether that was another.
func (n *Node) replace(r *memory.Region) (lost bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	i := slices.IndexFunc(n.regions, func(x *memory.Region) bool { return x.Memory() == r.Memory() })
	switch {
	case i < 0:
		return false, n.insert(r)
	case n.regions[i].UUID() == r.UUID():
		return false, nil
	case r.Generation() <= n.regions[i].Generation():
		return false, fmt.Errorf("%w: %v: the cluster does not count its generations any more (memory %d, and %d before): leave the cluster, and join again",
			ErrMemoryLost, r.Memory(), r.Generation(), n.regions[i].Generation())
	case r.CapacityLog2() != n.hcfg.Layout.CapacityBits || r.VersionBits() != n.hcfg.Layout.VersionBits:
		return false, fmt.Errorf("%w: %v: it has been formatted with another lock layout: leave the cluster, and join again", ErrMemoryLost, r.Memory())
	}
	n.regions[i] = r
	for _, f := range n.onLost {
		n.call("OnMemoryLost", func() { f(r.Memory()) })
	}
	return true, nil
}

// OnMemoryLost adds a function that is called for each memory node that has lost its memory, before anything of this compute node reaches
// the new memory. f is called by any goroutine, and must neither wait nor use the node.
func (n *Node) OnMemoryLost(f func(fabric.MemID)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.onLost = append(n.onLost, f)
}
