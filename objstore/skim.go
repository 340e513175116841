package objstore

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory/handle"
)

// A Brief is what Skim tells of an object: what is in the beginning of it. Key and Value are good until the function returns that gets it.
type Brief struct {
	Key    []byte
	Value  []byte // the beginning of the value: BriefValue bytes, if there are so many
	Size   int    // of the whole value
	Flags  uint32
	Unique uint64
	Access uint32 // as in an Item, and so the next two
	Expiry uint32
	Early  uint16
	look   int // at the bucket that has found it
}

// BriefValue is how much of a value Skim reads.
const BriefValue = 16

const (
	// briefSize is how much Skim reads of an object: header and key, and the beginning of the value also of a list.
	briefSize = (headerSize + MaxKey + listHeadOffset + BriefValue + 7) &^ 7
	// skimFirst is how many buckets Skim reads at a time first, and skimRead bounds the bytes of a READ: the more are empty the more it reads at a time.
	skimFirst = 8
	skimRead  = 64 << 10
)

// skimSlots is how many objects are read in a chain: the READ of their slots is its last.
const skimSlots = fabric.MaxChain - 1

// skimLooks is how often Skim looks at a bucket that changes before it takes its lock.
const skimLooks = 10

// Skim calls f with the objects in the buckets from one on, of all memory nodes one after the other, and returns the bucket to go on with: [Store.AllBuckets] at the end. It
// goes on until f has returned false, to the end of that bucket, or it has read most bytes: at least a bucket. It takes no lock but that of a bucket that changes at each of ten looks, or of each in use where READs of a chain may be exchanged, and of an object it
// reads some hundred bytes; those that have expired it leaves out, and segments. Keys are there or not at different moments: one that is there all the time f gets, however the objects of its bucket change. f must not use the client.
func (c *Client) Skim(from, most uint64, f func(*Brief) (more bool)) (next uint64, err error) {
	if err := c.session.Begin(); err != nil {
		return from, err
	}
	defer c.session.End()
	k := skimming{c: c, now: c.Clock(), most: most, f: f}
	k.heads = c.port.Alloc(fabric.MaxChain * briefSize)
	defer c.port.Free(k.heads)
	each := c.s.geo.buckets
	for next = from; next < c.s.AllBuckets() && !k.over; {
		part := next / each
		if err := c.catchUp(toRead, int(part)); err != nil {
			return next, err
		}
		k.n = c.s.h.Parts[part]
		at, err := k.part(next % each)
		if next = part*each + at; err != nil {
			return next, fmt.Errorf("objstore: buckets of %v: %w", k.n.MN, err)
		}
	}
	return next, nil
}

// A skimming is a Skim under way.
type skimming struct {
	c    *Client
	now  fabric.Time
	n    *handle.Part
	most uint64 // bytes that are to be read yet
	over bool
	f    func(*Brief) bool

	heads []byte  // of the Port: beginnings of objects
	found []Brief // in a bucket, which is looked at for the look-th time
	look  int
	arena []byte // their keys and values
}

// spend notes that so much is read.
func (k *skimming) spend(n uint64) {
	k.over = k.over || n >= k.most
	k.most -= min(n, k.most)
}

// part is Skim of one part.
func (k *skimming) part(at uint64) (next uint64, err error) {
	c, g := k.c, &k.c.s.geo
	for each := uint64(skimFirst); at < g.buckets && !k.over; each = min(2*each, max(1, skimRead/g.bucketSize)) {
		n := min(each, g.buckets-at)
		c.table = c.grow(c.table, n*g.bucketSize)
		buf := c.table[:n*g.bucketSize]
		c.ops[0] = fabric.Read(c.s.bucket(k.n.Index, at), buf)
		if err := lock.Do(c.l, c.ops[:1]); err != nil {
			return at, err
		}
		k.spend(uint64(len(buf)))
		for i := range n {
			slots := buf[i*g.bucketSize+g.lockSize:][:c.s.slotsLen()]
			if vacant(slots) {
				continue
			}
			if err := k.bucket(at+i, slots); err != nil {
				return at + i, err
			}
			if k.over {
				return at + i + 1, nil
			}
		}
		at += n
	}
	return at, nil
}

// vacant reports whether slots and link are all 0.
func vacant(slots []byte) bool {
	var any uint64
	for ; len(slots) >= slotSize; slots = slots[slotSize:] {
		any |= binary.LittleEndian.Uint64(slots)
	}
	return any == 0
}

// bucket calls f with the objects of a bucket whose slots have been read.
func (k *skimming) bucket(index uint64, slots []byte) error {
	k.found, k.arena, k.look = k.found[:0], k.arena[:0], 0
	sound, err := k.unlocked(index, slots)
	if err == nil && !sound {
		err = k.locked(index)
	}
	if err != nil {
		return err
	}
	for i := range k.found {
		more := k.f(&k.found[i]) // of all objects of the bucket: the next call begins behind it
		k.over = k.over || !more
	}
	return nil
}

// unlocked looks at a bucket until a look is sound, some times at most.
func (k *skimming) unlocked(index uint64, slots []byte) (sound bool, err error) {
	c := k.c
	for ; c.s.order && k.look < skimLooks; k.look++ {
		if k.look > 0 {
			slots = c.slots[:c.s.slotsLen()]
			c.ops[0] = fabric.Read(c.s.slotsAddr(c.s.bucket(k.n.Index, index)), slots)
			if err := lock.Do(c.l, c.ops[:1]); err != nil {
				return false, err
			}
		}
		if sound, err = k.all(index, slots); err != nil || sound {
			return sound, err
		}
	}
	return false, nil
}

// locked looks at a bucket under its lock, with open slots held, so that nothing changes meanwhile: what does not fit then is damage, of which Get tells.
func (k *skimming) locked(index uint64) error {
	c := k.c
	if !c.s.h.Registered() {
		return fmt.Errorf("%w: memory node %v, which has the first part of store %q: a bucket that changes cannot be read without its lock",
			fabric.ErrNodeDown, c.s.h.Parts[0].MN, c.s.cfg.Name)
	}
	bucket := c.s.bucket(k.n.Index, index)
	slots := c.slots[:c.s.slotsLen()]
	c.reads[0].SetRead(c.s.slotsAddr(bucket), slots)
	c.req = lock.Request{Lock: bucket, Mode: lock.Shared, Reads: c.reads[:1], Since: c.session.Since}
	if t := c.s.cfg.LockTimeoutNs; t != 0 {
		c.req.Deadline = c.port.Now() + t
	}
	if err := c.l.Acquire(&c.hold, &c.req); err != nil {
		return err
	}
	k.look++
	err := k.hold(bucket, slots)
	if err == nil {
		_, err = k.all(index, slots)
	}
	return c.unlock(err)
}

// hold makes open slots of a bucket held, whose lock is.
func (k *skimming) hold(bucket fabric.Addr, slots []byte) error {
	if !k.c.s.geo.opens {
		return nil
	}
	for i := range k.c.s.geo.slots {
		if w := slotWord(wordAt(slots, i)); w.open() {
			held, err := k.c.holdSlot(k.c.s.slotsAddr(bucket).Add(uint64(i)*slotSize), w)
			if err != nil {
				return err
			}
			putWord(slots, i, uint64(held))
		}
	}
	return nil
}

// all reads the objects of the slots of a bucket, and of its overflow blocks. It is not sound if one was changed between the look at its slot and that at itself: its slot has another word
// afterwards, its key is not to be seen, or another one twice, or one of another bucket.
func (k *skimming) all(index uint64, slots []byte) (sound bool, err error) {
	sound = true
	o := work{look: look{n: k.n}}
	bucket := k.c.s.bucket(k.n.Index, index)
	at, link := k.c.s.slotsAddr(bucket), bucket.Add(k.c.s.geo.bucketSize-slotSize)
	for ; ; o.depth++ {
		last := len(slots)/slotSize - 1
		for from := 0; from < last; from += skimSlots {
			ok, err := k.some(index, at.Add(uint64(from*slotSize)), slots[from*slotSize:min(from+skimSlots, last)*slotSize])
			if err != nil {
				return false, err
			}
			sound = sound && ok
		}
		if wordAt(slots, last) == 0 {
			return sound, nil
		}
		block, err := k.c.follow(&o, linkWord(wordAt(slots, last)), link)
		if err != nil {
			return false, err
		}
		at = k.n.At(block.off64)
		link, slots = at.Add(overflowSlots*slotSize), k.c.slots[:overflowSize]
		k.spend(overflowSize)
	}
}

// some reads the objects of some slots, and the slots again, in one chain: memory whose slot is as before was the object's all the time.
func (k *skimming) some(index uint64, at fabric.Addr, slots []byte) (sound bool, err error) {
	c := k.c
	after := k.heads[skimSlots*briefSize:][:len(slots)]
	var words [fabric.MaxChain]slotWord
	sound = true
	n := 0
	for ; len(slots) >= slotSize; slots = slots[slotSize:] {
		w := slotWord(wordAt(slots, 0))
		if w == 0 {
			continue
		}
		size := min(w.readLen(), briefSize)
		if !holds(k.n, w) || size <= headerSize {
			sound = false
			continue
		}
		words[n], c.ops[n] = w, fabric.Read(k.n.At(w.chunk().off64), k.heads[n*briefSize:][:size])
		n++
		k.spend(size)
	}
	if n == 0 {
		return sound, nil
	}
	c.ops[n] = fabric.Read(at, after)
	k.spend(uint64(len(after)))
	if err := lock.Do(c.l, c.ops[:n+1]); err != nil {
		return false, err
	}
	for i, w := range words[:n] {
		if !hasWord(after, w) || !k.note(index, w, k.heads[i*briefSize:][:min(w.readLen(), briefSize)]) {
			sound = false
		}
	}
	return sound, nil
}

// hasWord reports whether one of the slots has the word.
func hasWord(slots []byte, w slotWord) bool {
	for ; len(slots) >= slotSize; slots = slots[slotSize:] {
		if slotWord(wordAt(slots, 0)) == w {
			return true
		}
	}
	return false
}

// note notes the object of a slot, of which the beginning has been read, and reports whether it is one that the slot can lead to.
func (k *skimming) note(index uint64, w slotWord, b []byte) (sound bool) {
	var h header
	if err := h.decode(b, w); err != nil || headerSize+int(h.keyLen) > len(b) {
		return false
	}
	key, value := b[headerSize:headerSize+int(h.keyLen)], b[headerSize+int(h.keyLen):min(uint64(len(b)), h.size())]
	hash := hashKey(key, k.c.s.geo.seed)
	if node, at := k.c.s.spread(hash); fingerprintOf(hash) != w.fp() || h.check != h.checkOf(hash) || node != k.n.Index || at != index {
		return false
	}
	if h.kind == kindSegment || h.expired(k.now) {
		return true
	}
	x := Brief{Size: int(h.valueLen), Flags: h.flags, Unique: h.unique, Access: h.access.at(uint32(k.now / fabric.Second)), Expiry: h.expiry.second, Early: h.expiry.early, look: k.look}
	if h.kind == kindList {
		if len(value) < listHeadOffset+BriefValue {
			return false
		}
		x.Size = int(binary.LittleEndian.Uint32(value))
		value = value[listHeadOffset:]
	}
	from := len(k.arena)
	k.arena = append(append(k.arena, key...), value[:min(len(value), BriefValue)]...)
	x.Key, x.Value = k.arena[from:from+len(key):from+len(key)], k.arena[from+len(key):]
	for i := range k.found {
		if o := &k.found[i]; bytes.Equal(o.Key, x.Key) {
			again := o.look == k.look
			*o = x
			return !again
		}
	}
	k.found = append(k.found, x)
	return true
}
