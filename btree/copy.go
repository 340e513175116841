package btree

import (
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/memory/handle"
)

// A tree is copied to a new backup node by node under their locks, level by level from the root, from the left to the right, also through those on other memory nodes: a client that does not know
// of the backup, since it began before, has the lock of the node to which it links what it has made (docs/replication.md). While a leaf is locked, the slots of its large values are used for no
// others. Nodes that are dead are unlinked on the way.

// A Copy copies the part of a tree on one memory-node number to a new backup, in steps.
type Copy struct {
	c  *Client
	n  *handle.Part
	to handle.NewBackup
	at *handle.CopyPosition

	over bool
}

// Copy begins to copy the part of the tree that has a root entry, or goes on at a position. It uses l, as a client would, until it is closed.
func (t *Tree) Copy(l lock.Locker, e *memory.Entry, to handle.NewBackup, at *handle.CopyPosition) (handle.Copier, error) {
	c, err := t.Client(l)
	if err != nil {
		return nil, err
	}
	n, err := c.t.h.Copied(&c.work, e)
	if err == nil && !c.t.h.Whole() {
		err = fmt.Errorf("copy %q: %w: it is not all there", t.cfg.Name, fabric.ErrNodeDown)
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("btree: %w", err)
	}
	return &Copy{c: c, n: n, to: to, at: at}, nil
}

// LeaveUnused closes the tree on this compute node, which has opened it for a Copy only, and has no client of it.
func (t *Tree) LeaveUnused(l lock.Locker) error {
	c, err := t.Client(l)
	if err != nil {
		return err
	}
	err = c.Leave()
	c.Close()
	return err
}

// Close ends a copy, finished or not.
func (k *Copy) Close() { k.c.Close() }

// Progress returns how many nodes have been copied. How many there are is not known.
func (k *Copy) Progress() (done, all uint64) {
	if k.over {
		return k.at.Nodes, k.at.Nodes
	}
	return k.at.Nodes, k.at.Nodes + 1
}

// Step copies the ptr of the root, or a node, and reports whether there is nothing left to copy. If it fails the copy is to be begun anew, from the beginning.
func (k *Copy) Step() (done bool, err error) {
	c := k.c
	if err := c.session.Begin(); err != nil {
		return false, err
	}
	defer c.session.End()
	if err := c.session.CatchUp(); err != nil {
		return false, err
	}
	if c.t.h.Parts[k.n.Index] != k.n {
		return false, fmt.Errorf("btree: copy: %w: %q was opened anew", lock.ErrMemoryLost, c.t.cfg.Name)
	}
	c.user.Enter()
	defer c.user.Exit()
	c.patience = settleWaitNs
	defer func() { c.patience = 0 }()
	if !k.at.Begun {
		err = k.root()
	} else {
		done, err = k.next()
	}
	c.doJobs()
	if errors.Is(err, lock.ErrTimeout) {
		return false, nil
	}
	if err != nil {
		err = fmt.Errorf("btree: copy: %w", err)
	}
	return done, err
}

// backups returns the backups, among them that which is copied to, if the number is still served in its epoch.
func (k *Copy) backups() (memory.Backups, error) {
	b, err := k.c.backups(k.n.Index)
	if err == nil && b.Epoch() != k.to.Epoch {
		err = fabric.ErrStaleEpoch
	}
	return b, err
}

// locks makes the locks of nodes zero whose memory was something else before.
func (k *Copy) locks(pages *memory.Pages, own bool, zero func(a fabric.Addr, size uint64) error) error {
	t := k.c.t
	var err error
	one := func(slot fabric.Addr) {
		if err == nil {
			err = zero(slot, t.geo.lockSize)
		}
	}
	if own && k.n.Index == 0 {
		one(k.n.Base.Add(firstLeafOffset))
	}
	pages.Runs(&k.n.Entry, func(x memory.Run) {
		if x.Used && x.Tag == uint8(classNode)+1 {
			for at := uint64(0); at+t.stride <= x.Size; at += t.stride {
				one(k.n.Zero.Add(x.Off + at))
			}
		}
	})
	return err
}

// root copies what is besides nodes and values, and mirrored.
func (k *Copy) root() error {
	c := k.c
	if err := k.n.ZeroUnmirrored(c.l, k.to, numClasses, k.locks); err != nil {
		return err
	}
	if k.n.Index == 0 {
		if err := handle.MirrorRecords(lock.Path(c.l), k.n.Region, k.n.Base); err != nil {
			return err
		}
	}
	root, err := c.loadRoot()
	if err != nil {
		return err
	}
	ok, err := c.lockRoot(root)
	if !ok || err != nil {
		return err
	}
	level := c.n.level
	b, err := k.backups()
	if err == nil && k.n.Index == 0 {
		err = b.Fill(k.to.Number, []fabric.Op{fabric.Store(k.n.Base.Add(rootOffset), uint64(root))})
	}
	if err = c.unlock(err); err == nil {
		k.at.Begun, k.at.Level = true, level
	}
	return err
}

// next copies the next node, if it is on the number, with its large values that are.
func (k *Copy) next() (done bool, err error) {
	c, n := k.c, &k.c.n
	c.search.begin(k.at.Level, k.at.Edge, false, true)
	if err := c.seek(&c.search, n, c.leaf); err != nil {
		return false, err
	}
	at := place{level: k.at.Level, edge: k.at.Edge}
	over := at.next(n)
	if err := c.unlock(k.node(n)); err != nil {
		return false, err
	}
	k.at.Level, k.at.Edge, k.at.Nodes = at.level, at.edge, k.at.Nodes+1
	k.over = over
	return over, nil
}

// node copies a locked node.
func (k *Copy) node(n *node) error {
	c := k.c
	b, err := k.backups()
	if err != nil {
		return err
	}
	fill := func(p ptr, cl class, bytes []byte) error {
		k.at.Bytes += uint64(len(bytes))
		return b.Fill(k.to.Number, []fabric.Op{fabric.Write(c.t.slotAddr(p, cl), bytes)})
	}
	if n.self.node() == k.n.Index {
		if err := fill(n.self, classNode, n.b[:n.used]); err != nil {
			return err
		}
	}
	if n.level > 0 {
		return nil
	}
	items, err := c.sorted(n)
	if err != nil {
		return err
	}
	for i := range items {
		x := &items[i]
		if x.kind != kindOutOfLine || decodeOutOfLine(x.value).at.node() != k.n.Index {
			continue
		}
		v, err := c.load(&x.record)
		if err == errTorn {
			err = fmt.Errorf("%w: value of %.40q: checksum is wrong", ErrCorrupt, x.key)
		}
		if err != nil {
			return err
		}
		if o := decodeOutOfLine(x.value); o.size > 0 {
			if err := fill(o.at, classFor(o.size), v); err != nil {
				return err
			}
		}
	}
	return nil
}
