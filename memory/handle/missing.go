package handle

import (
	"errors"
	"fmt"
	"sync"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/memory/reclaim"
)

// A Found is what a memory node has of a collection.
type Found struct {
	Region *memory.Region // nil: the memory node is down
	Entry  *memory.Entry  // nil: it has no part, or one that is being made
	Down   error          // why there is no region
}

// Survey looks for all parts of the collection on its memory nodes, whatever the handle has of them.
func (h *Handle) Survey(port fabric.Port) ([]Found, error) {
	list := make([]Found, len(h.Parts))
	for i, p := range h.Parts {
		r, e, err := h.of.kind.Lookup(port, h.of.name, p.MN)
		switch {
		case r == nil && errors.Is(err, fabric.ErrNodeDown):
			list[i].Down = h.opening(p, err)
		case err == nil:
			list[i].Entry = &e
		case !Absent(err):
			return nil, h.opening(p, err)
		}
		list[i].Region = r
	}
	return list, nil
}

func (h *Handle) opening(p *Part, err error) error {
	return h.of.kind.Wrap(fmt.Errorf("open %q on %v: %w", h.of.name, p.MN, err))
}

// An Opener opens a missing part of which the memory node is up, by Adopt. found is what each memory node has that is up; the entries are those of missing parts only.
// Without an entry the memory node has no part.
type Opener func(i int, found []Found) error

// takeIn opens all missing parts of which the memory nodes are up, for an operation that needs the i-th: see Session.TakeIn.
func (h *Handle) takeIn(l lock.Locker, i int, open Opener) error {
	p := h.Parts[i]
	taken, err := h.of.takeTurn(l.Port())
	if taken {
		err = h.openMissing(l, i, open)
		h.of.turn.End()
	}
	if !p.Missing() {
		return nil
	}
	if gone := h.Gone(); gone != nil {
		return gone
	}
	switch {
	case err == nil:
		return h.Down(p)
	case errors.Is(err, fabric.ErrNodeDown): // it says that already, and of which memory node
		k := h.of.kind
		return fmt.Errorf("%s: a part of %s %q is needed: %w", k.Package, k.Noun, h.of.name, err)
	}
	return fmt.Errorf("%w: %w", h.Down(p), err)
}

// takeInBeside is takeIn for a client that needs no missing part. It does nothing while another client does.
func (h *Handle) takeInBeside(l lock.Locker, open Opener) {
	if !h.Whole() && h.of.turn.Try() {
		_ = h.openMissing(l, 0, open) // an operation that needs a part returns why it is missing
		h.of.turn.End()
	}
	if h.Whole() {
		h.forgotten.seek(h.Member)
	}
}

// forgotten counts blocks on missing parts that have become free, and are in no list: until a round has found them, which is asked for when no part is missing.
type forgotten struct {
	mu    sync.Mutex // never held across a fabric call
	n     uint64
	asked uint64 // of these, had been forgotten when a round was asked for
	wish  uint64 // the last
}

func (f *forgotten) Add(n uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n += n
}

// seek asks for a round if one is needed, and none has been asked for.
func (f *forgotten) seek(m *reclaim.Member) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.found(m); f.n > 0 && f.asked == 0 {
		f.asked, f.wish = f.n, m.Force()
	}
}

// found takes off what a round has found that was asked for.
func (f *forgotten) found(m *reclaim.Member) {
	if f.asked > 0 && m.Granted(f.wish) {
		f.n, f.asked = f.n-f.asked, 0
	}
}

// count returns how many there are.
func (f *forgotten) count(m *reclaim.Member) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.found(m)
	return f.n
}

// Forget gives up a block on a missing part, to which nothing leads any more. It is found when the part is there.
func (h *Handle) Forget(part int, off64 uint64) {
	h.Member.Touch(part, off64)
	h.forgotten.Add(1)
}

// Down is the error of an operation that needs a missing part.
func (h *Handle) Down(p *Part) error {
	k := h.of.kind
	return fmt.Errorf("%s: %w: memory node %v, which has a part of %s %q that is needed", k.Package, fabric.ErrNodeDown, p.MN, k.Noun, h.of.name)
}

// openMissing opens all missing parts of which the memory nodes are up, and returns why the i-th stays missing. The caller has the turn.
func (h *Handle) openMissing(l lock.Locker, i int, open Opener) error {
	if h.Lost() {
		return nil // it is opened anew
	}
	errs := make([]error, len(h.Parts))
	found := make([]Found, len(h.Parts))
	for j, p := range h.Parts {
		if !p.Missing() {
			found[j].Region = p.Region
			continue
		}
		if errs[j] = lock.Renew(l, p.MN); errs[j] == nil {
			found[j].Region, errs[j] = memory.Reach(l.Port(), p.MN)
		}
	}
	if h.Lost() {
		return nil // as Renew has just found out
	}
	for j, f := range found {
		if f.Region == nil || !h.Parts[j].Missing() {
			continue
		}
		e, err := f.Region.Lookup(l.Port(), h.of.name, h.of.kind.Entry)
		if err == nil {
			found[j].Entry = &e
		}
		if err == nil || Absent(err) {
			err = open(j, found)
		}
		errs[j] = err
	}
	return errs[i]
}

// Withdraw takes away a part that this compute node has just made, of a collection that has been dropped meanwhile. A drop that has found its claim, or nothing, does not do that: it may have given back all
// else by now, and then nothing tells that the part is one of what has been dropped. A compute node that crashes before it has looked leaves the part, empty, under its name.
func (h *Handle) Withdraw(l lock.Locker, r *memory.Region, made *memory.Entry) error {
	if err := r.Retire(lock.Path(l), made); err != nil && !errors.Is(err, memory.ErrRemoved) {
		return err
	}
	err, port := h.freeDropped(l, nil, made), l.Port()
	if part, _ := made.Part(); err == nil && part > 0 {
		err = memory.FreeAlone(port, h.of.nodes, made)
	}
	return err
}
