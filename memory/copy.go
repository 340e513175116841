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

// copyEntry makes an entry at the backups what it is at the primary: what it says before its state. What it says changes only when its state has changed before, at the primary first. So if the
// state is the same afterwards, no client has written there meanwhile what comes later than what was copied.
func (r *Region) copyEntry(port fabric.Port, i int) error {
	d := directory{r: r, port: port}
	buf := port.Alloc(2 * entrySize)
	defer port.Free(buf)
	here, after := buf[:entrySize], buf[entrySize:]
	read := func(b []byte) error {
		if err := port.Do([]fabric.Op{fabric.Read(d.addr(i), b)}); err != nil {
			return fmt.Errorf("memory: root entry at %v: %w", d.addr(i), err)
		}
		return nil
	}
	if err := read(here); err != nil {
		return err
	}
	for !allZero(here) {
		var err error
		switch claimWord(binary.LittleEndian.Uint64(here)).state() {
		case claimPublished, claimKept: // else what it says is its creator's to write
			var b Backups
			if b, err = r.Backups(port); err == nil {
				err = b.Write([]fabric.Op{fabric.Write(d.addr(i).Add(8), here[8:])})
			}
		}
		if err == nil {
			err = d.level(i)
		}
		if err == nil {
			err = read(after)
		}
		if err != nil {
			return err
		}
		if bytes.Equal(here[:8], after[:8]) {
			return nil
		}
		copy(here, after)
	}
	return nil
}
