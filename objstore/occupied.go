package objstore

import (
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

const (
	// occupiedTable bounds the bytes of buckets that Occupied reads, and occupiedRead those of one READ.
	occupiedTable = 128 << 20
	occupiedRead  = 64 << 10
)

// Occupied appends the indices of the buckets on a memory node that have objects to list, without their locks. It is not ok if they would be more than most in the list, or the
// table is too large to be read as a whole: then the list has some of them.
func (c *Client) Occupied(mn fabric.MemID, most int, list []uint64) (_ []uint64, ok bool, err error) {
	if err := c.session.Begin(); err != nil {
		return list, false, err
	}
	defer c.session.End()
	size := c.s.geo.bucketSize
	if c.s.geo.buckets*size > occupiedTable {
		return list, false, nil
	}
	for i := range c.s.h.Parts {
		if c.s.h.Parts[i].MN == mn {
			if err := c.catchUp(toRead, i); err != nil {
				return list, false, err
			}
			return c.occupied(i, most, list)
		}
	}
	return list, false, fmt.Errorf("%w: no buckets on %v", ErrConfig, mn)
}

func (c *Client) occupied(part, most int, list []uint64) (_ []uint64, ok bool, err error) {
	size := c.s.geo.bucketSize
	each := max(occupiedRead/size, 1)
	buf := c.port.Alloc(int(each * size))
	defer c.port.Free(buf)
	for at := uint64(0); at < c.s.geo.buckets; at += each {
		n := min(each, c.s.geo.buckets-at)
		c.ops[0] = fabric.Read(c.s.bucket(part, at), buf[:n*size])
		if err := lock.Do(c.l, c.ops[:1]); err != nil {
			return list, false, fmt.Errorf("objstore: buckets: %w", err)
		}
		for i := range n {
			slots := buf[i*size+c.s.geo.lockSize : (i+1)*size]
			used := false
			for j := range c.s.geo.slots + 1 {
				used = used || wordAt(slots, j) != 0
			}
			switch {
			case used && len(list) == most:
				return list, false, nil
			case used:
				list = append(list, at+i)
			}
		}
	}
	return list, true, nil
}
