package btree

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/memory/handle"
)

// A tree can be opened while memory nodes of it are down, if a part of it is found.
//
// If its first part is there, and all others of which the memory nodes are up, a part that is down is a missing one (package memory/handle). Operations work as long as they
// meet neither nodes of the tree nor large values on a missing part; one that does fails with ErrNodeDown, which names the memory node. What is new goes to memory nodes that
// are up. If the memory node of a missing part has lost its memory, the tree is gone, as it is for those that had it open (lost.go).
//
// The first part has the ptr of the root. Without it the tree is waiting: each operation tries to open it, and fails with ErrNodeDown until then.

// noPart is what an operation needs of a tree before it has met any node: see handle.Session.Ready.
func noPart(int) bool { return false }

// onMissing reports whether a slot is on a missing part. Others may take the part in at once: who then asks whether the slot is sane asks this first.
func (t *Tree) onMissing(p ptr) bool {
	return p.node() < len(t.h.Parts) && t.h.Parts[p.node()].Missing()
}

// openWithout opens what has been found of a tree while memory nodes are down. If that is too little, it returns why, and, if any part is there, the tree, which waits.
func (t *Tree) openWithout(port fabric.Port, given *Config, found []handle.Found, why error) (*Tree, error) {
	whole, first := true, -1 // all parts are found of which the memory nodes are up
	for i, f := range found {
		if f.Entry == nil {
			whole = whole && f.Region == nil
			continue
		}
		g, err := decodeGeometry(f.Entry, i)
		if err != nil {
			return nil, fmt.Errorf("btree: open %q on %v: %w", t.cfg.Name, t.cfg.Nodes[i], err)
		}
		if first < 0 {
			first, t.geo = i, g
		}
		whole = whole && g == t.geo
	}
	if first < 0 {
		return nil, why
	}
	t.stride = t.geo.stride()
	// What is not given is as in this tree, or its successor.
	t.cfg.MaxKey, t.cfg.NodeSize, t.cfg.MaxInline = t.geo.maxKey, t.geo.nodeSize, t.geo.maxInline
	if err := t.compare(given); err != nil {
		return nil, err
	}
	if first > 0 || !whole {
		t.h.Seen = handle.Unseen
		return t, why
	}
	for i, f := range found {
		if f.Region == nil {
			continue
		}
		if err := t.adopt(port, i, f.Region, *f.Entry); err != nil {
			return nil, fmt.Errorf("btree: open %q on %v: %w", t.cfg.Name, t.cfg.Nodes[i], err)
		}
	}
	return t, t.register(port)
}

// thereStill returns handle.ErrAnother if a tree that waits, of which parts with this geometry were found, has been dropped: what its first memory node has is not its first part, which is made before the
// others, and no memory has been lost. While a memory node is down that is not known: then it returns why that is down, if what is found is not the tree's.
func (g *geometry) thereStill(found []handle.Found) error {
	var down error
	generations, first, others := uint64(0), false, false
	for i, f := range found {
		if f.Down != nil {
			down = cmp.Or(down, f.Down)
			continue
		}
		generations += uint64(f.Region.Generation())
		if f.Entry == nil {
			continue
		}
		if has, err := decodeGeometry(f.Entry, i); err != nil || has.id != g.id {
			others = true
		} else if i == 0 {
			first = true
		}
	}
	switch {
	case first, generations > g.generations: // it is there, or was lost, and is made anew by whoever needs it
		return nil
	case down != nil && !others:
		return nil
	case down != nil:
		return down
	}
	return handle.ErrAnother
}

// reach returns nil if a slot of so many bytes can be where p says, and takes the part in that it is on, if that is missing and can be had.
func (c *Client) reach(p ptr, size uint64) error {
	if !c.t.onMissing(p) {
		if c.t.sane(p, size) {
			return nil
		}
		return fmt.Errorf("%w: ptr %v", ErrCorrupt, p)
	}
	if err := c.session.TakeIn(p.node()); err != nil {
		return err
	}
	return c.reach(p, size)
}

// openPart opens a missing part. If it is not on its memory node, the tree has been removed, or was never made there, or the memory of the memory node has been lost, and
// then the tree is gone. Which of the two it is can be known when all memory nodes are up, by their generations.
func (c *Client) openPart(i int, found []handle.Found) error {
	t, r, e, path := c.t, found[i].Region, found[i].Entry, lock.Path(c.l)
	var other error
	if e != nil {
		g, err := decodeGeometry(e, i)
		if err == nil && g == t.geo {
			return t.adopt(path, i, r, *e)
		}
		other = err
	}
	if err := t.h.Published(path); err != nil {
		return c.removed(err)
	}
	if other != nil {
		return other
	}
	var generations uint64
	for _, f := range found {
		if f.Region == nil {
			return fmt.Errorf("btree: tree %q is not on %v", t.cfg.Name, r.Memory())
		}
		generations += uint64(f.Region.Generation())
	}
	if generations == t.geo.generations {
		made, err := t.openNode(c.port, path, i, r)
		if err != nil {
			return err
		}
		if err := t.h.Published(path); err != nil {
			if errors.Is(err, memory.ErrRemoved) {
				err = errors.Join(err, t.h.Withdraw(c.l, r, &made))
			}
			return c.removed(err) // dropped meanwhile
		}
		return t.adopt(path, i, r, made)
	}
	t.h.CountLoss()
	return fmt.Errorf("btree: tree %q is gone: memory node %v has lost its memory", t.cfg.Name, r.Memory())
}
