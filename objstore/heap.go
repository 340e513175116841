package objstore

import (
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/memory/handle"
	"github.com/declock/declock/memory/slab"
)

// Memory of objects comes in chunks (package memory/slab). A client that needs one asks, in this order:
//
//   - the list of its compute node, shared by its clients, without any remote operation;
//   - the memory node: up to 8 chunks that others have given back;
//   - the region: a run of pages, divided into chunks of the class;
//   - eviction of an object in a chunk of the class, or of one hardly larger;
//   - a run of another class, of which it evicts what is in use: so memory goes from sizes that were used to those that are. Without eviction, it
//     moves what is in use (move.go);
//   - eviction of any larger object.
//
// A chunk is free for reuse as soon as the CAS that unlinks it from its slot has taken
// place: a reader holds the bucket's lock meanwhile, and the CAS
// took place under the exclusive lock; or it reads without the lock, and finds out (unlocked.go).
//
// Chunks in the lists of a crashed compute node are found by the others (reclaim.go).

// localBytes bounds what a list holds before it gives a batch back, localShare that as a share of the region, and localChunks the number of chunks: what a batch of changes frees it will need again.
const (
	localBytes  = 256 << 10
	localShare  = 512
	localChunks = 256
)

// bound returns how many free chunks of a class a compute node keeps of a part whose memory ends at an offset.
func bound(end uint64, c class) int {
	return int(min(max(min(localBytes, end/localShare)/c.size(), 2), localChunks))
}

// division returns how the store's memory on a memory node is divided.
func (s *Store) division(end uint64) slab.Config {
	return slab.Config{
		Size:   func(c uint8) uint64 { return class(c).size() },
		Fixed:  func(c uint8) bool { return class(c) == overflowClass },
		Bound:  func(c uint8) int { return bound(end, class(c)) },
		Evicts: !s.cfg.NoEvict, Limit: s.geo.limit,
	}
}

// alloc returns a chunk of class c, or of a larger one if it had to evict. A
// bucket whose lock the client holds is excluded from eviction.
func (c *Client) alloc(n *handle.Part, want class) (chunk, error) {
	ch, err := c.take(n, want)
	if err == nil {
		c.s.h.Member.Touch(n.Index, ch.off64)
	} else if n.Region.Replicated() {
		c.s.unsettled.pages.Store(true)
	}
	return ch, err
}

// collectTries bounds how often a client collects a run that others take then.
const collectTries = 16

// A client that has found blocks of all runs in others' lists, and has asked for them, waits so long, and so often. One that does not evict is refused at once.
const (
	askedNs    = fabric.Millisecond
	askedWaits = 4
)

func (c *Client) take(n *handle.Part, want class) (chunk, error) {
	h, cl := n.Heap, uint8(want)
	off, stamp, err := h.Get(&c.work, cl)
	if err != nil || off != 0 {
		return chunk{off, want}, Stores.Wrap(err)
	}
	waits := 0
tries:
	for range collectTries {
		if off, err = h.Grow(&c.work, cl, stamp); err == nil {
			c.stats.Extents = c.work.Runs
			return chunk{off, want}, nil
		}
		if !errors.Is(err, memory.ErrNoSpace) {
			return chunk{}, c.s.h.Removed(&c.work, err, n)
		}
		var evict slab.Evict
		if !c.s.cfg.NoEvict {
			ch, err := c.evict(n, want, want+nearClasses, nearRounds)
			if err != nil || !ch.none() {
				return ch, err
			}
			evict = c.evictor(n)
		}
		ok, err := h.Collect(&c.work, cl, evict, c.mover(n))
		switch {
		case err != nil:
			return chunk{}, Stores.Wrap(err)
		case ok:
			c.stats.Collected++
		case evict != nil && !c.hold.Held && waits < askedWaits:
			waits++
			if err := c.port.Pause(c.port.Now() + askedNs); err != nil {
				return chunk{}, Stores.Wrap(err)
			}
		default:
			break tries
		}
		stamp = 0 // it has changed
	}
	if !c.s.cfg.NoEvict {
		ch, err := c.evict(n, want, objectClasses-1, evictRounds)
		if err != nil || !ch.none() {
			return ch, err
		}
		return chunk{}, fmt.Errorf("%w: nothing on %v to evict for %d bytes", ErrNoSpace, n.MN, want.size())
	}
	return chunk{}, fmt.Errorf("%w: no chunk of %d bytes on %v", ErrNoSpace, want.size(), n.MN)
}

// free gives a chunk back, which no other client has.
func (c *Client) free(n *handle.Part, ch chunk) {
	if !ch.none() {
		c.stats.Leaked += n.Heap.Put(&c.work, uint8(ch.class), ch.off64)
	}
}
