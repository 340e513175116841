package objstore

import (
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory/handle"
)

// When a memory node has come back without its memory, the first client that needs the store's part there makes it anew, empty (package handle): a part
// has all that belongs to its keys, so the others stay as they are.

// reopen makes the client one of the newest store, after that has been opened anew if memory was lost: what no client of this compute node has yet is opened, or made.
func (c *Client) reopen() error {
	s, err := handle.Reopened(c.s.newest, (*Store).handle, c.l, func(x *Store) (*Store, error) {
		// Another compute node that made it first may have chosen other sizes.
		given := Config{Name: x.cfg.Name, Nodes: x.cfg.Nodes, Lock: x.cfg.Lock}
		return x.open(c.port, lock.Path(c.l), given, x.cfg, x)
	})
	if err == nil {
		err = c.open(s)
	}
	return err
}

func (s *Store) handle() *handle.Handle { return &s.h }

// gone returns what a loss has taken of what the client had by an earlier handle.
func (c *Client) gone(before *handle.Handle) error {
	var gone []fabric.MemID
	for i, n := range before.Parts {
		if c.s.h.Parts[i] != n && !n.Missing() {
			gone = append(gone, n.MN)
		}
	}
	if len(gone) == 0 { // but for a part that was missing
		return fmt.Errorf("%w: %q was opened anew, and has lost no objects that this compute node has seen", lock.ErrMemoryLost, c.s.cfg.Name)
	}
	return fmt.Errorf("%w: the objects of %q on %v are gone", lock.ErrMemoryLost, c.s.cfg.Name, gone)
}
