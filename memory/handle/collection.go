package handle

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/memory/slab"
)

// A Collection is a store or tree as long as a compute node has it open. Any goroutine may use it.
type Collection struct {
	kind  *Kind
	name  string
	nodes []fabric.MemID

	creating *memory.Creating // of the compute node, or nil

	losses     atomic.Uint32 // memories that were lost; one more when it is dropped
	dropped    atomic.Bool
	turn       slab.Turn // to open it anew, or missing parts
	letting    letting
	registered atomic.Pointer[Handle] // the last handle that was registered, or that waits for its first part only
}

// Of returns the collection of a kind that has a name, on some memory nodes. creating, if not nil, is the compute node's: see memory.Spec.
func (k *Kind) Of(name string, nodes []fabric.MemID, creating *memory.Creating) *Collection {
	return &Collection{kind: k, name: name, nodes: nodes, creating: creating}
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

// takeTurn takes the turn to open the collection anew, or missing parts of it. It waits for that for a second at most.
func (c *Collection) takeTurn(port fabric.Port) (bool, error) {
	p := slab.Patience{All: fabric.Second, First: 10 * fabric.Microsecond, Last: fabric.Millisecond}
	return c.turn.Take(port, p, func() bool { return false })
}

// ErrReopening: another client of this compute node opens the collection anew.
var ErrReopening = errors.New("another client of this compute node opens it")

// Reopened returns the newest T, a store or tree, after it has been opened as often as it takes since memory was lost. of returns the handle of a T, and open opens
// the T that follows one, or makes it.
func Reopened[T any](newest *atomic.Pointer[T], of func(x *T) *Handle, l lock.Locker, open func(x *T) (*T, error)) (*T, error) {
	x := newest.Load()
	if !of(x).Lost() {
		return x, nil
	}
	c := of(x).of
	if ok, err := c.takeTurn(l.Port()); !ok {
		return nil, errors.Join(ErrReopening, err)
	}
	defer c.turn.End()
	for x = newest.Load(); of(x).Lost(); newest.Store(x) {
		if err := c.gone(); err != nil { // nothing is made in its place
			return nil, err
		}
		for _, p := range of(x).Parts {
			if err := lock.Renew(l, p.MN); err != nil && !(errors.Is(err, fabric.ErrNodeDown) && p.Missing()) {
				return nil, err
			}
		}
		next, err := openAgain(l.Port(), of(x), func() (*T, error) { return open(x) })
		if errors.Is(err, ErrAnother) { // made anew, by one that did not know this one: only who opens it by its name has it
			c.MarkDropped()
			return nil, c.gone()
		}
		if err != nil {
			return nil, err
		}
		x = next
	}
	return x, nil
}

// A collection that waits may be found in the middle of a drop, with some of its parts: for so long it is looked for again, to know whether it has been dropped.
const (
	midDropNs      = 10 * fabric.Millisecond
	midDropPauseNs = 100 * fabric.Microsecond
)

// openAgain calls open, which opens what follows a handle, again and again while parts of a collection that waits are not there any more.
func openAgain[T any](port fabric.Port, h *Handle, open func() (T, error)) (T, error) {
	for until := port.Now() + midDropNs; ; {
		x, err := open()
		if err == nil || !h.Waits() || !Absent(err) && !errors.Is(err, memory.ErrRemoved) || port.Now() > until {
			return x, err
		}
		if stop := port.Pause(port.Now() + midDropPauseNs); stop != nil {
			return x, errors.Join(err, stop)
		}
	}
}
