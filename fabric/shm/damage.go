package shm

import (
	"fmt"

	"github.com/declock/declock/fabric"
)

// A compute node cannot do without two files: that of the cluster, which says which members there are, and its own, into which others write
// messages. When one of them is truncated the node fences itself: its operations and sends are refused. To the others it is alive until its
// process closes the node or ends, for operations may be under way. A memory node whose file is truncated is down for all: see loseMN and
// MemoryServer.Done.

// neverAlive is no counter of a compute node, and no zero page has it.
const neverAlive = ^uint64(0)

// notice fences this node if one of its files has been found truncated.
func (n *node) notice() {
	if n.c.m.isLost() || n.m.isLost() {
		n.fail()
	}
}

func (n *node) fail() {
	n.failing.Do(func() {
		n.alive.Store(neverAlive)
		close(n.failed)
	})
}

// Fenced returns a channel that is closed when the node has fenced itself: Err says why.
func (n *node) Fenced() <-chan struct{} { return n.failed }

// Err returns why the node has fenced itself; nil if it has not.
func (n *node) Err() error {
	if n.damage() == nil {
		return nil
	}
	return n.fencing()
}

// damage returns what is wrong with the files of this node; nil if nothing is known.
func (n *node) damage() error {
	if err := n.c.damage(); err != nil {
		return err
	}
	if err := n.m.lost(); err != nil {
		return fmt.Errorf("%w: this process has to close the cluster and open it again", err)
	}
	return nil
}

// fencing is the error of a node that is fenced.
func (n *node) fencing() error {
	n.notice()
	if err := n.damage(); err != nil {
		return fmt.Errorf("%w: %v: %w", fabric.ErrFenced, n.id, err)
	}
	return fmt.Errorf("%w: %v", fabric.ErrFenced, n.id)
}
