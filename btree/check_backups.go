package btree

import (
	"bytes"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// words compares what is besides nodes and values with what the backups have: the regions' own words, and the ptr of the root.
func (k *checker) words() error {
	if !k.backups {
		return nil
	}
	for _, n := range k.c.t.h.Parts {
		if err := n.Region.CompareBackups(lock.Path(k.c.l), func(a fabric.Addr, what string) { k.problem("%v: %s", a, what) }); err != nil {
			return fmt.Errorf("btree: check the backups of %v: %w", n.MN, err)
		}
	}
	var b [8]byte
	put64(b[:], 0, k.c.t.root.Load())
	return k.compareAt(0, k.c.t.h.Parts[0].Base.Add(rootOffset), b[:])
}

// compare compares a node or value with what each backup has.
func (k *checker) compare(p ptr, cl class, here []byte) error {
	if !k.backups {
		return nil
	}
	return k.compareAt(p.node(), k.c.t.slotAddr(p, cl), here)
}

func (k *checker) compareAt(part int, a fabric.Addr, here []byte) error {
	b, err := k.c.backups(part)
	if err != nil || b.None() || len(here) == 0 {
		return err
	}
	there := k.c.port.Alloc(len(here))
	defer k.c.port.Free(there)
	return b.Synced(func(i int) error {
		if err := b.Read(i, fabric.Read(a, there)); err != nil {
			return err
		}
		if !bytes.Equal(here, there) {
			k.problem("%v: backup %d has %x, the primary %x", a, i+1, there[:min(len(there), headerSize)], here[:min(len(here), headerSize)])
		}
		return nil
	})
}
