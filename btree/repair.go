package btree

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
)

// A job is what a client does behind an operation: what the change of a node asks of others, or
// what the client found that a crashed client has not finished. The tree is
// right without it, and slower.
type job struct {
	kind  jobKind
	level uint8 // of the node to change; of jobUnlink: of the dead node
	low   []byte
	high  fence
	link  ptr
	self  ptr
	again bool // it has been put off once
}

type jobKind uint8

const (
	// jobComplete: the separator low of the node self is missing above it.
	jobComplete jobKind = iota
	// jobUnlink: self is dead, and its left neighbour is to take its fence over.
	jobUnlink
	// jobRepair: the separator low leads to self, which is gone or dead.
	jobRepair
	// jobRedirect: the separators of inner nodes that begin at low or above it, below high, lead to the nodes that had these keys before.
	jobRedirect
	// jobRedo: self was being written anew. Only Check looks for such nodes.
	jobRedo
)

// maxJobs bounds what a client does behind one operation, and what it remembers to do.
const maxJobs = 64

// later notes a job. What is forgotten, the next visitor finds.
func (c *Client) later(j job) {
	if len(c.jobs) == maxJobs {
		c.stats.Deferred++
		return
	}
	for i := range c.jobs {
		if x := &c.jobs[i]; x.kind == j.kind && x.level == j.level && x.self == j.self && bytes.Equal(x.low, j.low) {
			if x.high.some && (!j.high.some || bytes.Compare(j.high.key, x.high.key) > 0) {
				x.high = fence{bytes.Clone(j.high.key), j.high.some}
			}
			return
		}
	}
	j.low, j.high.key = bytes.Clone(j.low), bytes.Clone(j.high.key)
	c.jobs = append(c.jobs, j)
}

// doJobs does the jobs. The operation before it has its result already: an error is not its
// error, and what was not done is deferred to the next visitor.
func (c *Client) doJobs() {
	for done := 0; len(c.jobs) > 0; done++ {
		if done == maxJobs {
			c.stats.Deferred += uint64(len(c.jobs))
			c.jobs = c.jobs[:0]
			return
		}
		j := c.jobs[len(c.jobs)-1]
		c.jobs = c.jobs[:len(c.jobs)-1]
		var err error
		switch j.kind {
		case jobComplete:
			err = c.complete(&j)
		case jobUnlink:
			err = c.unlink(&j)
		case jobRepair:
			_, err = c.repairSeparator(&j)
		case jobRedirect:
			err = c.redirect(&j)
		}
		if err != nil {
			c.stats.Deferred++
		}
	}
}

// complete adds the separator of a node to the level above, unless it is there or the node is
// gone: the second half of a split.
func (c *Client) complete(j *job) error {
	for range maxTries {
		var s search
		s.begin(j.level, j.low, false, true)
		err := c.seek(&s, &c.n, c.leaf)
		if err == ErrLevel {
			if grown, err := c.grow(j, s.top); grown || err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		if n := &c.n; n.high.some && !j.high.above(n.high.key, false) {
			c.later(job{kind: jobRedirect, level: j.level, low: n.high.key, high: j.high})
		}
		r, there, err := c.n.find(j.low)
		if err != nil || there && r.child() == j.self {
			return c.unlock(err)
		}
		// Between a split and this, the node may have become empty and dead.
		if alive, err := c.alive(j.self, j.low); err != nil || !alive {
			return c.unlock(err)
		}
		c.stats.Completed++
		return c.change(&c.n, kindInline, j.low, c.child(j.self))
	}
	return fmt.Errorf("%w: no way to level %d in %d tries", ErrCorrupt, j.level, maxTries)
}

// child returns the value of a separator's record.
func (c *Client) child(p ptr) []byte {
	b := c.childBuf[:]
	put64(b, 0, uint64(p))
	return b
}

// alive reports whether p is a node that is alive and begins at low.
func (c *Client) alive(p ptr, low []byte) (bool, error) {
	var n node
	err := c.read(&n, c.inner, p)
	if isGone(err) {
		return false, nil
	}
	return err == nil && !n.dead && bytes.Equal(n.low, low), err
}

// grow makes a new root above the one that was found to be on the level below, with the node of the job as second child. It returns false if
// the tree has grown meanwhile.
func (c *Client) grow(j *job, old ptr) (grown bool, err error) {
	if c.t.h.Parts[0].Replicated() {
		if ok, err := c.lockRoot(old); !ok || err != nil {
			return false, err
		}
		defer func() {
			if c.hold.Held {
				err = c.unlock(err)
			}
		}()
	}
	slot, err := c.alloc(c.t.nextNode(0), classNode)
	if err != nil {
		return false, err
	}
	m := image{self: slot.next(), version: 1, level: j.level}
	var b [2 * (recordHeader + childSize)]byte
	first := putRecord(b[:], kindInline, nil, c.child(old))
	second := make([]byte, recordSize(len(j.low), childSize))
	putRecord(second, kindInline, j.low, c.child(j.self))
	m.items = []item{{raw: b[:first]}, {raw: second}}
	used := m.build(c.right)
	finish(c.right, stateAlive, used)
	if err := c.writeUnlinked(slot, classNode, c.right[:used]); err != nil {
		c.giveUp(slot, classNode, err)
		return false, fmt.Errorf("btree: new root %v: %w", m.self, err)
	}
	root := c.t.h.Parts[0].Base.Add(rootOffset)
	if err := c.mirrorWrite(0, fabric.Store(root, uint64(m.self))); err != nil {
		c.lose(m.self)
		c.unsettle(old)
		return false, fmt.Errorf("btree: root: %w", err)
	}
	c.ops[0] = fabric.CAS(root, uint64(old), uint64(m.self))
	if err := lock.Do(c.l, c.ops[:1]); err != nil {
		if c.hold.Held {
			c.lose(m.self) // backups name it
			c.unsettle(old)
		} else {
			c.giveUp(m.self, classNode, err)
		}
		return false, fmt.Errorf("btree: root: %w", err)
	}
	if !c.ops[0].Swapped() {
		if c.hold.Held {
			c.lose(m.self) // backups may name it
			return false, fmt.Errorf("btree: root %v: %w", old, lock.ErrLost)
		}
		c.free(m.self, classNode)
		_, err = c.loadRoot()
		return false, err
	}
	c.t.root.Store(uint64(m.self))
	if c.hold.Held {
		if err := c.unlock(nil); err != nil {
			return true, err
		}
	}
	// A client that unlinked the node before there was a root above it found no separator to repair.
	alive, err := c.alive(j.self, j.low)
	if err == nil && !alive {
		c.later(job{kind: jobRepair, level: j.level, low: j.low, self: j.self})
	}
	return true, err
}

// lockRoot locks a node if it is the root: no other client changes the ptr of the root then.
func (c *Client) lockRoot(root ptr) (ok bool, err error) {
	if err = c.lock(&c.n, c.leaf, root); err == nil {
		now, err := c.loadRoot()
		if err == nil && now == root {
			return true, nil
		}
		return false, c.unlock(err)
	}
	if isGone(err) {
		_, err = c.loadRoot()
	}
	return false, err
}

// unlinkFound unlinks a dead node that a writer has found in its way.
func (c *Client) unlinkFound(n *node) error {
	j := n.unlinkJob()
	return c.unlink(&j)
}

// unlinkJob is the job of unlinking n.
func (n *node) unlinkJob() job {
	return job{kind: jobUnlink, level: n.level, low: bytes.Clone(n.low), high: fence{bytes.Clone(n.high.key), n.high.some}, link: n.link, self: n.self}
}

// unlink makes the left neighbour of a dead node take its fence over, and then repairs the separators above.
// Only then the slot is free.
func (c *Client) unlink(j *job) error {
	var s search
	s.begin(j.level, j.low, true, true)
	if err := c.seek(&s, &c.n, c.leaf); err != nil {
		return err
	}
	n := &c.n
	if n.link == j.self && bytes.Equal(n.high.key, j.low) {
		items, err := c.sorted(n)
		if err != nil {
			return c.unlock(err)
		}
		m := c.renew(n, items)
		m.high, m.link = j.high, j.link
		if err := c.rewrite(n, &m, len(n.b)); err != nil {
			return err
		}
		c.stats.Unlinked++
		defer c.free(j.self, classNode)
	} else if err := c.unlock(nil); err != nil {
		return err
	}
	return c.redirect(&job{kind: jobRedirect, level: j.level + 1, low: j.low, high: j.high, self: j.self})
}

// redirect repairs the separator low if it leads to self, and those at which inner nodes begin below high. They lead to the node that had
// their keys when the one before became dead, and that node may have passed these keys on in a split, or be dead itself.
// self 0: wherever they lead.
func (c *Client) redirect(j *job) error {
	x := job{kind: jobRepair, level: j.level, low: j.low, self: j.self}
	for range maxTries {
		high, err := c.repairSeparator(&x)
		if err != nil || !high.some || j.high.above(high.key, false) {
			return err
		}
		x.low = high.key
	}
	return fmt.Errorf("%w: no end of level %d in %d nodes", ErrCorrupt, j.level, maxTries)
}

// repairSeparator removes the separator low of a node that is gone, and returns where the inner node ends that has it. The
// separator at which an inner node begins has to stay: it leads to the absorbing sibling, which has its keys now.
func (c *Client) repairSeparator(j *job) (high fence, err error) {
	var s search
	s.begin(j.level-1, j.low, false, false)
	if err := c.seek(&s, &c.n, c.leaf); err != nil {
		return fence{}, err
	}
	sibling, dead := c.n.self, c.n.dead
	var unlinkJob job
	if dead {
		unlinkJob = c.n.unlinkJob()
	}
	s.begin(j.level, j.low, false, true)
	err = c.seek(&s, &c.n, c.leaf)
	if err == ErrLevel {
		return fence{}, nil
	}
	if err != nil {
		return fence{}, err
	}
	n := &c.n
	high = fence{bytes.Clone(n.high.key), n.high.some}
	first := bytes.Equal(n.low, j.low)
	r, there, err := n.find(j.low)
	switch {
	case err != nil || !there || r.child() == sibling || r.child() != j.self && (j.self != 0 || !first):
		return high, c.unlock(err)
	case !first:
		c.stats.Repaired++
		return high, c.change(n, kindDeleted, j.low, nil)
	case dead:
		if j.again {
			c.stats.Deferred++ // the sibling could not be unlinked
			return high, c.unlock(nil)
		}
		again := *j
		again.again = true
		c.later(again) // not before the sibling is unlinked too
		c.later(unlinkJob)
		return high, c.unlock(nil)
	}
	c.stats.Repaired++
	if err := c.change(n, kindInline, j.low, c.child(sibling)); err != nil {
		return high, err
	}
	// The sibling may have passed the keys on, or be dead, before the separator led to it: then no other client looks after the separator.
	err = c.read(&c.n, c.leaf, sibling)
	if isGone(err) || err == nil && (c.n.dead || c.n.high.above(j.low, false)) {
		c.later(job{kind: jobRepair, level: j.level, low: j.low, self: sibling})
		err = nil
	}
	return high, err
}

// noSpace makes ErrNoSpace of the region's.
func noSpace(err error) error {
	if errors.Is(err, memory.ErrNoSpace) && !errors.Is(err, ErrNoSpace) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}
