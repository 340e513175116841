package btree

import (
	"bytes"
	"errors"
	"sync"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory/handle"
)

// A compute node that walks (package memory/handle) reads the nodes of each level from the left to the right, and compares them with what the backups have, without a lock. Those that differ it
// settles under their locks: the backups get them whole. So it does with the nodes of its own operations that have failed.

// A place is where a sweep through a tree is: level by level from the root, from the left to the right.
type place struct {
	begun bool
	level uint8
	edge  []byte // where the next node begins
}

// next goes behind a node, and reports whether there is nothing behind it.
func (p *place) next(n *node) (over bool) {
	switch {
	case n.high.some:
		p.edge = append(p.edge[:0], n.high.key...)
	case p.level == 0:
		return true
	default:
		p.level, p.edge = p.level-1, p.edge[:0]
	}
	return false
}

// A walking is what a client knows of the walks through its tree.
type walking struct {
	handle.Walk
	at    place
	there []byte // what a backup has of a node
}

// unsettled are the nodes of a tree of which the backups may differ from the primary, by operations of this compute node.
type unsettled struct {
	mu    sync.Mutex
	list  []ptr
	pages bool // and so may the page tables
}

func (u *unsettled) add(p ptr) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.list = append(u.list, p)
}

func (u *unsettled) addPages() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.pages = true
}

// level reports whether the page tables are known to be equal.
func (u *unsettled) level() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return !u.pages
}

// any reports whether there may be some.
func (u *unsettled) any() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.pages || len(u.list) > 0
}

func (u *unsettled) take() (list []ptr, pages bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	list, pages = u.list, u.pages
	u.list, u.pages = nil, false
	return list, pages
}

// unsettle notes that the backups of a node may differ from the primary.
func (c *Client) unsettle(p ptr) { c.t.unsettled.add(p) }

const (
	// walkNodes is how many nodes are compared in a step.
	walkNodes = 32
	// settleWaitNs bounds the wait for the lock of a node that is to be settled. It is time enough for the reset of one that a crashed client held.
	settleWaitNs = 200 * fabric.Millisecond
)

// walkStep settles what this compute node knows to be unsettled, does some of a walk, if one is due and this compute node's to do, and asks for a round then. It reports whether there is
// more to do at once.
func (c *Client) walkStep(view func() fabric.View) (busy bool, err error) {
	if err := c.session.Begin(); err != nil {
		return false, err
	}
	defer c.session.End()
	if !c.t.h.UpToDate() || !c.t.h.Registered() || !c.t.h.Replicated() {
		return false, nil
	}
	if err = c.settling(c.settleAll); err == nil {
		busy, err = c.walkOn(view())
	}
	if err == nil && !busy {
		busy, err = c.session.SeekRound(view())
	}
	if err != nil && (handle.Later(err) || errors.Is(err, lock.ErrTimeout)) {
		return false, nil
	}
	return busy, err
}

// settled is handle.Hooks.Settled.
func (c *Client) settled() bool { return c.t.unsettled.level() }

// settling does something under locks of nodes, for which it does not wait for long, and what there is to do behind it.
func (c *Client) settling(do func() error) error {
	c.user.Enter()
	defer c.user.Exit()
	c.patience = settleWaitNs
	defer func() { c.patience = 0 }()
	err := do()
	c.doJobs()
	return err
}

// walkOn does some of a walk, or begins one. A node of which others have the lock is met again later.
func (c *Client) walkOn(v fabric.View) (busy bool, err error) {
	over := false
	err = c.settling(func() (err error) {
		busy, over, err = c.session.WalkOn(&c.walking.Walk, v, func() { c.walking.at = place{} }, c.walkNodes)
		return err
	})
	if over {
		c.stats.Walks++
	}
	if errors.Is(err, lock.ErrTimeout) {
		return false, nil
	}
	return busy, err
}

// settleAll settles the page tables and the nodes that are known to be unsettled.
func (c *Client) settleAll() error {
	list, pages := c.t.unsettled.take()
	if pages {
		if err := c.levelPages(); err != nil {
			for _, p := range list {
				c.unsettle(p)
			}
			return err
		}
	}
	for i, p := range list {
		err := c.lock(&c.n, c.leaf, p)
		if isGone(err) {
			continue
		}
		if err == nil {
			err = c.unlock(c.settle(&c.n))
		}
		if err != nil {
			for _, q := range list[i:] {
				c.unsettle(q)
			}
			return err
		}
	}
	return nil
}

// levelPages gives the runs of pages the classes at the backups that they have at the primaries.
func (c *Client) levelPages() error {
	missed, err := c.session.LevelAll(&c.walking.Walk)
	if missed || err != nil { // a backup that did not answer may come back as it is
		c.t.unsettled.addPages()
	}
	return err
}

// settle makes a locked node at the backups what it is at the primary, and the ptr of the root, if it is the root.
func (c *Client) settle(n *node) error {
	c.mirrored.settling = true
	defer func() { c.mirrored.settling = false }()
	if err := c.mirror(n.self, n.b[:n.used], n.word); err != nil {
		return err
	}
	c.stats.Settled++
	if root, err := c.loadRoot(); err != nil || root != n.self {
		return err
	}
	return c.mirrorWrite(0, fabric.Store(c.t.h.Parts[0].Base.Add(rootOffset), uint64(n.self)))
}

// walkNodes goes on with a walk.
func (c *Client) walkNodes() (busy, over bool, err error) {
	k := &c.walking
	if !k.at.begun {
		if err := c.levelPages(); err != nil {
			return false, false, err
		}
		root, err := c.loadRoot()
		if err != nil {
			return false, false, err
		}
		if err := c.read(&c.n, c.leaf, root); err != nil {
			return isGone(err), false, unlessGone(err)
		}
		var word [8]byte
		put64(word[:], 0, uint64(root))
		same, err := c.same(0, c.t.h.Parts[0].Base.Add(rootOffset), word[:])
		if err != nil {
			return false, false, err
		}
		k.at.begun, k.at.level = true, c.n.level
		if !same {
			c.unsettle(root)
			return true, false, c.settleAll()
		}
	}
	for range walkNodes {
		c.search.begin(k.at.level, k.at.edge, false, false)
		if err := c.seek(&c.search, &c.n, c.leaf); err != nil {
			return false, false, err
		}
		same, err := c.sameNode(&c.n)
		if err != nil {
			return false, false, err
		}
		if !same {
			c.search.begin(k.at.level, k.at.edge, false, true) // and what is dead is unlinked
			if err := c.seek(&c.search, &c.n, c.leaf); err != nil {
				return false, false, err
			}
			if err := c.unlock(c.settle(&c.n)); err != nil {
				return false, false, err
			}
		}
		if k.at.next(&c.n) {
			return false, true, nil
		}
	}
	return true, false, nil
}

func unlessGone(err error) error {
	if isGone(err) {
		return nil
	}
	return err
}

// sameNode reports whether the backups have a node, which has been read without its lock, as the primary has it.
func (c *Client) sameNode(n *node) (same bool, err error) {
	if !c.t.h.Parts[n.self.node()].Replicated() {
		return true, nil
	}
	if n.dead || n.word.state() != stateAlive {
		return false, nil
	}
	return c.same(n.self.node(), c.t.slotAddr(n.self, classNode), n.b[:n.used])
}

// same reports whether the backups of a part have what the primary has at an address.
func (c *Client) same(part int, a fabric.Addr, here []byte) (same bool, err error) {
	b, err := c.backups(part)
	if err != nil {
		return false, err
	}
	if c.walking.there == nil {
		c.walking.there = c.port.Alloc(c.t.geo.nodeSize)
	}
	there := c.walking.there[:len(here)]
	same = true
	err = b.Synced(func(i int) error {
		err := b.Read(i, fabric.Read(a, there))
		if errors.Is(err, fabric.ErrNodeDown) {
			c.walking.Missed = true
			return nil
		}
		same = same && err == nil && bytes.Equal(there, here)
		return err
	})
	return same, err
}
