package objstore

import (
	"bytes"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
)

// checkBackups compares all that the index leads to with what the backups have: slots, links and objects, without access times; and the region's own words.
func (c *Client) checkBackups(r *Report) error {
	for _, n := range c.s.h.Parts {
		k := &checker{c: c, r: r, n: n}
		b, err := n.Region.Backups(c.port)
		if err == nil && !b.None() {
			err = n.Region.CompareBackups(lock.Path(c.l), func(a fabric.Addr, what string) { k.problem(a, "%s", what) })
		}
		for i := uint64(0); err == nil && !b.None() && i < c.s.geo.buckets; i++ {
			err = k.compareBucket(&b, c.s.bucket(n.Index, i))
		}
		if err != nil {
			return fmt.Errorf("objstore: check the backups of %v: %w", n.MN, err)
		}
	}
	return nil
}

// compareBucket compares a bucket, and its objects.
func (k *checker) compareBucket(b *memory.Backups, bucket fabric.Addr) error {
	c := k.c
	blocks, err := c.wholeBucket(k.n, bucket, nil)
	if err != nil {
		return err
	}
	for i := range blocks {
		slots := c.mirrored.block(i, c.s.slotsLen())
		if err := k.compare(b, c.mirrored.at[i], slots, false); err != nil {
			return err
		}
		for j := range len(slots)/slotSize - 1 {
			w := slotWord(wordAt(slots, j))
			if w == 0 || !holds(k.n, w) {
				continue
			}
			c.obj = c.grow(c.obj, w.readLen())
			a := k.n.At(w.chunk().off64)
			c.ops[0] = fabric.Read(a, c.obj[:w.readLen()])
			if err := lock.Do(c.l, c.ops[:1]); err != nil {
				return err
			}
			var h header
			if err := h.decode(c.obj, w); err != nil {
				continue // a problem of another kind
			}
			if err := k.compare(b, a, c.obj[:h.size()], true); err != nil {
				return err
			}
		}
	}
	return nil
}

// compare compares what the primary has at an address, be it an object, with what each backup has.
func (k *checker) compare(b *memory.Backups, a fabric.Addr, here []byte, object bool) error {
	there := k.c.port.Alloc(len(here))
	defer k.c.port.Free(there)
	return b.Synced(func(i int) error {
		if err := b.Read(i, fabric.Read(a, there)); err != nil {
			return err
		}
		if object {
			e, _ := fromMeta(wordAt(here, metaOffset/8))
			if at, _ := fromMeta(wordAt(there, metaOffset/8)); at == e { // else the access time alone
				copy(there[metaOffset:metaOffset+8], here[metaOffset:])
			}
		}
		if !bytes.Equal(here, there) {
			k.problem(a, "backup %d has %x, the primary %x", i+1, there[:min(len(there), headerSize)], here[:min(len(here), headerSize)])
		}
		return nil
	})
}
