package memory

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/declock/declock/fabric"
)

// What a new backup lacks is copied from the primary, while others work. Each of them writes to the new backup by then, as to those before: the fabric says so
// (member.Copying). What they had begun before that, they copy themselves when it is done ([Region.Settle]), or it is in what the copier reads: a client that changes a word by CAS
// asks for the backups afterwards, so one that did not know of the new backup has changed the word before the copier began.

// AwaitClaims waits until no name is being made any more that was when it was called: each has been published since, or given up. A compute node that has claimed a name may have made what that leads to
// at the backups that it knew then, and publish it only when others know of one more. Who claims later writes to that, too. dead and creating are as in a Spec: what is abandoned is freed.
// ErrHalfCreated: it takes longer than DefaultWaitNs.
func (r *Region) AwaitClaims(port fabric.Port, dead func() fabric.CNSet, creating *Creating) error {
	d := r.directory(port)
	defer d.free()
	d.spec = &Spec{DeadNow: dead, Creating: creating}
	claims := map[int]claimWord{}
	w := newWaiter(port, 0)
	for first := true; ; first = false {
		if err := d.vacateAbandoned(); err != nil {
			return err
		}
		for i := range r.plan.entries {
			if st := d.state(i); first && st.state() == claimClaimed {
				claims[i] = st
			} else if st != claims[i] {
				delete(claims, i)
			}
		}
		if len(claims) == 0 {
			return nil
		}
		if err := w.wait(); err != nil {
			for i, st := range claims {
				return fmt.Errorf("%w: root entry at %v by %v: %w", ErrHalfCreated, d.addr(i), st.owner(), err)
			}
		}
	}
}

// CopyNames makes each backup of a region have the pages and the root entries that are at the primary. Locks are not copied: they begin anew with each promotion.
func (r *Region) CopyNames(port fabric.Port) error {
	if err := r.CheckCopies(port); err != nil {
		return err
	}
	// A change of pages that is under way may be one whose client does not know of the new backup. Those that come later do.
	if _, err := (&changer{r, port}).idle(); err != nil {
		return err
	}
	if err := r.copyPages(port, 0, r.plan.pages); err != nil {
		return err
	}
	for i := range r.plan.entries {
		if err := r.copyEntry(port, i); err != nil {
			return err
		}
	}
	return nil
}

// Settle makes each backup have an entry that a client has created or found, and its pages, before the client uses it. A backup that has been added while the entry was made may lack
// it, if its creator did not know of that backup yet, and the copier did not see it.
func (r *Region) Settle(port fabric.Port, e *Entry) error {
	if !r.Replicated() {
		return nil
	}
	first := int(e.Addr.Offset() >> r.plan.pageShift)
	last := int((e.Addr.Offset() + e.Length - 1) >> r.plan.pageShift)
	if err := r.copyPages(port, first, last-first+1); err != nil {
		return err
	}
	return r.copyEntry(port, e.slot)
}

// copyPages makes the words of some pages, and the change word, at the backups what they are at the primary.
func (r *Region) copyPages(port fabric.Port, first, n int) error {
	if err := r.Level(port, r.At(r.plan.table+8*uint64(first)), n); err != nil {
		return err
	}
	return r.Level(port, r.Stamp(), 1)
}

// copyEntry makes an entry at the backups what it is at the primary: what it says before its state. What it says changes only when its generation has changed before.
//
// A client that has stood still must not write what an entry was over what it is: that backup may be promoted at any time. So what an entry says is written only where that,
// of its generation, is not there, though the primary has it before and after: a publication is at the backups first. If the generation at the primary has changed when it is written, what
// came later is written, too.
func (r *Region) copyEntry(port fabric.Port, i int) error {
	b, err := r.Backups(port)
	if err != nil {
		return err
	}
	d := directory{r: r, port: port}
	for k := b.group.N - 1; k >= 0; k-- {
		if err := d.copyTo(&b, k, i); err != nil {
			return fmt.Errorf("memory: root entry at %v: %w", d.addr(i), err)
		}
	}
	return d.level(i)
}

// copyTo makes what an entry says at a backup what it says at the primary.
func (d *directory) copyTo(b *Backups, k, i int) error {
	here := d.port.Alloc(entrySize)
	defer d.port.Free(here)
	var written claimWord // in which state it was written; 0: it was not
	w := newWaiter(d.port, 0)
	for b.group.Backups[k].Number != 0 {
		if err := d.port.Do([]fabric.Op{fabric.Read(d.addr(i), here)}); err != nil {
			return err
		}
		st := claimWord(binary.LittleEndian.Uint64(here))
		switch done, err := d.copied(b, k, i, here, written); {
		case done || err != nil:
			return err
		case st.says():
			if now, err := d.load(i); err != nil || now != st {
				if err != nil {
					return err
				}
				continue
			}
			if err := b.do(k, []fabric.Op{fabric.Write(d.addr(i).Add(8), here[8:])}); err != nil {
				return err
			}
			written = st
		default:
			if err := w.wait(); err != nil {
				return fmt.Errorf("%w: by %v: %w", ErrHalfCreated, st.owner(), err)
			}
		}
	}
	return nil
}

// copied reports whether there is nothing to write to a backup of an entry that is so at the primary. A backup that is not in sync may have its state, by a client that levels only
// that, and not what it says.
func (d *directory) copied(b *Backups, k, i int, here []byte, written claimWord) (bool, error) {
	st := claimWord(binary.LittleEndian.Uint64(here))
	switch {
	case written != 0:
		return st.says() && st.gen() == written.gen() || st.state() == claimFree || st.state() == claimDropping, nil
	case !st.says():
		return true, nil // what it says is its creator's to write
	}
	buf := d.port.Alloc(entrySize)
	defer d.port.Free(buf)
	err := b.do(k, []fabric.Op{fabric.Read(d.addr(i), buf)})
	there := claimWord(binary.LittleEndian.Uint64(buf))
	return there.says() && there.gen() == st.gen() && bytes.Equal(buf[8:], here[8:]), err
}

// A Zeroer makes memory zero at a new backup that nobody writes to backups, as locks, and that was something else before it was what it is now. Compute nodes that knew of the backup may have written
// there what it was, and one that did not may have made it zero at the others only, when it became what it is.
type Zeroer struct {
	port   fabric.Port
	b      Backups
	number uint32
	zeros  []byte
	ops    []fabric.Op
}

// ZeroerTo returns a Zeroer for the backup that has a number, which is not in sync.
func (r *Region) ZeroerTo(port fabric.Port, number uint32) (*Zeroer, error) {
	b, err := r.Backups(port)
	if err != nil {
		return nil, err
	}
	return &Zeroer{port: port, b: b, number: number, zeros: port.Alloc(zeroBytes)}, nil
}

// Close makes zero what is not yet, and frees the Zeroer's buffer.
func (z *Zeroer) Close() error {
	err := z.flush()
	z.port.Free(z.zeros)
	return err
}

// Zero makes some memory zero, when it returns or by Close.
func (z *Zeroer) Zero(a fabric.Addr, size uint64) error {
	for size > 0 {
		n := min(size, zeroBytes)
		z.ops = append(z.ops, fabric.Write(a, z.zeros[:n]))
		a, size = a.Add(n), size-n
		if n == zeroBytes || len(z.ops) == fabric.MaxChain {
			if err := z.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (z *Zeroer) flush() error {
	if len(z.ops) == 0 {
		return nil
	}
	err := z.b.Fill(z.number, z.ops)
	z.ops = z.ops[:0]
	return err
}
