package handle

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// A Collection is a store or tree as long as a compute node has it open. Any goroutine may use it.
type Collection struct {
	kind  *Kind
	name  string
	nodes []fabric.MemID

	losses  atomic.Uint32 // memories that were lost; one more when it is dropped
	dropped atomic.Bool
	turn    Turn // to open it anew, or missing parts
	letting letting
}

// Of returns the collection of a kind that has a name, on some memory nodes.
func (k *Kind) Of(name string, nodes []fabric.MemID) *Collection {
	return &Collection{kind: k, name: name, nodes: nodes}
}

// MemoryLost notes that a memory node has lost its memory, if that is one of the collection's.
func (c *Collection) MemoryLost(mn fabric.MemID) {
	for _, m := range c.nodes {
		if m == mn {
			c.losses.Add(1)
		}
	}
}

// Losses returns how many memories were lost since this compute node has opened the collection first.
func (c *Collection) Losses() uint32 { return c.losses.Load() }

// Dropped reports whether this compute node knows that the collection has been dropped.
func (c *Collection) Dropped() bool { return c.dropped.Load() }

// MarkDropped notes that the collection has been dropped: its clients on this compute node return ErrDropped from now on, as when ReclaimStep has found the drop. The client
// that has dropped it calls this.
func (c *Collection) MarkDropped() {
	if !c.dropped.Swap(true) {
		c.losses.Add(1) // operations look
	}
}

// gone returns the error of a collection that has been dropped.
func (c *Collection) gone() error {
	if !c.Dropped() {
		return nil
	}
	return fmt.Errorf("%w: %s %q: open it anew to make another", c.kind.ErrDropped, c.kind.Noun, c.name)
}

// ErrReopening: another client of this compute node opens the collection anew.
var ErrReopening = errors.New("another client of this compute node opens it")

// Reopened returns the newest T, a store or tree with its Handle, after it has been opened as often as it takes. stale reports whether a T is not enough; with look
// it may ask memory nodes. mayMiss reports whether the memory node of a part may be down. open opens the T that follows one, or makes it.
func Reopened[T any](h *Handle, newest *atomic.Pointer[T], l lock.Locker, stale func(x *T, look bool) bool, mayMiss func(x *T, part int) bool, open func(x *T) (*T, error)) (*T, error) {
	x, c := newest.Load(), h.of
	if !stale(x, false) {
		return x, nil
	}
	if ok, err := c.turn.Take(l.Port()); !ok {
		return nil, errors.Join(ErrReopening, err)
	}
	defer c.turn.End()
	for x = newest.Load(); stale(x, true); newest.Store(x) {
		if err := c.gone(); err != nil { // nothing is made in its place
			return nil, err
		}
		for i, mn := range c.nodes {
			if err := lock.Renew(l, mn); err != nil && !(errors.Is(err, fabric.ErrNodeDown) && mayMiss(x, i)) {
				return nil, err
			}
		}
		next, err := open(x)
		if err != nil {
			return nil, err
		}
		x = next
	}
	return x, nil
}
