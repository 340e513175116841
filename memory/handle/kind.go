package handle

import (
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/memory/reclaim"
	"github.com/declock/declock/memory/slab"
)

// A Kind is what all stores have in common, or all trees.
type Kind struct {
	Package string      // begins errors
	Noun    string      // in errors: "store" or "tree"
	Entry   memory.Kind // of root entries
	Format  uint64      // of the layout that this program knows
	Classes int         // of blocks of memory (package memory/slab)
	Limit   int         // which info word of a root entry has the limit of its memory

	ErrGeometry, ErrCorrupt, ErrDropped error // of the package
}

// The memory of a part begins with what the collection itself needs, up to reclaim.Offset; then come the records of compute nodes, and here the
// lines of the classes. Format: do not change.
const linesOffset = reclaim.End

// The first info word of a root entry. Format: do not change.
//
//	 63  56 55   48 47   40 39                 0
//	+------+-------+-------+--------------------+
//	| form | nodes | which |  the collection's  |
//	+------+-------+-------+--------------------+
const (
	formatShift = 56
	nodesShift  = 48
	whichShift  = 40
)

// Head returns the first info word of the root entry of a part, which is the which-th of some. rest has 40 bits.
func (k *Kind) Head(nodes, which int, rest uint64) uint64 {
	return k.Format<<formatShift | uint64(nodes)<<nodesShift | uint64(which)<<whichShift | rest
}

// PartOf returns which part a root entry is, from 0, and of how many. ErrGeometry: this program does not know the layout.
func (k *Kind) PartOf(e *memory.Entry) (which, nodes int, err error) {
	if v := e.Info[0] >> formatShift; v != k.Format {
		return 0, 0, fmt.Errorf("%w: format %d, this program knows %d", k.ErrGeometry, v, k.Format)
	}
	which, nodes = e.Part()
	return which, nodes, nil
}

// ErrAnother: what has the name now was made on other memory nodes than the collection that a compute node has opened by it, or in another order, or is known to be another for other reasons.
var ErrAnother = errors.New("the name is that of another")

// CheckPart returns an error if a root entry is not that of the which-th part: ErrAnother, if it is that of another part.
func (k *Kind) CheckPart(e *memory.Entry, which int) error {
	got, _, err := k.PartOf(e)
	if err == nil && got != which {
		err = fmt.Errorf("%w: %v is node %d of it, not %d: %w", k.ErrGeometry, e.Addr.MN(), got, which, ErrAnother)
	}
	return err
}

// CheckNodes returns ErrAnother if what has a name has other than so many parts.
func (k *Kind) CheckNodes(name string, has, want int) error {
	if has != want {
		return fmt.Errorf("%w: %q has %d memory nodes, want %d: %w", k.ErrGeometry, name, has, want, ErrAnother)
	}
	return nil
}

// LimitOf returns the limit of the memory of a root entry's part, in bytes; 0 is none.
func (k *Kind) LimitOf(e *memory.Entry) uint64 { return e.Info[k.Limit] }

// Wrap returns an error of the packages below as the kind's package returns it.
func (k *Kind) Wrap(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, slab.ErrCorrupt):
		return fmt.Errorf("%w: %w", k.ErrCorrupt, err)
	}
	return fmt.Errorf("%s: %w", k.Package, err)
}

// Find returns the memory nodes, among some, of the collection with a name, in the order of its parts. So a collection is found when memory nodes have joined
// since it was made. nil: there is none yet, or a compute node has begun to make it on as many as are given. memory.ErrParts: not all of it is found.
func (k *Kind) Find(port fabric.Port, name string, among []fabric.MemID) ([]fabric.MemID, error) {
	return memory.Parts(port, among, name, k.Entry, k.PartOf)
}

// Lookup looks for the part with a name on a memory node. The error says with Absent that there is none. Without a region, the memory node could not be reached.
func (k *Kind) Lookup(port fabric.Port, name string, mn fabric.MemID) (r *memory.Region, e memory.Entry, err error) {
	if r, err = memory.Reach(port, mn); err != nil {
		return nil, e, err
	}
	e, err = r.Lookup(port, name, k.Entry)
	return r, e, err
}

// Absent reports whether an error says that there is no such root entry, or one that is being made.
func Absent(err error) bool {
	return errors.Is(err, memory.ErrNotFound) || errors.Is(err, memory.ErrHalfCreated)
}

// Drop removes the collection with a name: the name is free at once. Compute nodes that have it open return ErrDropped when their ReclaimStep has found the drop; until then they
// work on. The memory is given back when all of them have let it go, closed it, or crashed: by Drop, or by the last of them (LetGo, Leave). among are the memory
// nodes of the cluster; view returns the live compute nodes. A Drop that was cut short is to be done again, unless FreeDropped has done it: then it is memory.ErrNotFound,
// for nothing is left that says that there was something, and the caller, who knows that its Drop before may have been done in part, takes that for done.
func (k *Kind) Drop(port fabric.Port, name string, among []fabric.MemID, view func() fabric.View) error {
	if err := memory.Drop(port, among, name, k.Entry); err != nil {
		return k.Wrap(err)
	}
	return k.Wrap(FreeDropped(port, among, view))
}

// FreeDropped gives back the memory of all dropped collections, of whatever kind, that no compute node has open any more: after one has crashed that had, say. among are the memory nodes of the
// cluster: what is on none of them is gone.
func FreeDropped(port fabric.Port, among []fabric.MemID, view func() fabric.View) error {
	return freeRetired(port, among, func(*memory.Entry) bool { return true }, view)
}

func freeRetired(port fabric.Port, among []fabric.MemID, whole func(first *memory.Entry) bool, view func() fabric.View) error {
	return memory.FreeRetired(port, among, whole,
		func(first *memory.Entry) (bool, error) { return reclaim.InUse(port, first.Addr, view) },
		func(cn fabric.CNID) bool { return view == nil || view().Live.Has(cn) })
}

// MarkCrashed notes, for a compute node that has just joined the cluster, that the one that had its number before has crashed, if that had the collection of a
// root entry open, be it published or dropped. It comes before the collection is opened.
func (k *Kind) MarkCrashed(port fabric.Port, r *memory.Region, e *memory.Entry) error {
	if e.Kind != k.Entry {
		return nil
	}
	if e.Holder() == port.ID().CN() {
		if err := r.Release(port, e); err != nil {
			return err
		}
	}
	if which, _, err := k.PartOf(e); err != nil || which != 0 {
		return nil // the first part has the records
	}
	err := reclaim.MarkCrashed(port, e.Addr, func() error { return r.Kept(port, e) },
		func() (reclaim.Put, error) { return r.Foretell(port) })
	if errors.Is(err, memory.ErrRemoved) {
		err = nil
	}
	return err
}
