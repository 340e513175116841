package objstore

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/memory/reclaim"
)

// When a memory node has come back without its memory, the store's part there is made anew, empty, by whoever comes first: a part
// has all that belongs to its keys, so the others stay as they are. A compute node has the store open as a line of Stores then: each knows
// the memory that there was when it was opened, and nothing of what one has kept of the memory that is gone comes into the next: neither free
// chunks nor the location cache. A client goes from one to the next at the beginning of an operation, which tells its user
// what is gone. In the middle of one it cannot get into the new memory: its addresses are those of the old (lock.Attacher).

// A line is what the Stores of a compute node by one name have in common.
type line struct {
	losses atomic.Uint32         // memories that were lost
	turn   reclaim.Turn          // to open the next: a compute node registers once
	newest atomic.Pointer[Store] // the last that was opened

	dropped atomic.Bool   // somebody has dropped it: nothing is opened any more
	going   reclaim.Going // how this compute node lets it go then
}

// MemoryLost tells the store that a memory node has lost its memory, if that is one of its.
func (s *Store) MemoryLost(mn fabric.MemID) {
	for _, m := range s.cfg.Nodes {
		if m == mn {
			s.line.losses.Add(1)
		}
	}
}

// Losses returns how many memories of the store were lost since this compute node opened it first.
func (s *Store) Losses() uint32 { return s.line.losses.Load() }

// Dropped reports whether this compute node knows that the store has been dropped.
func (s *Store) Dropped() bool { return s.line.dropped.Load() }

// MarkDropped notes that the store has been dropped: what uses it on this compute node is ErrDropped from now on, as when Tend has found out. It is for
// those that have dropped it.
func (s *Store) MarkDropped() {
	if !s.line.dropped.Swap(true) {
		s.line.losses.Add(1) // operations look
	}
}

// lost tells whether memory of the store was lost since it was opened.
func (s *Store) lost() bool { return s.losses != s.line.losses.Load() }

// errReviving: another client of this compute node is at it.
var errReviving = errors.New("objstore: another client opens it")

// revived returns the store as it is after the last loss, with the parts of which the memory nodes are up. It opens, or makes, what nobody of this
// compute node has yet.
func (s *Store) revived(l lock.Locker) (*Store, error) {
	if newest := s.line.newest.Load(); !newest.lost() && !newest.incomplete() {
		return newest, nil
	}
	if ok, err := s.line.turn.Take(l.Port()); !ok {
		return nil, errors.Join(errReviving, err)
	}
	defer s.line.turn.End()
	newest := s.line.newest.Load()
	for newest.lost() || newest.returned(l) {
		if err := s.forgone(); err != nil { // nothing is made in its place
			return nil, err
		}
		for i, mn := range s.cfg.Nodes {
			if err := lock.Renew(l, mn); err != nil && !(newest.nodes[i].missing() && errors.Is(err, fabric.ErrNodeDown)) {
				return nil, err
			}
		}
		cfg := newest.cfg
		cfg.Dead, cfg.Deadline = fabric.CNSet{}, 0
		// Who made it before us may have chosen other sizes.
		given := Config{Name: cfg.Name, Nodes: cfg.Nodes, Lock: cfg.Lock}
		next, err := open(l.Port(), lock.Path(l), given, cfg, s.line, newest)
		if err != nil {
			return nil, err
		}
		s.line.newest.Store(next)
		newest = next
	}
	return newest, nil
}

// revive brings the client to the store as it is after a loss, and says what is gone.
func (c *Client) revive() error {
	if err := c.s.forgone(); err != nil {
		return err
	}
	var gone []fabric.MemID
	s, err := c.s.revived(c.l)
	if err == nil {
		for i, n := range c.s.nodes {
			if s.nodes[i] != n {
				gone = append(gone, n.mn)
			}
		}
		err = c.open(s)
	}
	if err != nil {
		return fmt.Errorf("%w: %q is not there again yet: %w", lock.ErrMemoryLost, c.s.cfg.Name, err)
	}
	return fmt.Errorf("%w: the objects of %q on %v are gone", lock.ErrMemoryLost, s.cfg.Name, gone)
}

// removed returns ErrDropped if err says that the root entry of a part is gone, since the store has been dropped, which this compute node has
// not seen yet: whoever drops it says so in the part before its entry goes.
func (c *Client) removed(n *node, err error) error {
	if !errors.Is(err, memory.ErrRemoved) {
		return wrapped(err)
	}
	dropped, derr := n.heap.Dropped(&c.work)
	if derr != nil || !dropped {
		return errors.Join(wrapped(err), wrapped(derr))
	}
	c.s.MarkDropped()
	return c.s.forgone()
}

// forgone returns ErrDropped if this compute node knows that the store has been dropped.
func (s *Store) forgone() error {
	if s.line.dropped.Load() {
		return fmt.Errorf("%w: store %q: open it anew to make another", ErrDropped, s.cfg.Name)
	}
	return nil
}

// survey looks for parts of the store that are there already: their geometry is that of all. Without them, that of the first part that is made
// is. (A part may be missing because its memory was lost.) It tells whether there is one behind the first.
func (s *Store) survey(port fabric.Port, given *Config) (behind bool, err error) {
	if len(s.cfg.Nodes) == 1 {
		return false, nil
	}
	var down error
	for i, mn := range s.cfg.Nodes {
		r, err := memory.Reach(port, mn)
		if errors.Is(err, fabric.ErrNodeDown) {
			down = fmt.Errorf("objstore: open %q on %v: %w", s.cfg.Name, mn, err)
			continue
		}
		if err != nil {
			return false, fmt.Errorf("objstore: open %q on %v: %w", s.cfg.Name, mn, err)
		}
		e, err := r.Lookup(port, s.cfg.Name, memory.KindStore)
		switch {
		case errors.Is(err, memory.ErrNotFound), errors.Is(err, memory.ErrHalfCreated):
			continue
		case err != nil:
			return false, fmt.Errorf("objstore: open %q on %v: %w", s.cfg.Name, mn, err)
		}
		g, err := decodeGeometry(&e, i)
		if err != nil {
			return false, fmt.Errorf("objstore: open %q on %v: %w", s.cfg.Name, mn, err)
		}
		s.geo = g
		return i > 0, s.compare(given)
	}
	return false, down
}
