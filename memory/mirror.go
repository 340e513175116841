package memory

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/declock/declock/fabric"
)

// Copies of a region (docs/replication.md). Readers use the primary only, so all that they can see there is at each backup before: whatever a promotion makes of the
// group, nothing is gone that any client has seen.
//
// What is written under a lock, or by one compute node that alone has it, is written to the backups first, the last of them first of all ([Backups.Write]): so each has what those
// before it have, and a backup that is promoted needs no comparison with those behind it.
//
// Words that clients change without a lock, by CAS, are decided at the primary. Then the backups follow ([Region.Level], changer.raise), and then the change is
// used.

// ErrReplicated: what was asked for has not been built for replicated memory yet.
var ErrReplicated = errors.New("memory: not built for replicated memory nodes yet")

// Backups are the backups of a region as an operation has found them. The zero Backups are those of a region that is not replicated: there are none.
type Backups struct {
	port  fabric.Port
	rep   fabric.Replicator
	group fabric.Replicas
	// required: what Write writes is data, of which the number is to have at least group.MinInSync copies in sync.
	required bool
	trace    Trace // of the last Write
}

// A Trace says at which replicas a change may show, of which one or several chains have failed on their way to all backups. A nil Trace is that of none.
type Trace struct {
	n    int
	list [2 * fabric.MaxBackups]uint32 // numbers of replicas
	term uint32                        // in which none of them served
	lost bool                          // there were more, or others may have been copied from one of them
}

func (r *Trace) add(number, term uint32) {
	if r.lost = r.lost || r.n == len(r.list); !r.lost {
		r.list[r.n] = number
		r.n++
	}
	r.term = term
}

// None reports whether the change shows nowhere.
func (r *Trace) None() bool { return r == nil || r.n == 0 }

// Add adds where what another attempt was to change may show.
func (r *Trace) Add(o *Trace) {
	for _, x := range o.list[:o.n] {
		r.add(x, o.term)
	}
}

// Shows reports whether the change may show at the primary: that is one of the replicas, or one has served since, and this may be a copy of it.
func (r *Trace) Shows(b *Backups) bool {
	if r.None() {
		return false
	}
	if r.lost = r.lost || b.group.Term > r.term+1 || slices.Contains(r.list[:r.n], b.group.Primary); !r.lost {
		r.term = b.group.Term
	}
	return r.lost
}

// Trace returns which replicas the last chain of Write has reached.
func (b *Backups) Trace() *Trace { return &b.trace }

// Backups returns the backups of a region, as they are in the epoch in which the Port is attached. An operation that writes under a lock asks when it has the lock.
func (r *Region) Backups(port fabric.Port) (Backups, error) {
	if !r.Replicated() {
		return Backups{}, nil
	}
	return backupsOf(port, r.mn)
}

func backupsOf(port fabric.Port, mn fabric.MemID) (b Backups, err error) {
	if b.rep = fabric.ReplicatorOf(port); b.rep == nil {
		return b, fmt.Errorf("memory: %v is replicated: %w", mn, fabric.ErrUnsupported)
	}
	b.port = port
	if b.group, err = b.rep.Replicas(mn); err != nil {
		err = fmt.Errorf("memory: backups of %v: %w", mn, err)
	}
	return b, err
}

// None reports whether there are no backups.
func (b *Backups) None() bool { return b.group.N == 0 }

// Require is called before data is written: it returns fabric.ErrTooFewCopies if fewer copies are in sync than the number is to have then, the primary's among them. After that, Write returns that too, if
// backups that it has dropped were needed.
func (b *Backups) Require() error {
	b.required = true
	return b.enough()
}

func (b *Backups) enough() error {
	inSync := 1
	for _, x := range b.group.Backups[:b.group.N] {
		if x.Synced && x.Number != 0 {
			inSync++
		}
	}
	if inSync < b.group.MinInSync {
		return fmt.Errorf("memory: %v: %w: %d, at least %d are wanted", b.group.Mem, fabric.ErrTooFewCopies, inSync, b.group.MinInSync)
	}
	return nil
}

// Epoch returns the epoch in which the primary serves.
func (b *Backups) Epoch() uint32 { return b.group.Epoch }

// Term returns the term in which the primary serves.
func (b *Backups) Term() uint32 { return b.group.Term }

// Before returns the last epoch of the term before.
func (b *Backups) Before() uint32 { return b.group.Before }

// Synced calls f with the backups that are in sync: those that are compared with the primary.
func (b *Backups) Synced(f func(i int) error) error {
	for i := range b.group.N {
		if b.group.Backups[i].Synced {
			if err := f(i); err != nil {
				return err
			}
		}
	}
	return nil
}

// Read executes READs at the i-th backup.
func (b *Backups) Read(i int, ops ...fabric.Op) error {
	p, err := b.rep.PostBackup(&b.group, i, ops)
	if err == nil {
		err = b.port.Wait(p)
	}
	if err != nil {
		err = fmt.Errorf("memory: backup %d of %v: %w", i+1, b.group.Mem, err)
	}
	return err
}

// CompareBackups calls report with what of the identity, the page table and the published root entries differs at a backup. Nothing else is under way.
func (r *Region) CompareBackups(port fabric.Port, report func(a fabric.Addr, what string)) error {
	b, err := r.Backups(port)
	if err != nil || b.None() {
		return err
	}
	d := r.directory(port)
	defer d.free()
	if err := d.read(); err != nil {
		return err
	}
	compare := func(at, size uint64) error {
		here, there := port.Alloc(int(size)), port.Alloc(int(size))
		defer port.Free(here)
		defer port.Free(there)
		if err := port.Do([]fabric.Op{fabric.Read(r.At(at), here)}); err != nil {
			return err
		}
		return b.Synced(func(i int) error {
			if err := b.Read(i, fabric.Read(r.At(at), there)); err != nil {
				return err
			}
			for k := 0; k < len(here); k += 8 {
				if x, y := binary.LittleEndian.Uint64(here[k:]), binary.LittleEndian.Uint64(there[k:]); x != y {
					report(r.At(at+uint64(k)), fmt.Sprintf("%#x at the primary, %#x at backup %d", x, y, i+1))
				}
			}
			return nil
		})
	}
	err = errors.Join(compare(0, offState+8), compare(r.plan.table, 8*uint64(r.plan.pages)))
	for i := range r.plan.entries {
		if d.state(i).state() == claimPublished {
			err = errors.Join(err, compare(DirectoryOffset+uint64(i)*entrySize, entrySize))
		}
	}
	return err
}

// Write executes a chain at each backup, one after the other and the last first. A backup that does not answer is dropped. The first operations, as many as harmless says, change nothing that
// anything leads to yet. If Write fails with fabric.ErrUnknownOutcome, some backups may have executed an operation behind these: the outcome is unknown, though the chain of the primary has not been
// posted. With another error none has, or will, and nothing has changed.
func (b *Backups) Write(ops []fabric.Op, harmless int) error {
	b.trace = Trace{}
	for i := b.group.N - 1; i >= 0; i-- {
		number := b.group.Backups[i].Number
		n, err := b.execute(i, ops)
		if n > harmless {
			b.trace.add(number, b.group.Term)
		}
		if err == nil {
			continue
		}
		if !b.trace.None() {
			err = fmt.Errorf("%w: %w", fabric.ErrUnknownOutcome, err)
		}
		return err
	}
	if b.required {
		if err := b.enough(); err != nil {
			return fmt.Errorf("%w: %w", fabric.ErrUnknownOutcome, err)
		}
	}
	return nil
}

// LastSynced returns the greatest number of a backup that is in sync; 0: there is none.
func (b *Backups) LastSynced() (number uint32) {
	_ = b.Synced(func(i int) error {
		number = max(number, b.group.Backups[i].Number)
		return nil
	})
	return number
}

// Covers reports whether whatever has been written to b is at all that are in now, too: there is no new backup, and the same primary.
func (b *Backups) Covers(now *Backups) bool {
	for i := range now.group.N {
		x := &now.group.Backups[i]
		if !slices.ContainsFunc(b.group.Backups[:b.group.N], func(y fabric.Backup) bool { return y.Number == x.Number }) {
			return false
		}
	}
	return b.group.Epoch == now.group.Epoch
}

// New returns the number of the first backup that is not in sync; 0: there is none.
func (b *Backups) New() uint32 {
	for i := range b.group.N {
		if !b.group.Backups[i].Synced {
			return b.group.Backups[i].Number
		}
	}
	return 0
}

// Fill executes a chain at the backup that has a number, which is not in sync. ErrNodeDown: there is none, or it does not answer, and is dropped.
func (b *Backups) Fill(number uint32, ops []fabric.Op) error {
	for i := range b.group.N {
		if x := &b.group.Backups[i]; x.Number == number && !x.Synced {
			if err := b.do(i, ops); err != nil || x.Number == number {
				return err
			}
		}
	}
	return fmt.Errorf("memory: replica %d of %v: %w", number, b.group.Mem, fabric.ErrNodeDown)
}

// do executes a chain at a backup, or drops that. With an error its outcome is unknown.
func (b *Backups) do(i int, ops []fabric.Op) error {
	_, err := b.execute(i, ops)
	if err != nil {
		err = fmt.Errorf("%w: %w", fabric.ErrUnknownOutcome, err)
	}
	return err
}

// execute executes a chain at a backup, or drops that, and returns how many of its operations the backup may have executed. One that has been dropped executes nothing. What the caller may do next,
// such as to release a lock, others take for a sign that nothing of the chain is under way any more (rule 3). So a client that was interrupted while it is, and does not wait, drops the backup, too.
func (b *Backups) execute(i int, ops []fabric.Op) (reached int, err error) {
	if b.group.Backups[i].Number == 0 {
		return 0, nil
	}
	p, err := b.rep.PostBackup(&b.group, i, ops)
	if err == nil {
		err = b.port.Wait(p)
	}
	if reached = len(ops); fabric.Refused(err) {
		reached = fabric.Executed(err, len(ops))
	}
	switch {
	case err == nil:
		return reached, nil
	case errors.Is(err, fabric.ErrFenced): // its lanes are cut, and it must not say that a backup is at fault
	case isAny(err, fabric.ErrInterrupted, fabric.ErrClosed) && !errors.Is(err, fabric.ErrUnknownOutcome): // nothing is under way, and the backup is not at fault
	default: // that has another epoch may have been dropped
		derr := b.rep.DropBackup(&b.group, i, errors.Is(err, fabric.ErrUnknownOutcome))
		if derr == nil {
			b.group.Backups[i].Number = 0
			return reached, nil
		}
		err = errors.Join(err, derr)
	}
	return reached, fmt.Errorf("memory: backup of %v: %w", b.group.Mem, err)
}

func isAny(err error, list ...error) bool {
	for _, e := range list {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// formatBackups makes the backups of a region that is being formatted what the primary is to be next.
func formatBackups(port fabric.Port, mn fabric.MemID, p *Params, identity []byte, state claimWord) error {
	if p.Factor == 0 {
		return nil
	}
	b, err := backupsOf(port, mn)
	if err != nil {
		return err
	}
	return b.Write([]fabric.Op{fabric.Write(fabric.At(mn, 0), identity), fabric.Store(fabric.At(mn, offState), uint64(state))}, 0)
}

// Level makes some words, of which each changes by CAS at the primary and never becomes what it was, at the backups what they are at the primary, or were since Level was
// called. A word is read at the backup before it is read at the primary: so what Level puts there is never older than what it replaces.
func (r *Region) Level(port fabric.Port, first fabric.Addr, words int) error {
	return r.level(port, first, words, func(there, here uint64) bool { return false })
}

// LevelBut is Level of words of which a backup may be ahead of the primary, which ahead reports: it stays so.
func (r *Region) LevelBut(port fabric.Port, first fabric.Addr, words int, ahead func(backup, primary uint64) bool) error {
	return r.level(port, first, words, ahead)
}

// Foretell is for a word that changes by CAS at the primary, in memory that may be something else as soon as it has: what it returns makes the word at all backups what it is to be next, before.
// The memory is what it is while the word at the primary is what it was, read after Foretell; or, if it may be something else all the same, there returns an error, and no word of it is in what comes
// there then. again: another primary serves, or there are more backups. Without backups it returns nil.
func (r *Region) Foretell(port fabric.Port) (put func(a fabric.Addr, to uint64, there func() error) (again bool, err error), err error) {
	b, err := r.Backups(port)
	if err != nil || !r.Replicated() {
		return nil, err
	}
	return func(a fabric.Addr, to uint64, there func() error) (bool, error) {
		for i := b.group.N - 1; i >= 0; i-- {
			if err := b.foretell(i, a, to, there); errors.Is(err, fabric.ErrStaleEpoch) {
				return true, nil
			} else if err != nil {
				return false, err
			}
		}
		now, err := r.Backups(port)
		return err == nil && !b.Covers(&now), err
	}, nil
}

func (b *Backups) foretell(i int, a fabric.Addr, to uint64, there func() error) error {
	for {
		ops := []fabric.Op{fabric.Load(a)}
		if err := b.do(i, ops); err != nil {
			return err
		}
		was := ops[0].Old
		if b.group.Backups[i].Number == 0 || was == to {
			return nil
		}
		if there != nil {
			if was == 0 { // it has nothing of that yet, or any more
				return nil
			}
			if err := there(); err != nil {
				return err
			}
		}
		ops[0] = fabric.CAS(a, was, to)
		if err := b.do(i, ops); err != nil || ops[0].Swapped() {
			return err
		}
	}
}

// level is Level of words of which a backup may be ahead of the primary, which ahead reports: it stays so.
func (r *Region) level(port fabric.Port, first fabric.Addr, words int, ahead func(there, here uint64) bool) error {
	b, err := r.Backups(port)
	if err != nil || b.group.N == 0 {
		return err
	}
	there, here := port.Alloc(8*words), port.Alloc(8*words)
	defer port.Free(there)
	defer port.Free(here)
	for i := b.group.N - 1; i >= 0; i-- {
		for differ := true; differ; {
			if err := b.do(i, []fabric.Op{fabric.Read(first, there)}); err != nil {
				return err
			}
			if b.group.Backups[i].Number == 0 {
				break
			}
			if err := port.Do([]fabric.Op{fabric.Read(first, here)}); err != nil {
				return fmt.Errorf("memory: words at %v: %w", first, err)
			}
			if differ, err = b.levelOne(i, first, there, here, ahead); err != nil {
				return err
			}
		}
	}
	// In another epoch another primary serves, which may have nothing of what is to be levelled.
	if now, err := r.Backups(port); err != nil || now.group.Epoch != b.group.Epoch {
		return fmt.Errorf("memory: words at %v: %w: %w", first, fabric.ErrUnknownOutcome, cmp.Or(err, fabric.ErrStaleEpoch))
	}
	return nil
}

// LevelPages is Level of the page table where it differs, for what a client that crashed has changed at the primary only: the classes of runs. missed: a backup did not answer;
// it is not dropped for that.
func (r *Region) LevelPages(port fabric.Port) (missed bool, err error) {
	b, err := r.Backups(port)
	if err != nil || b.None() {
		return false, err
	}
	first, size := r.At(r.plan.table), 8*r.plan.pages
	here, there := port.Alloc(size), port.Alloc(size)
	defer port.Free(here)
	defer port.Free(there)
	differ := false
	err = b.Synced(func(i int) error {
		if err := b.Read(i, fabric.Read(first, there)); errors.Is(err, fabric.ErrNodeDown) {
			missed = true
			return nil
		} else if err != nil {
			return err
		}
		if err := port.Do([]fabric.Op{fabric.Read(first, here)}); err != nil {
			return fmt.Errorf("memory: page table of %v: %w", r.mn, err)
		}
		differ = differ || !bytes.Equal(here, there)
		return nil
	})
	if differ && err == nil {
		err = r.Level(port, first, r.plan.pages)
	}
	return missed, err
}

// levelOne changes the words of a backup that differ from the primary's, and reports whether there were any.
func (b *Backups) levelOne(i int, first fabric.Addr, there, here []byte, ahead func(there, here uint64) bool) (differ bool, err error) {
	ops := make([]fabric.Op, 0, fabric.MaxChain)
	for at := 0; at < len(here); at += 8 {
		was, now := binary.LittleEndian.Uint64(there[at:]), binary.LittleEndian.Uint64(here[at:])
		if was != now && !ahead(was, now) {
			ops = append(ops, fabric.CAS(first.Add(uint64(at)), was, now))
		}
		if len(ops) == fabric.MaxChain || len(ops) > 0 && at+8 == len(here) {
			if err := b.do(i, ops); err != nil {
				return false, err
			}
			differ, ops = true, ops[:0]
		}
	}
	return differ, nil
}

// epoch returns the epoch in which a replicated region is served, 0: it is not replicated, or that is not known.
func (c *changer) epoch() uint32 {
	b, err := c.r.Backups(c.port)
	if err != nil {
		return 0
	}
	return b.group.Epoch
}

// finish says at the primary that a change is done, unless another primary serves by now than where it was done, which may lack what was read at the one before: the next look
// does it there. A client's Port attaches by itself to what serves; the Port below it does not.
func (c *changer) finish(w changeWord, epoch uint32) error {
	if epoch == 0 || c.epoch() != epoch {
		return nil
	}
	port := c.port
	for u, ok := port.(fabric.Under); ok; u, ok = port.(fabric.Under) {
		port = u.Under()
	}
	err := port.Do([]fabric.Op{fabric.CAS(c.r.Stamp(), uint64(w), uint64(w.done()))})
	if err == nil || errors.Is(err, fabric.ErrStaleEpoch) {
		return nil
	}
	return fmt.Errorf("memory: pages of %v: %w", c.r.mn, err)
}

// raise makes the change word of each backup one of a change that is not done, if that is still so at the primary: else another client has. It comes before any page of the
// change gets its owner, wherever that is: so a backup that is promoted has all of the change, or can do the rest of it, or has nothing of it.
func (c *changer) raise(w changeWord) error {
	b, err := c.r.Backups(c.port)
	if err != nil {
		return err
	}
	a := c.r.Stamp()
	for i := b.group.N - 1; i >= 0; i-- {
		for {
			ops := []fabric.Op{fabric.Load(a)}
			if err := b.do(i, ops); err != nil {
				return err
			}
			was := ops[0].Old
			if b.group.Backups[i].Number == 0 || was == uint64(w) {
				break
			}
			now, err := c.load()
			if err != nil || now != w {
				return err
			}
			if err := b.do(i, []fabric.Op{fabric.CAS(a, was, uint64(w))}); err != nil {
				return err
			}
		}
	}
	return nil
}

// mirrorZero makes the memory at the backups zero.
func (b *Backups) mirrorZero(a fabric.Addr, zeros []byte) error {
	if b.group.N == 0 {
		return nil
	}
	return b.Write([]fabric.Op{fabric.Write(a, zeros)}, 0)
}
