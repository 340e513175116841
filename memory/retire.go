package memory

import (
	"errors"
	"fmt"
	"slices"

	"github.com/declock/declock/fabric"
)

// Retire takes the name of an entry away, and leaves its memory what it is: there may be compute nodes that use it. When there is none any more,
// Free gives the memory back. ErrRemoved: the entry is not there any more.
func (r *Region) Retire(port fabric.Port, e *Entry) error {
	d := r.directory(port)
	defer d.free()
	if err := d.read(); err != nil {
		return err
	}
	st := d.state(e.slot)
	if st.state() == claimPublished && st.gen() == e.gen {
		ok, err := d.cas(e.slot, st, st.kept())
		if err != nil || ok {
			return err
		}
	}
	return fmt.Errorf("%w: %q on %v", ErrRemoved, e.Name, r.mn)
}

// levelRetired makes the states of retired entries at the backups what they are at the primary: one that has the name still would bring it back.
func (r *Region) levelRetired(port fabric.Port) error {
	d := r.directory(port)
	defer d.free()
	if err := d.read(); err != nil {
		return err
	}
	for i := range d.r.plan.entries {
		if d.state(i).state() == claimKept {
			if err := d.level(i); err != nil {
				return err
			}
		}
	}
	return nil
}

// Retired returns the entries that have been retired and have memory still.
func (r *Region) Retired(port fabric.Port) ([]Entry, error) {
	list, _, err := r.retired(port, nil)
	return list, err
}

// retired is Retired, and returns the entries that are published, too. It calls cut, if that is not nil, for entries whose memory somebody was to give back.
func (r *Region) retired(port fabric.Port, cut func(d *directory, i int, st claimWord) error) (list, published []Entry, err error) {
	d := r.directory(port)
	defer d.free()
	if err := d.read(); err != nil {
		return nil, nil, err
	}
	for i := range d.r.plan.entries {
		st := d.state(i)
		if st.state() == claimDropping && cut != nil {
			if err := cut(&d, i, st); err != nil {
				return nil, nil, err
			}
		}
		if st.state() != claimKept && st.state() != claimPublished {
			continue
		}
		if e, ok := d.retired(i); ok && st.state() == claimKept {
			list = append(list, e)
		} else if ok {
			published = append(published, e)
		}
	}
	return list, published, nil
}

// retired decodes the retired entry i. The rest of a tree that is gone has another generation than its bytes, and stays.
func (d *directory) retired(i int) (Entry, bool) {
	e, err := decodeEntry(d.buf[i*entrySize:][:entrySize])
	e.slot, e.Addr, e.held = i, e.Addr.In(fabric.Generation(d.r.Generation())), d.state(i).hash()
	return e, err == nil
}

// ErrHeld: the memory of a retired entry is not given back now, since a compute node holds it.
var ErrHeld = errors.New("memory: memory of what has been dropped is held")

// Hold keeps the memory of a retired entry from being given back while this compute node lives, until Release: also by those that have looked before whether anybody uses it. It is held at all
// backups, too. dead, if not nil, returns which compute nodes are dead and fenced now: they hold nothing. ErrRemoved: it has been given back. One goroutine of a compute node holds memory.
func (r *Region) Hold(port fabric.Port, e *Entry, dead func() fabric.CNSet) error {
	d := directory{r: r, port: port}
	for {
		before, err := r.Backups(port)
		if err != nil {
			return err
		}
		st, err := d.load(e.slot)
		if err != nil {
			return fmt.Errorf("memory: root entry of %q on %v: %w", e.Name, r.mn, err)
		}
		switch by := holderOf(st.hash()); {
		case st.state() != claimKept || st.gen() != e.gen:
			return fmt.Errorf("%w: %q on %v", ErrRemoved, e.Name, r.mn)
		case by != 0 && by != port.ID().CN() && (dead == nil || !dead().Has(by)):
			return fmt.Errorf("%w: %q on %v, by %v", ErrHeld, e.Name, r.mn, by)
		}
		ok, err := d.cas(e.slot, st, st.held(port.ID().CN()))
		if err != nil {
			return err
		}
		if now, err := r.Backups(port); err != nil || ok && now.Epoch() == before.Epoch() {
			return err
		}
	}
}

// Release ends a Hold.
func (r *Region) Release(port fabric.Port, e *Entry) error {
	d := directory{r: r, port: port}
	for {
		st, err := d.load(e.slot)
		if err != nil {
			return fmt.Errorf("memory: root entry of %q on %v: %w", e.Name, r.mn, err)
		}
		if st.state() != claimKept || st.gen() != e.gen || holderOf(st.hash()) != port.ID().CN() {
			return nil
		}
		if ok, err := d.cas(e.slot, st, st.held(0)); err != nil || ok {
			return err
		}
	}
}

// Holder returns which compute node held the memory of a retired entry when that was read, 0: none.
func (e *Entry) Holder() fabric.CNID { return holderOf(e.held) }

// Free gives the memory of a retired entry back, which is not used any more. ErrHeld: another compute node holds it since the entry was read. The entry is not retired any more before any of it is something else (Kept).
func (r *Region) Free(port fabric.Port, e *Entry) error {
	d := r.directory(port)
	defer d.free()
	if err := d.read(); err != nil {
		return err
	}
	st := d.state(e.slot)
	if st.state() != claimKept || st.gen() != e.gen {
		return nil
	}
	if st.hash() != e.held {
		return fmt.Errorf("%w: %q on %v", ErrHeld, e.Name, r.mn)
	}
	ok, err := d.cas(e.slot, st, st.dropping())
	if err == nil && ok {
		err = d.clear(e.slot, st.dropping())
	}
	return err
}

// Published returns ErrRemoved if an entry is not there any more.
func (r *Region) Published(port fabric.Port, e *Entry) error {
	c := changer{r, port}
	return c.allowed(&taking{entry: e})
}

// Kept returns ErrRemoved if the memory of an entry may be something else by now: the entry is neither published nor retired.
func (r *Region) Kept(port fabric.Port, e *Entry) error {
	ops := [1]fabric.Op{fabric.Load(r.StateOf(e))}
	if err := port.Do(ops[:]); err != nil {
		return fmt.Errorf("memory: root entry of %q on %v: %w", e.Name, r.mn, err)
	}
	st := claimWord(ops[0].Old)
	if st.gen() != e.gen || st.state() != claimPublished && st.state() != claimKept {
		return fmt.Errorf("%w: %q on %v", ErrRemoved, e.Name, r.mn)
	}
	return nil
}

// Part returns which part of how many an entry of a store or tree is: both have that at the same place.
func (e *Entry) Part() (i, n int) { return int(e.Info[0] >> 40 & 0xff), int(e.Info[0] >> 48 & 0xff) }

// StateOf is where the state of an entry is, which Entry.Dropped takes.
func (r *Region) StateOf(e *Entry) fabric.Addr {
	return r.At(DirectoryOffset + uint64(e.slot)*entrySize)
}

// Dropped reports whether the state of an entry says that it has been retired. It says so as long as something keeps the memory of the entry, as the registration of a compute node with a store or tree
// does: so those that have it open find out.
func (e *Entry) Dropped(state uint64) bool {
	st := claimWord(state)
	return st.gen() == e.gen && (st.state() == claimKept || st.state() == claimDropping)
}

// Drop retires all parts of what has a name, on some memory nodes. It writes nothing to their memory, which may be something else by then: another may have dropped it, and the memory been given back,
// since Drop has looked it up. Those that have it open find out by the states of the parts (Entry.Dropped). Of stores and trees it retires only what is beside the first that it finds: another of the name may have been made when FreeRetired has done the rest. ErrNotFound:
// there is no such thing.
func Drop(port fabric.Port, among []fabric.MemID, name string, kind Kind) error {
	var first *Entry
	for _, mn := range among {
		r, err := Open(port, mn)
		if err != nil {
			return err
		}
		e, err := r.Lookup(port, name, kind)
		if errors.Is(err, ErrNotFound) {
			if err := r.levelRetired(port); err != nil { // a Drop before may have been cut short
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		if first == nil {
			first = &e
		} else if kind.parted() && !e.Beside(first) {
			continue
		}
		if err := r.Retire(port, &e); err != nil && !errors.Is(err, ErrRemoved) {
			return err
		}
	}
	if first == nil {
		return fmt.Errorf("%w: %v %q", ErrNotFound, kind, name)
	}
	return nil
}

// FreeRetired gives the memory of retired stores and trees back that no compute node uses, or holds: inUse tells that from their first part, live which compute nodes live. The other parts go first, for
// without the first no client knows that they are not used. If some are not found, the first stays, unless whole says of it that all of its parts are on these memory nodes, or gone.
// What has parts that are retired, and others that are not, is being dropped, or a compute node has made the others meanwhile, which did not know: they are retired, too.
func FreeRetired(port fabric.Port, among []fabric.MemID, whole func(first *Entry) bool, inUse func(first *Entry) (bool, error), live func(fabric.CNID) bool) error {
	all, published, err := partsOn(port, among)
	if err != nil {
		return err
	}
	if some, err := retireBeside(port, all, published); err != nil {
		return err
	} else if some {
		if all, published, err = partsOn(port, among); err != nil {
			return err
		}
	}
	for _, x := range all {
		i, n := x.e.Part()
		if i != 0 || !x.e.Kind.parted() || slices.ContainsFunc(published, func(y retiredPart) bool { return y.e.Beside(&x.e) }) {
			continue
		}
		parts := []retiredPart{}
		for _, y := range all {
			if j, m := y.e.Part(); j > 0 && m == n && y.e.Name == x.e.Name && y.e.Beside(&x.e) {
				parts = append(parts, y)
			}
		}
		if len(parts) < n-1 && !whole(&x.e) {
			continue
		}
		if used, err := inUse(&x.e); err != nil || used {
			if err != nil {
				return err
			}
			continue
		}
		if err := freeParts(port, append(parts, x), live); err != nil {
			return err
		}
	}
	return nil
}

// A retiredPart is a retired entry of a region, or one that may have to be retired.
type retiredPart struct {
	r *Region
	e Entry
}

// partsOn returns the retired entries on some memory nodes, and those that are published.
func partsOn(port fabric.Port, among []fabric.MemID) (all, published []retiredPart, err error) {
	for _, mn := range among {
		r, err := Open(port, mn)
		if err != nil {
			return nil, nil, err
		}
		list, there, err := r.retired(port, (*directory).clear)
		if err != nil {
			return nil, nil, err
		}
		for _, e := range list {
			all = append(all, retiredPart{r, e})
		}
		for _, e := range there {
			published = append(published, retiredPart{r, e})
		}
	}
	return all, published, nil
}

// retireBeside retires what is published beside what has been retired, and reports whether there was some.
func retireBeside(port fabric.Port, all, published []retiredPart) (some bool, err error) {
	for _, y := range published {
		if !y.e.Kind.parted() || !slices.ContainsFunc(all, func(x retiredPart) bool { return x.e.Beside(&y.e) }) {
			continue
		}
		if err := y.r.Retire(port, &y.e); err != nil && !errors.Is(err, ErrRemoved) {
			return some, err
		}
		some = true
	}
	return some, nil
}

// FreeAlone gives the memory of a retired part back that is not the first, if nothing else is there of what it is a part of: then nobody has it open, for all that have are registered in the first. Whether the
// others are gone because their memory was lost, the caller knows: those that have not heard of that may use what is left.
func FreeAlone(port fabric.Port, among []fabric.MemID, e *Entry) error {
	all, published, err := partsOn(port, among)
	if err != nil || slices.ContainsFunc(published, func(y retiredPart) bool { return y.e.Beside(e) }) {
		return err
	}
	var mine []retiredPart
	for _, y := range all {
		if y.e.Beside(e) {
			mine = append(mine, y)
		}
	}
	if len(mine) != 1 || mine[0].e.Addr != e.Addr || mine[0].e.Holder() != 0 {
		return nil
	}
	if err = mine[0].r.Free(port, &mine[0].e); errors.Is(err, ErrHeld) {
		err = nil // its holder sees to it
	}
	return err
}

// parted reports whether what is of a kind has parts, which have an id in common.
func (k Kind) parted() bool { return k == KindStore || k == KindTree }

// freeParts gives the memory of parts back, one after another, until one is held.
func freeParts(port fabric.Port, parts []retiredPart, live func(fabric.CNID) bool) error {
	for _, y := range parts {
		err := ErrHeld
		if by := y.e.Holder(); by == 0 || !live(by) {
			err = y.r.Free(port, &y.e)
		}
		if errors.Is(err, ErrHeld) {
			return nil // its holder sees to it
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Beside reports whether two entries are parts of the same store or tree.
func (e *Entry) Beside(other *Entry) bool { return e.Kind == other.Kind && e.id() == other.id() }

// id returns what all parts of a store or tree have in common, and no other has.
func (e *Entry) id() uint64 {
	if e.Kind == KindStore {
		return e.Info[5]
	}
	return e.Info[2]
}
