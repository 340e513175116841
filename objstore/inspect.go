package objstore

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory/handle"
)

// A BucketDump shows a bucket with its overflow blocks to people.
type BucketDump struct {
	Node  string     `json:"node"`
	Index uint64     `json:"index"`
	Addr  string     `json:"address"`
	Lock  []string   `json:"lock"` // the words of the lock, hexadecimal
	Slots []SlotDump `json:"slots"`
}

// A SlotDump shows a slot that is in use.
type SlotDump struct {
	Addr  string `json:"address"`
	Word  string `json:"word"`  // hexadecimal
	Text  string `json:"text"`  // Word decoded
	Depth int    `json:"depth"` // 0 in the bucket, else in which overflow block
	Key   string `json:"key"`   // of the object, if Err is nil
	// Segment: it is one of a value, and its key is no user's. List: its value is a list of segments.
	Segment bool   `json:"segment,omitempty"`
	List    bool   `json:"list,omitempty"`
	Size    int    `json:"size"` // of the value, bytes
	Flags   uint32 `json:"flags"`
	CAS     uint64 `json:"cas"`
	Access  uint32 `json:"access_s"`
	Expiry  uint32 `json:"expiry_s"`           // 0: never
	Early   uint16 `json:"early_ms,omitempty"` // how long before it
	Err     error  `json:"error,omitempty"`    // why the object makes no sense
}

// A fault is an error that is text in JSON.
type fault struct{ error }

// MarshalText implements encoding.TextMarshaler.
func (f fault) MarshalText() ([]byte, error) { return []byte(f.Error()), nil }

// Unwrap returns the error.
func (f fault) Unwrap() error { return f.error }

func (d *BucketDump) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "bucket %d of %s at %s\n  lock  %s\n", d.Index, d.Node, d.Addr, strings.Join(d.Lock, " "))
	for i := range d.Slots {
		s := &d.Slots[i]
		fmt.Fprintf(&b, "  %s depth %d: %s\n", s.Addr, s.Depth, s.Text)
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
	d := &BucketDump{Node: n.MN.String(), Index: index, Addr: bucket.String(), Slots: []SlotDump{}}
	buf := c.port.Alloc(int(c.s.geo.lockSize))
	defer c.port.Free(buf)
	ops := [2]fabric.Op{fabric.Read(bucket, buf), fabric.Read(c.s.slotsAddr(bucket), c.slots[:c.s.slotsLen()])}
	if err := lock.Do(c.l, ops[:]); err != nil {
		return nil, fmt.Errorf("objstore: bucket at %v: %w", bucket, err)
	}
	for i := range len(buf) / 8 {
		d.Lock = append(d.Lock, fmt.Sprintf("%016x", wordAt(buf, i)))
	}
	a, b := c.s.slotsAddr(bucket), c.slots[:c.s.slotsLen()]
	k := work{look: look{n: n}}
	for ; ; k.depth++ {
		last := len(b)/slotSize - 1
		for i := range last {
			if w := slotWord(wordAt(b, i)); w != 0 {
				s := SlotDump{Addr: a.Add(uint64(i) * slotSize).String(), Word: fmt.Sprintf("%016x", uint64(w)), Text: w.String(), Depth: k.depth}
				if err := c.inspectSlot(n, w, &s); err != nil {
					s.Err = fault{err}
				}
				d.Slots = append(d.Slots, s)
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

// inspectSlot reads the object of a slot.
func (c *Client) inspectSlot(n *handle.Part, w slotWord, s *SlotDump) error {
	size := min(w.readLen(), maxObjectSize)
	if !holds(n, w) || size <= headerSize {
		return fmt.Errorf("%w: %v", ErrCorrupt, w)
	}
	c.obj = c.grow(c.obj, size)
	c.ops[0] = fabric.Read(n.At(w.chunk().off64), c.obj[:size])
	if err := lock.Do(c.l, c.ops[:1]); err != nil {
		return err
	}
	var h header
	if err := h.decode(c.obj[:size], w); err != nil {
		return err
	}
	s.Key = string(c.obj[headerSize : headerSize+int(h.keyLen)])
	s.Segment, s.List = h.kind == kindSegment, h.kind == kindList
	s.Size, s.Flags, s.CAS, s.Access, s.Expiry = int(h.valueLen), h.flags, h.unique, h.access.at(c.now()), h.expiry.second
	s.Early = h.expiry.early
	if value := c.obj[headerSize+int(h.keyLen) : size]; s.List && len(value) >= 4 {
		s.Size = int(binary.LittleEndian.Uint32(value))
	}
	return nil
}
