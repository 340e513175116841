package objstore

import (
	"fmt"
	"strings"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory/handle"
)

// A BucketDump shows a bucket with its overflow blocks to people.
type BucketDump struct {
	Node  fabric.MemID
	Index uint64
	Addr  fabric.Addr
	Lock  []uint64 // the words of the lock
	Slots []SlotDump
}

// A SlotDump shows a slot that is in use.
type SlotDump struct {
	Addr  fabric.Addr
	Word  uint64
	Text  string // Word decoded
	Depth int    // 0 in the bucket, else in which overflow block
	Key   string // of the object, if Err is nil
	Size  int    // of the value, bytes
	Flags uint32
	CAS   uint64
	// Access and Expiry are in seconds; Expiry 0 is never.
	Access, Expiry uint32
	Err            error // why the object makes no sense
}

func (d *BucketDump) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "bucket %d of %v at %v\n  lock ", d.Index, d.Node, d.Addr)
	for _, w := range d.Lock {
		fmt.Fprintf(&b, " %016x", w)
	}
	b.WriteByte('\n')
	for i := range d.Slots {
		s := &d.Slots[i]
		fmt.Fprintf(&b, "  %v depth %d: %s\n", s.Addr, s.Depth, s.Text)
		if s.Err != nil {
			fmt.Fprintf(&b, "    %v\n", s.Err)
			continue
		}
		fmt.Fprintf(&b, "    key %q, value %d B, flags %#x, cas %#x, access %d, expiry %d\n",
			s.Key, s.Size, s.Flags, s.CAS, s.Access, s.Expiry)
	}
	return b.String()
}

// Locate returns the memory node of a key and the index of its bucket there.
func (s *Store) Locate(key []byte) (fabric.MemID, uint64) {
	n, b := s.spread(hashKey(key, s.geo.seed))
	return s.h.Parts[n].MN, b
}

// Inspect reads a bucket and the objects in it, without its lock: what changes
// meanwhile may look corrupt.
func (c *Client) Inspect(mn fabric.MemID, index uint64) (*BucketDump, error) {
	if err := c.session.Begin(); err != nil {
		return nil, err
	}
	defer c.session.End()
	for i := range c.s.h.Parts {
		if c.s.h.Parts[i].MN == mn && index < c.s.geo.buckets {
			if err := c.catchUp(toRead, i); err != nil {
				return nil, err
			}
			return c.inspect(c.s.h.Parts[i], c.s.bucket(i, index), index)
		}
	}
	return nil, fmt.Errorf("%w: no bucket %d on %v", ErrConfig, index, mn)
}

func (c *Client) inspect(n *handle.Part, bucket fabric.Addr, index uint64) (*BucketDump, error) {
	d := &BucketDump{Node: n.MN, Index: index, Addr: bucket}
	buf := c.port.Alloc(int(c.s.geo.lockSize))
	defer c.port.Free(buf)
	ops := [2]fabric.Op{fabric.Read(bucket, buf), fabric.Read(c.s.slotsAddr(bucket), c.slots[:c.s.slotsLen()])}
	if err := lock.Do(c.l, ops[:]); err != nil {
		return nil, fmt.Errorf("objstore: bucket at %v: %w", bucket, err)
	}
	for i := range len(buf) / 8 {
		d.Lock = append(d.Lock, wordAt(buf, i))
	}
	a, b := c.s.slotsAddr(bucket), c.slots[:c.s.slotsLen()]
	k := work{n: n}
	for ; ; k.depth++ {
		last := len(b)/slotSize - 1
		for i := range last {
			if w := slotWord(wordAt(b, i)); w != 0 {
				d.Slots = append(d.Slots, c.inspectSlot(n, a.Add(uint64(i)*slotSize), w, k.depth))
			}
		}
		if wordAt(b, last) == 0 {
			return d, nil
		}
		block, err := c.follow(&k, linkWord(wordAt(b, last)), a.Add(uint64(last)*slotSize))
		if err != nil {
			return d, err
		}
		a, b = n.At(block.off64), c.slots[:overflowSize]
	}
}

func (c *Client) inspectSlot(n *handle.Part, a fabric.Addr, w slotWord, depth int) SlotDump {
	s := SlotDump{Addr: a, Word: uint64(w), Text: w.String(), Depth: depth}
	size := min(w.readLen(), maxObjectSize)
	if !holds(n, w) || size <= headerSize {
		s.Err = fmt.Errorf("%w: %v", ErrCorrupt, w)
		return s
	}
	c.obj = c.grow(c.obj, size)
	c.ops[0] = fabric.Read(n.At(w.chunk().off64), c.obj[:size])
	if s.Err = lock.Do(c.l, c.ops[:1]); s.Err != nil {
		return s
	}
	var h header
	if s.Err = h.decode(c.obj[:size], w); s.Err != nil {
		return s
	}
	s.Key = string(c.obj[headerSize : headerSize+int(h.keyLen)])
	s.Size, s.Flags, s.CAS, s.Access, s.Expiry = int(h.valueLen), h.flags, h.unique, h.access, h.expiry
	return s
}
