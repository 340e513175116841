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

// A tree on replicated memory (docs/replication.md). What a change does to a node is at the backups before it is at the primary, and all that it leads to before that: new nodes and
// large values.
//
// The backups always get the whole node, by a shadow, since they may differ from the primary: a client that crashed may have written to backups only. So what a backup has of a node is
// what the primary has, with one change at most that was under way when its client crashed, or its operation failed. That is a node that readers understand, and so is the tree: what the
// change leads to was at the backup before.
//
// The ptr of the root changes under the lock of the node that is the root.

// A mirrored is what a client has for that.
type mirrored struct {
	image  []byte // the shadow of a node
	ops    [5]fabric.Op
	all    bool           // all backups have the change under way
	change handle.Change  // which that is
	last   memory.Backups // that have what mirrorWrite has written last
	stored memory.Backups // that have the large value of the operation in work
	partly partly         // where a change that has failed on its way to the backups may show
	own    bool           // what is changed next is what the operation in work is to change: not what is repaired on the way, or done behind it
	// settling: backups get what the primary has, which is done however few are in sync.
	settling bool
}

// A partly is a change of the operation in work that some backups of a part have, or may have, and others have not.
type partly struct {
	trace memory.Trace
	part  int
	since fabric.Time
	open  bool // what becomes of it is still to be found out
}

// outlast executes an operation of the user that changes something, and again if it has failed because a memory node is being replaced and it has published nothing. What was repaired on the
// way does not count. A memory node without copies is not waited for.
func (c *Client) outlast(try func() error) error {
	c.uncertain = false
	if !c.t.h.Replicated() {
		return try()
	}
	defer func() { c.mirrored.partly, c.mirrored.own = partly{}, false }()
	once := try
	try = func() error {
		c.mirrored.own = false
		err := once()
		c.conclude(err)
		return err
	}
	err := c.session.Outlast(try, func(err error) error {
		begun := func() bool { return c.uncertain || !c.t.h.OthersAnswer(c.l) }
		err = handle.Outlast(c.l, c.t.h.Parts, c.session.Since, err, begun, try)
		if c.uncertain {
			err = handle.Begun(err)
		} else if !c.mirrored.partly.trace.None() { // nothing was changed after an attempt that shows at a backup, which may serve before that is put right
			err = fmt.Errorf("btree: %w: a backup may have the change: %w", fabric.ErrUnknownOutcome, cmp.Or(err, fabric.ErrStaleEpoch))
		}
		return err
	})
	return c.t.h.Damaged(&c.work, err)
}

// found is called when an operation has the lock of what it is to change, or has not got it: whatever was repaired on the way does not count.
func (c *Client) found() { c.uncertain, c.mirrored.own = false, true }

// conclude waits for what becomes of the only change of an operation that has failed on its way to the backups. If the one that serves by then has nothing of it, the operation may be begun again.
func (c *Client) conclude(err error) {
	x := &c.mirrored.partly
	if x.open && err != nil && c.t.h.Parts[x.part].Missed(c.l, err, x.since, &x.trace) {
		c.uncertain = false
	}
	x.open = false
}

// unreached returns an error if what an attempt before this one was to change may show at what serves now: also if the key is on another part by now. b are the backups of the part.
func (c *Client) unreached(part int, b *memory.Backups) error {
	x := &c.mirrored.partly
	if !c.mirrored.own || x.trace.None() {
		return nil
	}
	if x.part != part { // a split may have taken the key there, from where others have seen and changed it
		other, err := c.t.h.Parts[x.part].Region.Backups(c.port)
		if err != nil {
			return err
		}
		b = &other
	}
	if !x.trace.Shows(b) {
		return nil
	}
	c.uncertain = true
	return fmt.Errorf("btree: %w: another backup serves, which may have the change", fabric.ErrUnknownOutcome)
}

// do executes a chain of READs on a part. Without a lock it waits while the memory node is being replaced.
func (c *Client) do(part int, ops []fabric.Op) error {
	err := lock.Do(c.l, ops)
	if n := c.t.h.Parts[part]; err != nil && !c.hold.Held && n.Replicated() {
		err = handle.Outlast(c.l, []*handle.Part{n}, c.session.Since, err, func() bool { return false }, func() error { return lock.Do(c.l, ops) })
	}
	return err
}

// backups returns the backups of a part. The lock of what is to be changed is held.
func (c *Client) backups(part int) (memory.Backups, error) {
	n := c.t.h.Parts[part]
	if !n.Replicated() {
		return memory.Backups{}, nil
	}
	err := lock.Ready(c.l, n.Base)
	if err != nil {
		return memory.Backups{}, fmt.Errorf("btree: %w", err)
	}
	return n.Region.Backups(c.port)
}

// writable is backups of a part on which something is to be changed: fabric.ErrTooFewCopies if too few are in sync.
func (c *Client) writable(part int) (memory.Backups, error) {
	b, err := c.backups(part)
	if err == nil && !c.mirrored.settling {
		err = b.Require()
	}
	return b, err
}

// mirrorWrite has the backups of a part execute an operation: a WRITE of what nothing leads to yet, say.
func (c *Client) mirrorWrite(part int, op fabric.Op) error {
	b, err := c.writable(part)
	c.mirrored.last = b
	if err != nil || b.None() {
		return err
	}
	c.mirrored.ops[0] = op
	return b.Write(c.mirrored.ops[:1], 0)
}

// writeUnlinked writes a new node or value, to which nothing leads yet.
func (c *Client) writeUnlinked(p ptr, cl class, b []byte) error {
	w := fabric.Write(c.t.slotAddr(p, cl), b)
	if err := c.mirrorWrite(p.node(), w); err != nil {
		return err
	}
	c.ops[0] = w
	return lock.Do(c.l, c.ops[:1])
}

// covered returns an error if there is a backup that does not have the large value that was written before the leaf was locked: who copies to that may have been at the leaf already.
func (c *Client) covered(value ptr) error {
	now, err := c.backups(value.node())
	if err == nil && !c.mirrored.stored.Covers(&now) {
		err = fmt.Errorf("btree: value at %v: another backup: %w", value, fabric.ErrStaleEpoch)
	}
	return err
}

// mirror makes the locked node p at the backups what it is to be: b with a word. after are executed then. Each backup has the node at each point: as it was, or as it is to be.
func (c *Client) mirror(p ptr, b []byte, w word, after ...fabric.Op) error {
	x := &c.mirrored
	if x.all = false; !c.t.h.Parts[p.node()].Replicated() {
		return c.unreached(p.node(), nil)
	}
	backups, err := c.writable(p.node())
	if err == nil {
		err = c.unreached(p.node(), &backups)
	}
	if err != nil || backups.None() {
		return err
	}
	shadow, err := c.shadowOn(p.node())
	if err != nil {
		return err
	}
	if x.image == nil {
		x.image = c.port.Alloc(c.t.geo.nodeSize)
	}
	image := x.image[:copy(x.image, b)]
	setWord(image, makeWord(stateShadow, len(b), w.crc()))
	a := c.t.slotAddr(p, classNode)
	ops := append(x.ops[:0],
		fabric.Write(c.t.slotAddr(shadow, classNode), image),
		fabric.Store(a, uint64(movingWord(get32(image, versionAt), shadow))),
		fabric.Write(a.Add(8), image[8:]),
		fabric.Store(a, uint64(w)))
	if err := backups.Write(append(ops, after...), 1); errors.Is(err, fabric.ErrUnknownOutcome) {
		// A backup may lead to the shadow.
		if y := &x.partly; x.own && (y.trace.None() || y.part == p.node()) {
			y.trace.Add(backups.Trace())
			y.part, y.open, y.since = p.node(), true, c.port.Now()
		}
		c.uncertain = true
		c.lose(shadow)
		c.shadow[shadow.node()].Store(0)
		c.unsettle(p)
		return fmt.Errorf("btree: node %v: %w", p, err)
	} else if err != nil {
		return fmt.Errorf("btree: node %v: %w", p, err)
	}
	c.uncertain, x.all = true, true
	x.change = handle.Change{Term: backups.Term(), Epoch: backups.Epoch(), At: c.t.h.Parts[p.node()].Region.Stamp(), Since: c.port.Now()}
	return nil
}

// publish executes the first n operations of before, which change the locked node p, and releases the lock. What all backups have may be made though the primary does not answer.
func (c *Client) publish(p ptr, n int) error {
	c.uncertain = true
	err := c.release(n, nil)
	if err == nil || !c.t.h.Parts[p.node()].Replicated() {
		return err
	}
	if c.mirrored.all && c.t.h.Parts[p.node()].Succeeded(c.l, err, &c.mirrored.change) {
		return nil
	}
	c.unsettle(p)
	return err
}
