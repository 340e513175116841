package handle

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/memory/reclaim"
	"github.com/declock/declock/memory/slab"
)

// A new backup of a memory-node number begins with zeroed memory. Clients that change something write it whole there, as to the other backups, with all that it leads to; what was there before is
// copied from the primary, under the locks that writers need.

// A NewBackup names a backup that is to come in sync.
type NewBackup struct {
	Mem    fabric.MemID
	Number uint32 // of the replica
	Epoch  uint32 // in which the number is served: a copy that was begun in another is worth nothing
}

// NewBackupOf returns the first backup of a region that is not in sync; its Number is 0 if there is none.
func NewBackupOf(port fabric.Port, r *memory.Region) (NewBackup, error) {
	b, err := r.Backups(port)
	return NewBackup{Mem: r.Memory(), Number: b.New(), Epoch: b.Epoch()}, err
}

// A CopyPosition says how far the copy of a part has got. A copy goes on there that is begun again in the same epoch.
type CopyPosition struct {
	Bytes uint64 // that have been written to the backup

	// Of a store.
	Bucket uint64 // the next
	Slot   int    // of it, and of its overflow blocks, the next whose object is to be copied

	// Of a tree.
	Begun bool // the ptr of the root has been copied
	Level uint8
	Edge  []byte // where the next node begins
	Nodes uint64 // that have been copied
}

// A Copier copies the part of a store or tree on a memory-node number to a new backup, in steps.
type Copier interface {
	// Step copies some of it, and reports whether there is nothing left to copy. If it fails the copy is to be begun anew, from the beginning.
	Step() (done bool, err error)
	// Progress returns how much has been copied, and of how much, as far as that is known.
	Progress() (done, all uint64)
	Close()
}

// A Copied is a store or tree that can be copied.
type Copied interface {
	// Copy begins to copy the part that has a root entry, or goes on at a position. It uses l, as a client would, until it is closed. ErrAnother: the entry is that of another of the name.
	Copy(l lock.Locker, e *memory.Entry, to NewBackup, at *CopyPosition) (Copier, error)
}

// CopyOptions say how a number is copied.
type CopyOptions struct {
	// BytesPerSecond bounds how fast; 0: it is not bounded.
	BytesPerSecond uint64
	// Progress is called with how many buckets and tree nodes have been copied, and of how many of the stores and trees that have been begun; nil: it is not.
	Progress func(done, all uint64)
	// Use calls f with the store or tree of a root entry, which the compute node has open as long as that lasts: some hundred milliseconds.
	Use func(e *memory.Entry, f func(x Copied) error) error
	// Dead and Creating are as in a memory.Spec: names that nobody goes on to make are not waited for.
	Dead     func() fabric.CNSet
	Creating *memory.Creating
	// Free gives back the memory of what has been dropped, and is not used any more, as FreeDropped does; nil: nobody does that when it has been held for the copy.
	Free func() error
}

// copySliceNs is for how long Use has a store or tree open at a time.
const copySliceNs = 200 * fabric.Millisecond

// CopyNumber copies what is at the primary of a memory-node number to a new backup: names, and what stores and trees have. All that may write there know of the backup. If CopyNumber returns
// nil, and the number is still served in the epoch of the backup, then the backup has all that the primary has. memory.ErrReplicated: there is something that cannot be copied.
func CopyNumber(l lock.Locker, to NewBackup, o CopyOptions) error {
	if err := lock.Renew(l, to.Mem); err != nil {
		return err
	}
	r, err := memory.Open(l.Port(), to.Mem)
	if err != nil {
		return err
	}
	path := lock.Path(l)
	// What is being made now is published when its creator is done, which may have made it without the new backup.
	if err := r.AwaitClaims(path, o.Dead, o.Creating); err != nil {
		return fmt.Errorf("copy %v: %w", to.Mem, err)
	}
	list, err := r.List(path)
	if err != nil {
		return err
	}
	for i := range list {
		switch e := &list[i]; e.Kind {
		case memory.KindLocks, memory.KindStore, memory.KindTree:
		default:
			return fmt.Errorf("%w: %v %q on %v cannot be copied to a new backup", memory.ErrReplicated, e.Kind, e.Name, to.Mem)
		}
	}
	if err := r.CopyNames(path); err != nil {
		return err
	}
	x := copying{l: l, region: r, to: to, o: o, began: l.Port().Now()}
	if err := x.zeroLocks(list); err != nil {
		return err
	}
	for i := range list {
		if list[i].Kind == memory.KindLocks {
			continue
		}
		if err := x.collection(&list[i]); err != nil {
			return err
		}
	}
	return x.dropped()
}

// zeroLocks makes the locks zero that are given some published entries, and those that have been dropped, which may be published again as they are, if their memory was something else before.
func (x *copying) zeroLocks(published []memory.Entry) error {
	path := lock.Path(x.l)
	pages, err := x.region.Pages(path)
	if err != nil {
		return err
	}
	retired, err := x.region.Retired(path)
	if err != nil {
		return err
	}
	z, err := x.region.ZeroerTo(path, x.to.Number)
	if err != nil {
		return err
	}
	for _, e := range append(retired, published...) {
		if e.Kind == memory.KindLocks && pages.UsedBefore(e.Addr.Offset(), e.Length) {
			err = errors.Join(err, z.Zero(e.Addr, e.Length))
		}
	}
	return errors.Join(err, z.Close())
}

// Copied returns the part that has a root entry, which is to be copied. ErrAnother: the entry is that of another of the name. That is so if others have dropped what this compute node has open, and made
// another: if this compute node has not seen the drop yet, it has by then.
func (h *Handle) Copied(w *slab.Worker, e *memory.Entry) (*Part, error) {
	for _, p := range h.Parts {
		if p.MN != e.Addr.MN() || p.Missing() || !h.Registered() {
			continue
		}
		if p.Entry.Beside(e) {
			return p, nil
		}
		dropped, err := p.Heap.Dropped(w)
		if err != nil {
			return nil, h.of.kind.Wrap(err)
		}
		if dropped {
			h.of.MarkDropped()
		}
		return nil, fmt.Errorf("copy %q on %v: %w", h.of.name, p.MN, ErrAnother)
	}
	return nil, fmt.Errorf("copy %q on %v: %w: it is not all there", h.of.name, e.Addr.MN(), fabric.ErrNodeDown)
}

// ZeroUnmirrored makes what is only at the primary zero at a new backup where the memory of a part was something else before: what is between the records of compute nodes and the collection's own, and
// what zero makes zero, given whether the part's own memory was.
func (p *Part) ZeroUnmirrored(l lock.Locker, to NewBackup, classes int, more func(pages *memory.Pages, own bool, zero func(a fabric.Addr, size uint64) error) error) error {
	path := lock.Path(l)
	pages, err := p.Region.Pages(path)
	if err != nil {
		return err
	}
	z, err := p.Region.ZeroerTo(path, to.Number)
	if err != nil {
		return err
	}
	own := pages.UsedBefore(p.Entry.Addr.Offset(), p.Entry.Length)
	if own {
		records, words := reclaim.Records(p.Base)
		behind := records.Add(8 * uint64(words))
		err = errors.Join(
			z.Zero(p.Base.Add(reclaim.Offset), records.Offset()-p.Base.Offset()-reclaim.Offset),
			z.Zero(behind, p.Base.Offset()+linesOffset+uint64(classes+1)*slab.LineSize-behind.Offset()))
	}
	if err == nil {
		err = more(pages, own, z.Zero)
	}
	return errors.Join(err, z.Close())
}

// A copying is a copy of a number that is under way.
type copying struct {
	l      lock.Locker
	region *memory.Region
	to     NewBackup
	o      CopyOptions
	began  fabric.Time
	bytes  uint64 // written for stores and trees that are done
	before uint64 // buckets and nodes of those
}

// collection copies a store or tree.
func (x *copying) collection(e *memory.Entry) error {
	at, copied, all := CopyPosition{}, uint64(0), uint64(0)
	another := false
	for done := false; !done; {
		err := x.o.Use(e, func(s Copied) (err error) {
			k, err := s.Copy(x.l, e, x.to, &at)
			if err != nil {
				return err
			}
			defer k.Close()
			for until := x.l.Port().Now() + copySliceNs; !done && err == nil && x.l.Port().Now() < until && x.due(&at) < until; {
				if err = x.l.Port().Pause(x.due(&at)); err == nil {
					done, err = k.Step()
				}
			}
			copied, all = k.Progress()
			return err
		})
		if err != nil {
			if gone := x.region.Published(lock.Path(x.l), e); errors.Is(gone, memory.ErrRemoved) {
				break // it has been dropped
			}
			if errors.Is(err, ErrAnother) && !another { // by now this compute node knows that what it had open has been dropped
				another = true
				continue
			}
			return err
		}
		if x.o.Progress != nil {
			x.o.Progress(x.before+copied, x.before+all)
		}
		if err := x.l.Port().Pause(x.due(&at)); err != nil {
			return err
		}
	}
	x.before, x.bytes = x.before+all, x.bytes+at.Bytes
	return nil
}

// due returns when the copy may go on.
func (x *copying) due(at *CopyPosition) fabric.Time {
	if x.o.BytesPerSecond == 0 {
		return x.began
	}
	return x.began + fabric.Time(float64(x.bytes+at.Bytes)/float64(x.o.BytesPerSecond)*float64(fabric.Second))
}

// dropped copies which compute nodes have a collection open still that has been dropped, as its entry says. Else its memory would be given back when the backup is promoted, and become something else,
// before they let it go. What they have in it is not copied: it is gone for them as soon as they look.
//
// It comes last, for a collection may be dropped while others are copied. Nobody registers with what has been dropped: so the memory is held (memory.Region.Hold) while it is written to, for what is
// written to memory that is something else by then stays there, whoever copies later. Those that have let it go meanwhile have left it to this compute node to give it back.
func (x *copying) dropped() error {
	path := lock.Path(x.l)
	list, err := x.region.Retired(path)
	if err != nil {
		return err
	}
	held := false
	for i := range list {
		e := &list[i]
		if part, _ := e.Part(); part > 0 || e.Kind != memory.KindStore && e.Kind != memory.KindTree {
			continue
		}
		err := x.region.Hold(path, e, x.o.Dead)
		if errors.Is(err, memory.ErrRemoved) {
			continue
		}
		if err == nil {
			held = true
			err = errors.Join(x.droppedOne(e), x.region.Release(path, e))
		}
		if err != nil {
			return fmt.Errorf("copy of what has been dropped: %w", err)
		}
	}
	if held && x.o.Free != nil {
		return x.o.Free()
	}
	return nil
}

func (x *copying) droppedOne(e *memory.Entry) error {
	path := lock.Path(x.l)
	if b, err := x.region.Backups(path); err != nil || b.Epoch() != x.to.Epoch {
		return cmp.Or(err, fabric.ErrStaleEpoch)
	}
	return MirrorRecords(path, x.region, e.Addr)
}
