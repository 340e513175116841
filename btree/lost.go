package btree

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/memory/reclaim"
)

// When a memory node has come back without its memory, a tree that had nodes there is gone as a whole: inner nodes on others lead
// into what is not there any more. It is made anew, empty, by whoever comes first. A compute node has the tree open as a line of Trees then:
// each knows the memory that there was when it was opened, and nothing of what one has kept comes into the next: neither free slots nor the
// index cache. A client goes from one to the next at the beginning of an operation, which tells its user that the keys are gone. In
// the middle of one it cannot get into the new memory: its addresses are those of the old (lock.Attacher). Memory that the old
// tree had on other memory nodes is never used again, for a compute node that has not heard of the loss yet may write there.

// A line is what the Trees of a compute node by one name have in common.
type line struct {
	losses atomic.Uint32        // memories that were lost
	turn   reclaim.Turn         // to open the next, or missing parts
	newest atomic.Pointer[Tree] // the last that was opened

	dropped atomic.Bool   // somebody has dropped it: nothing is opened any more
	going   reclaim.Going // how this compute node lets it go then
}

// MemoryLost tells the tree that a memory node has lost its memory, if that is one of its.
func (t *Tree) MemoryLost(mn fabric.MemID) {
	for _, m := range t.cfg.Nodes {
		if m == mn {
			t.line.losses.Add(1)
		}
	}
}

// Losses returns how many memories of the tree were lost since this compute node opened it first.
func (t *Tree) Losses() uint32 { return t.line.losses.Load() }

// Dropped reports whether this compute node knows that the tree has been dropped.
func (t *Tree) Dropped() bool { return t.line.dropped.Load() }

// MarkDropped notes that the tree has been dropped: what uses it on this compute node is ErrDropped from now on, as when Tend has found out. It is for
// those that have dropped it.
func (t *Tree) MarkDropped() {
	if !t.line.dropped.Swap(true) {
		t.line.losses.Add(1) // operations look
	}
}

// lost tells whether memory of the tree was lost since it was opened.
func (t *Tree) lost() bool { return t.losses != t.line.losses.Load() }

// errReviving: another client of this compute node is at it.
var errReviving = errors.New("btree: another client opens it")

// revived returns the tree as it is after the last loss, which it opens, or makes, if nobody of this compute node has yet.
func (t *Tree) revived(l lock.Locker) (*Tree, error) {
	if newest := t.line.newest.Load(); !newest.lost() {
		return newest, nil
	}
	if ok, err := t.line.turn.Take(l.Port()); !ok {
		return nil, errors.Join(errReviving, err)
	}
	defer t.line.turn.End()
	newest := t.line.newest.Load()
	for newest.lost() {
		if err := t.forgone(); err != nil { // nothing is made in its place
			return nil, err
		}
		for _, mn := range t.cfg.Nodes {
			if err := lock.Renew(l, mn); err != nil && !(newest.waits() && errors.Is(err, fabric.ErrNodeDown)) {
				return nil, err
			}
		}
		cfg := newest.cfg
		cfg.Dead, cfg.Deadline = fabric.CNSet{}, 0
		// Who made it before us may have chosen other sizes.
		given := Config{Name: cfg.Name, Nodes: cfg.Nodes, Lock: cfg.Lock}
		cfg.MaxKey, cfg.NodeSize, cfg.MaxInline, cfg.MemoryLimit = newest.geo.maxKey, newest.geo.nodeSize, newest.geo.maxInline, newest.geo.limit
		next, err := open(l.Port(), lock.Path(l), given, cfg, t.line)
		if why := err; newest.waits() && errors.Is(err, fabric.ErrNodeDown) {
			as := cfg
			as.MaxKey, as.NodeSize, as.MaxInline = 0, 0, 0
			if next, err = openWithout(l.Port(), as, t.line, why); err == nil && next.waits() {
				err = why
			}
		}
		if err != nil {
			return nil, err
		}
		t.line.newest.Store(next)
		newest = next
	}
	return newest, nil
}

// outlived tells whether an entry is what is left of a tree of which another part is gone.
func (t *Tree) outlived(e *memory.Entry) bool {
	return e.Info[0]>>56 == formatVersion && e.Info[3] < t.geo.births
}

// removed deals with a tree that somebody has removed: who has dropped it, which this compute node has not seen yet, or who has heard of
// a loss already. Whoever drops a tree says so in each part before its entry goes. If that cannot be read, nothing is made in its place yet.
func (c *Client) removed(err error) error {
	t := c.t
	for i := range t.nodes {
		if t.nodes[i].missing() {
			continue
		}
		dropped, derr := t.nodes[i].heap.Dropped(&c.work)
		if derr != nil {
			return errors.Join(err, derr)
		}
		if dropped {
			t.MarkDropped()
			return t.forgone()
		}
	}
	if !t.lost() {
		t.line.losses.Add(1)
	}
	return errors.Join(lock.ErrMemoryLost, err)
}

// revive brings the client to the tree as it is after a loss, and says what is gone.
func (c *Client) revive() error {
	if err := c.t.forgone(); err != nil {
		return err
	}
	t, err := c.t.revived(c.l)
	if err == nil {
		err = c.open(t)
	}
	if err != nil {
		return fmt.Errorf("%w: tree %q is not there again yet: %w", lock.ErrMemoryLost, c.t.cfg.Name, err)
	}
	return c.gone()
}

// forgone returns ErrDropped if this compute node knows that the tree has been dropped.
func (t *Tree) forgone() error {
	if t.line.dropped.Load() {
		return fmt.Errorf("%w: tree %q: open it anew to make another", ErrDropped, t.cfg.Name)
	}
	return nil
}

func (c *Client) gone() error {
	return fmt.Errorf("%w: the keys of tree %q are gone", lock.ErrMemoryLost, c.t.cfg.Name)
}
