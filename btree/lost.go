package btree

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/memory/handle"
)

// When a memory node has come back without its memory, a tree that had nodes there is gone as a whole: inner nodes on others lead
// into what is not there any more. The first client that needs it makes it anew, empty (package handle). Memory that the old
// tree had on other memory nodes is never used again, for a compute node that has not heard of the loss yet may write there.

// reopen makes the client one of the newest tree, after that has been opened anew, or made, if memory was lost.
func (c *Client) reopen() error {
	t, err := handle.Reopened(c.t.newest, (*Tree).handle, c.l, func(x *Tree) (*Tree, error) {
		cfg := x.cfg
		// Another compute node that made it first may have chosen other sizes.
		given := Config{Name: cfg.Name, Nodes: cfg.Nodes, Lock: cfg.Lock}
		cfg.MaxKey, cfg.NodeSize, cfg.MaxInline, cfg.MemoryLimit = x.geo.maxKey, x.geo.nodeSize, x.geo.maxInline, x.geo.limit
		return x.open(c.port, lock.Path(c.l), given, cfg)
	})
	if err == nil {
		err = c.open(t)
	}
	return err
}

func (t *Tree) handle() *handle.Handle { return &t.h }

// outlived reports whether an entry is the rest of a tree of which another part is gone. Of one on more or fewer memory nodes that is not known.
func (t *Tree) outlived(e *memory.Entry) bool {
	_, of := e.Part()
	return e.Info[0]>>56 == formatVersion && of == len(t.cfg.Nodes) && e.Info[3] < t.geo.generations
}

// mine returns an error if what a memory node has is a part of a tree that is on other memory nodes, or in another order.
func (t *Tree) mine(e *memory.Entry, i int) error {
	if e == nil || t.outlived(e) {
		return nil
	}
	_, of := e.Part()
	return cmp.Or(Trees.CheckPart(e, i), Trees.CheckNodes(e.Name, of, len(t.cfg.Nodes)))
}

// removed returns the error of taking memory, or of looking for a part. If the tree's root entry is gone and the tree has not been dropped, a compute node that knew of a
// loss already has removed it: then memory has been lost here, too.
func (c *Client) removed(err error) error {
	h := &c.t.h
	if err = h.Removed(&c.work, err, h.Parts...); errors.Is(err, memory.ErrRemoved) {
		h.CountLoss()
		err = errors.Join(lock.ErrMemoryLost, err)
	}
	return err
}

func (c *Client) gone(*handle.Handle) error {
	return fmt.Errorf("%w: the keys of tree %q are gone", lock.ErrMemoryLost, c.t.cfg.Name)
}
