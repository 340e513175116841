package handle

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/memory/reclaim"
	"github.com/declock/declock/memory/slab"
)

const unit = 64 // blocks of memory begin at multiples of it

// Unseen is the Seen of a handle that is stale from the beginning.
const Unseen = ^uint32(0)

// A Part is the memory of a collection on one memory node.
type Part struct {
	MN     fabric.MemID
	Index  int // which of the parts
	Region *memory.Region
	Entry  memory.Entry // in the root directory
	Base   fabric.Addr  // of the part's header
	Zero   fabric.Addr  // offset 0 of the region
	First  uint64       // offset of what the region gives out
	Limit  uint64       // end of what can be used, bytes
	Heap   *slab.Heap

	there atomic.Bool // it has been opened; until then only MN and Index are known
}

// Missing reports whether the part was on a memory node that was down when it was to be opened, and has not been opened since.
func (p *Part) Missing() bool { return !p.there.Load() }

// At returns an address that is given in units of 64 bytes.
func (p *Part) At(off64 uint64) fabric.Addr { return p.Zero.Add(off64 * unit) }

// Has reports whether so many bytes from an offset on are in memory that the region gives out.
func (p *Part) Has(from, size uint64) bool { return from >= p.First && from+size <= p.Limit }

// Own reports whether any of so many bytes from an offset on is in the header of the part.
func (p *Part) Own(from, size uint64) bool {
	own := p.Entry.Addr.Offset()
	return from < own+p.Entry.Length && from+size > own
}

// A Handle is a collection as a compute node has opened it once.
type Handle struct {
	Parts  []*Part
	Member *reclaim.Member // the compute node's registration
	Seen   uint32          // losses when it was opened

	// Survivors: the first part was made anew beside others that had outlived it, or will be. A compute node that has not noticed the loss has blocks of those, and is
	// not registered where the first part is now. (It is set before the first part is there.)
	Survivors bool

	of        *Collection
	forgotten forgotten
	current   atomic.Uint32 // Seen when all parts are there, and Unseen until then
	walked    walked
	opened    bool // clients may have it: parts that come now are used by others at once
}

// Init makes h a handle of which all parts are missing.
func (h *Handle) Init(of *Collection) {
	h.Parts, h.Member, h.Seen, h.of = make([]*Part, len(of.nodes)), new(reclaim.Member), of.Losses(), of
	h.current.Store(Unseen)
	for i := range h.Parts {
		h.Parts[i] = &Part{MN: of.nodes[i], Index: i}
	}
}

// Whole reports whether no part is missing.
func (h *Handle) Whole() bool { return h.current.Load() != Unseen }

// Waits reports whether the handle has nothing but the memory nodes of its parts: it is to be opened anew, and nothing of it is lost then.
func (h *Handle) Waits() bool { return h.Seen == Unseen }

// UpToDate reports whether no part is missing, and no memory was lost since the handle was opened, nor the collection dropped.
func (h *Handle) UpToDate() bool { return h.current.Load() == h.of.losses.Load() }

// Lost reports whether memory was lost since the handle was opened, or the collection dropped.
func (h *Handle) Lost() bool { return h.Seen != h.of.losses.Load() }

// CountLoss notes that memory has been lost, unless that is known: by one step, for what was opened after this loss has not lost any.
func (h *Handle) CountLoss() { h.of.losses.CompareAndSwap(h.Seen, h.Seen+1) }

// Gone returns ErrDropped if this compute node knows that the collection has been dropped.
func (h *Handle) Gone() error { return h.of.gone() }

// Registered reports whether the first part is there. Only then may this compute node change anything: others know of it.
func (h *Handle) Registered() bool { return !h.Parts[0].Missing() }

// End returns the end of what can be used of a region: offsets in units of 64 bytes have so many bits.
func End(r *memory.Region, bits int) uint64 { return min(r.Size(), 1<<bits*unit) }

// Adopt makes a root entry that of the i-th part: the part is there from then on. cfg says how its memory is divided; what follows from the part is filled in.
// If clients have the handle and this is the first part, the compute node is registered, over port: a Port that also reaches memory nodes that have restarted since the
// parts there were opened (lock.Path).
func (h *Handle) Adopt(port fabric.Port, i int, r *memory.Region, e memory.Entry, end uint64, cfg slab.Config) error {
	if e.Addr.MN() != r.Memory() || e.Addr.Offset()+e.Length > r.Size() {
		return fmt.Errorf("%w: %d bytes at %v", h.of.kind.ErrCorrupt, e.Length, e.Addr)
	}
	p := h.Parts[i]
	p.Region, p.Entry, p.Base, p.Zero, p.First, p.Limit = r, e, e.Addr, r.At(0), r.HeapOffset(), end
	cfg.Region, cfg.Entry, cfg.Part, cfg.Lines, cfg.Classes = r, &p.Entry, i, p.Base.Add(linesOffset), h.of.kind.Classes
	cfg.End, cfg.Reserve = end, r.Reserve()
	p.Heap = slab.New(cfg)
	if h.opened && i == 0 {
		if err := h.join(port); err != nil {
			p.Region = nil
			return err
		}
	}
	p.there.Store(true)
	if !slices.ContainsFunc(h.Parts, (*Part).Missing) {
		h.current.Store(h.Seen)
	}
	return nil
}

// Inherit takes over what a handle of before, if not nil, has of the i-th part, if both are the same memory.
func (h *Handle) Inherit(before *Handle, i int) {
	if before == nil || h.Parts[i].Missing() || before.Parts[i].Missing() {
		return
	}
	if p, q := h.Parts[i], before.Parts[i]; p.Base == q.Base && p.Region.UUID() == q.Region.UUID() {
		h.Parts[i] = q
	}
}

// Register registers the compute node with a collection of which parts have been opened. Without the first part there is no registration until that comes (Adopt). If the
// handle has inherited the first part, the registration is that of before: clients in the middle of an operation have blocks in hand that it knows of.
func (h *Handle) Register(port fabric.Port, before *Handle) error {
	h.opened = true
	kept := before != nil && before.Parts[0] == h.Parts[0]
	if kept {
		h.Member = before.Member
	}
	register := h.join
	if kept || !h.Registered() {
		register = h.Published
	}
	err := register(port)
	if err != nil {
		return h.of.kind.Wrap(fmt.Errorf("open %q: %w", h.of.name, err))
	}
	h.of.letting.add(h.Member)
	h.of.registered.Store(h)
	return nil
}

// join registers the compute node in the first part. If it fails the compute node is not registered, or will not be (memory.Creating): others would wait for it, and leave to it what it does not do.
func (h *Handle) join(port fabric.Port) error {
	first := h.Parts[0]
	err := h.Member.Join(port, first.Base, func() error { return first.Region.Published(port, &first.Entry) })
	if errors.Is(err, memory.ErrRemoved) {
		return err // nothing has been changed
	}
	if err == nil {
		err = h.Published(port)
	}
	if err == nil {
		err = MirrorRecords(port, first.Region, first.Base)
	}
	if err != nil {
		err = errors.Join(err, h.retract(port))
	}
	return err
}

// retract undoes a registration that has failed, now or later.
func (h *Handle) retract(port fabric.Port) error {
	r, e, m := h.Parts[0].Region, h.Parts[0].Entry, h.Member.Undoing()
	return h.of.creating.Undo(port, r, func(port fabric.Port) error {
		err := m.Retract(port.Do, func() error { return r.Kept(port, &e) }, func() (reclaim.Put, error) { return r.Foretell(port) })
		if errors.Is(err, memory.ErrRemoved) { // the memory may be something else: the backups keep what they have
			err = m.Retract(port.Do, nil, nil)
		}
		if err == nil && errors.Is(r.Published(port, &e), memory.ErrRemoved) {
			_ = freeRetired(port, h.of.nodes, e.Beside, nil) // the drop has found the registration, perhaps; if it fails, the next does it
		}
		return err
	})
}

// MirrorRecords makes the records of the compute nodes at the backups of a first part what they are at the primary, before the compute node that has opened its own takes anything. Something keeps
// the memory meanwhile: that record.
func MirrorRecords(port fabric.Port, r *memory.Region, base fabric.Addr) error {
	if !r.Replicated() {
		return nil
	}
	first, words := reclaim.Records(base)
	return r.LevelBut(port, first, words, reclaim.Ahead)
}

// endRegistration closes the record of the compute node, by Member.Leave or Member.LetGo: at the backups first, for the memory may be something else when it is closed at the primary.
func (h *Handle) endRegistration(l lock.Locker, end func(do func([]fabric.Op) error, foretell reclaim.Foretell) error) error {
	return end(
		func(ops []fabric.Op) error { return lock.Do(l, ops) },
		func() (reclaim.Put, error) {
			return h.Parts[0].Region.Foretell(lock.Path(l))
		},
	)
}

// Published returns an error if a part that has been opened, or is just being opened (join), was removed since. A drop retires the entries first, and looks at the registrations then.
func (h *Handle) Published(port fabric.Port) error {
	for _, p := range h.Parts {
		if p.Region == nil {
			continue
		}
		if err := p.Region.Published(port, &p.Entry); err != nil {
			return err
		}
	}
	return nil
}

// answer gives back what this compute node has in its free lists, if another has asked for that, and looks whether the collection has been dropped. The user of w has no
// operation under way.
func (h *Handle) answer(w *slab.Worker, u *reclaim.User) (err error) {
	u.Enter()
	defer u.Exit()
	for _, p := range h.Parts {
		if p.Missing() {
			continue
		}
		dropped, perr := false, error(nil)
		if h.Registered() {
			dropped, perr = p.Heap.Answer(w)
		} else if perr = p.Region.Published(w.Path(), &p.Entry); errors.Is(perr, memory.ErrRemoved) {
			dropped, perr = true, nil // it has nothing to give back, and nothing keeps the entry from being that of something else
		}
		err = errors.Join(err, perr)
		if dropped {
			h.of.MarkDropped()
		}
	}
	return h.of.kind.Wrap(err)
}

// Removed returns ErrDropped if err, of taking memory, says that the root entry of a part is gone, since the collection has been dropped, which
// this compute node has not seen yet. It looks at the entries of some parts; if none has been dropped, the error stays memory.ErrRemoved.
func (h *Handle) Removed(w *slab.Worker, err error, parts ...*Part) error {
	if !errors.Is(err, memory.ErrRemoved) {
		return h.of.kind.Wrap(err)
	}
	for _, p := range parts {
		if p.Missing() {
			continue
		}
		dropped, derr := p.Heap.Dropped(w)
		if derr != nil {
			return h.of.kind.Wrap(fmt.Errorf("%w, and before: %v", derr, err))
		}
		if dropped {
			h.of.MarkDropped()
			return h.Gone()
		}
	}
	return h.of.kind.Wrap(err)
}

// Damaged returns ErrDropped if err says that what was read is corrupt, and the collection has been dropped: a backup that was added then has nothing of what was in it, and may serve.
func (h *Handle) Damaged(w *slab.Worker, err error) error {
	if err == nil || !errors.Is(err, h.of.kind.ErrCorrupt) {
		return err
	}
	for _, p := range h.Parts {
		if p.Missing() {
			continue
		}
		if dropped, derr := p.Heap.Dropped(w); derr != nil {
			return fmt.Errorf("%w, and then: %v", err, derr)
		} else if dropped {
			h.of.MarkDropped()
			return h.Gone()
		}
	}
	return err
}

// giveLists gives back what this compute node has in its free lists.
func (h *Handle) giveLists(w *slab.Worker) error {
	for _, p := range h.Parts {
		if p.Missing() {
			continue
		}
		if err := p.Heap.GiveLists(w); err != nil {
			return h.of.kind.Wrap(err)
		}
	}
	return nil
}

// LeaveUnused ends the registration of a collection that no client of this compute node has used: its free lists are empty.
func (h *Handle) LeaveUnused(l lock.Locker) error {
	if !h.Registered() {
		return nil
	}
	var w slab.Worker
	w.Open(l.Port(), h.Member, func(ops []fabric.Op) error { return lock.Do(l, ops) })
	defer w.Close()
	return h.leave(&w, l, h.of.Dropped())
}

// leave ends the registration, when the free lists have been given back. dropped: this compute node knows that the collection has been dropped. Else the registration stays if there are blocks for which
// others look when this compute node has left the cluster: those that are lost, or forgotten.
func (h *Handle) leave(w *slab.Worker, l lock.Locker, dropped bool) (err error) {
	k := h.of.kind
	if !dropped && (h.forgotten.count(h.Member) > 0 || h.Member.Found().Lost > 0) {
		if dropped, err = h.dropped(w); err != nil || !dropped {
			return err
		}
	}
	if err = h.awaitLeft(l); err != nil {
		return err
	}
	if err = h.settle(l); err != nil {
		return err
	}
	end := h.Member.Leave
	if dropped {
		end = h.Member.LetGo
	}
	if err = h.endRegistration(l, end); err != nil {
		return k.Wrap(err)
	}
	if !dropped {
		// A drop says so before it looks at the registrations: if it has found this one, that is seen here.
		dropped, err = h.dropped(w)
	}
	if err != nil || !dropped {
		return err
	}
	return k.Wrap(h.freeDropped(l, nil, &h.Parts[0].Entry))
}

// dropped asks whether the collection has been dropped, and notes it.
func (h *Handle) dropped(w *slab.Worker) (bool, error) {
	dropped, err := h.Parts[0].Heap.Dropped(w)
	if dropped {
		h.of.MarkDropped()
	}
	return dropped, h.of.kind.Wrap(err)
}

// settle has a chain executed on the memory node of each part. What this compute node has posted there before, with whatever outcome, is over then
// (fabric.ErrUnknownOutcome), and the memory may be another's.
func (h *Handle) settle(l lock.Locker) error {
	for _, p := range h.Parts {
		if p.Missing() {
			continue // this compute node has had nothing there
		}
		ops := [1]fabric.Op{fabric.Load(p.Base)}
		if err := lock.Do(l, ops[:]); err != nil {
			return h.of.kind.Wrap(fmt.Errorf("leave %q: %w", h.of.name, err))
		}
	}
	return nil
}
