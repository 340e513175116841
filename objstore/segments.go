package objstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory/handle"
)

// A value that is larger than the store's segments is a list of segments: an object under the value's key, which has the beginning of the value and the numbers of its segments.
// Each segment is an object of its own, under a key that no user can give, so segments lie on all memory nodes, and are stored, found, evicted, copied to backups and
// reclaimed as all objects are.
//
//   - A segment is written before the list that names it is published, is never changed, and its number never comes back. So whoever has read a list and then all its segments
//     has read the value that was there when it read the list.
//   - The list is the value: it is there or not, in one step, as every object. Whoever unlinks it deletes its segments afterwards.
//   - A segment that is not there while its list is has been evicted, or lost with a memory node: then all of the value is gone. A reader deletes the list before it says so,
//     and a client that evicts a segment unlinks the list before it.
//   - What a crash leaves, segments that no list names, the other compute nodes delete (sweep.go).
//
// A list is, behind its header and key:
//
//	offset  bytes
//	  0       4   length of the value
//	  4       4   length of each segment but the last
//	  8       4   length of the beginning of the value, which is in the list
//	 12       4   part of the store in which the key lies: numbers are unique there
//	 16      64   beginning of the value
//	 80       8   number of the first segment, and so on
//
// The key of a segment is its number, that part, and its index in the value; its flags are the compute node that wrote it. Before its data stands the key of
// the value, with its length in one byte.
const (
	listHeadOffset = 16
	listHeadSize   = 64
	listSize       = listHeadOffset + listHeadSize // and 8 for each segment
	segmentKeySize = 16
	segmentUnit    = 64
	segmentShift   = 41 // above the number of buckets in a root entry

	// maxPlain is the largest value of a store without segments.
	maxPlain = maxChunk - maxObjectSize
	// MaxValueBytes is the largest Config.MaxValue.
	MaxValueBytes = 512 << 20
	// defaultSegment fills its class, and half of 4 MiB has the same class.
	defaultSegment = 9<<18 - 4096
	minSegment     = 64
	maxSegment     = 4 << 20
)

// A kind is what an object is.
type kind uint8

const (
	kindPlain kind = iota
	kindList
	kindSegment
	unknownKind kind = 0xff // of an object that has not been read
)

// ErrChanged: the value was replaced, deleted or evicted while it was read piece by piece.
var ErrChanged = errors.New("objstore: value was changed, or evicted, while it was read")

// validSegment reports whether values of a size can have segments of a length: the last one is at least a quarter as long as that.
func validSegment(segment, maxValue uint32) bool {
	return segment%segmentUnit == 0 && segment >= minSegment && segment <= maxSegment && uint64(maxValue) <= uint64(segment)*uint64(segment)/8 &&
		maxValue/segment <= 1<<16
}

// Large reports whether a value of so many bytes has segments.
func (s *Store) large(n int) bool { return s.geo.segment != 0 && n > int(s.geo.segment) }

// Segment returns how long segments are, at most; 0: no value has segments.
func (s *Store) Segment() int { return int(s.geo.segment) }

// segmentClass is the smallest class that segments have.
func (s *Store) segmentClass() class {
	if s.geo.segment == 0 {
		return numClasses
	}
	return classFor(headerSize + segmentKeySize + uint64(s.geo.segment)/4)
}

// maxList is the size of the largest list.
func (s *Store) maxList() uint64 {
	return maxObjectSize + listSize + 8*(uint64(s.geo.maxValue)/uint64(s.geo.segment)*2+2)
}

// A Large is a value in segments, as it was when its list was read.
type Large struct {
	key     []byte
	unique  uint64 // of the list
	size    int
	length  int // of each segment but the last
	node    uint32
	head    [listHeadSize]byte
	headLen int
	ids     []uint64
}

// Size returns the length of the value.
func (l *Large) Size() int { return l.size }

// Segments returns how many segments it has, and how long all but the last are.
func (l *Large) Segments() (n, length int) { return len(l.ids), l.length }

// decodeList reads a list.
func decodeList(key, b []byte, unique uint64) (*Large, error) {
	l := &Large{key: slices.Clone(key), unique: unique}
	if len(b) < listSize {
		return nil, fmt.Errorf("%w: list of segments of %d bytes", ErrCorrupt, len(b))
	}
	word := func(i int) int { return int(binary.LittleEndian.Uint32(b[4*i:])) }
	l.size, l.length, l.headLen, l.node = word(0), word(1), word(2), uint32(word(3))
	rest, n := l.size-l.headLen, (len(b)-listSize)/8
	if l.headLen > listHeadSize || l.length == 0 || rest <= 0 || n*8 != len(b)-listSize || n != (rest+l.length-1)/l.length {
		return nil, fmt.Errorf("%w: list of %d segments of %d bytes for %d", ErrCorrupt, n, l.length, rest)
	}
	copy(l.head[:], b[listHeadOffset:])
	l.ids = make([]uint64, n)
	for i := range l.ids {
		l.ids[i] = binary.LittleEndian.Uint64(b[listSize+8*i:])
	}
	return l, nil
}

// appendList appends a list, with another beginning of the value of the same length.
func (l *Large) appendList(b, head []byte) []byte {
	for _, v := range []uint32{uint32(l.size), uint32(l.length), uint32(l.headLen), l.node} {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	b = append(append(b, head...), make([]byte, listHeadSize-len(head))...)
	for _, id := range l.ids {
		b = binary.LittleEndian.AppendUint64(b, id)
	}
	return b
}

// span returns where a segment begins in the value, and how long it is.
func (l *Large) span(i int) (from, n int) {
	from = l.headLen + i*l.length
	return from, min(l.length, l.size-from)
}

// A segmentRef names a segment.
type segmentRef struct {
	id          uint64
	node, index uint32
}

func (l *Large) ref(i int) segmentRef { return segmentRef{l.ids[i], l.node, uint32(i)} }

// key returns the key of the segment.
func (r segmentRef) key() (k [segmentKeySize]byte) {
	binary.LittleEndian.PutUint64(k[:], r.id)
	binary.LittleEndian.PutUint32(k[8:], r.node)
	binary.LittleEndian.PutUint32(k[12:], r.index)
	return k
}

func refOf(key []byte) segmentRef {
	return segmentRef{binary.LittleEndian.Uint64(key), binary.LittleEndian.Uint32(key[8:]), binary.LittleEndian.Uint32(key[12:])}
}

// kind returns what the object that is stored is.
func (k *work) kind() kind {
	switch {
	case k.segment:
		return kindSegment
	case k.list:
		return kindList
	}
	return kindPlain
}

// uploads are the values whose segments clients of this compute node are writing: no list names them yet. One whose outcome is not known stays.
type uploads struct {
	mu   sync.Mutex
	open map[segmentRef]bool // by number, with index 0
	left bool                // segments that could not be deleted: they are to be looked for
}

func (u *uploads) begin(r segmentRef) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.open == nil {
		u.open = map[segmentRef]bool{}
	}
	u.open[r] = true
}

func (u *uploads) end(r segmentRef) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.open, r)
}

func (u *uploads) has(r segmentRef) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	r.index = 0
	return u.open[r]
}

// leave notes that there are segments which no list names; takeLeft asks for that.
func (u *uploads) leave() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.left = true
}

func (u *uploads) takeLeft() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	left := u.left
	u.left = false
	return left
}

// A large is what a client has for values in segments.
type large struct {
	whole    []byte   // a value: what Get returned; not the Port's
	decision decision // of Update
	buf      []byte   // of the Port: what is read of objects that are being unlinked
	garbage  []segmentRef
	chunks   []garbageChunk
	sweep    sweep
}

// A garbageChunk is the chunk of a list that was unlinked to make room.
type garbageChunk struct {
	n  *handle.Part
	ch chunk
}

// freeObject frees the chunk of an object that this client has unlinked, and notes the segments of a list for the end of the operation.
func (c *Client) freeObject(n *handle.Part, w slotWord, k kind) {
	c.retire(n, w, k)
	c.free(n, w.chunk())
}

// retire notes the segments that an object names which this client has unlinked, and whose chunk is as it was. It reads it, unless it is known to be no list.
func (c *Client) retire(n *handle.Part, w slotWord, k kind) {
	if c.s.geo.segment == 0 || k != kindList && k != unknownKind || k == unknownKind && w.readLen() > 2*c.s.maxList() {
		return
	}
	h, b, err := c.readHead(n, w, w.readLen())
	if err != nil {
		c.s.uploads.leave()
		return
	}
	if h.kind != kindList {
		return
	}
	from := headerSize + uint64(h.keyLen)
	l, err := decodeList(b[headerSize:from], b[from:from+uint64(h.valueLen)], h.unique)
	if err != nil {
		c.s.uploads.leave()
		return
	}
	c.discardSegments(l, -1)
}

// discardSegments notes the segments of a list, but one, to be deleted.
func (c *Client) discardSegments(l *Large, but int) {
	for i := range l.ids {
		if i != but {
			c.large.garbage = append(c.large.garbage, l.ref(i))
		}
	}
}

// readHead reads the first bytes of an object, with its header.
func (c *Client) readHead(n *handle.Part, w slotWord, most uint64) (h header, b []byte, err error) {
	size := min(w.readLen(), most)
	if !holds(n, w) || size <= headerSize {
		return h, nil, fmt.Errorf("%w: %v", ErrCorrupt, w)
	}
	if uint64(len(c.large.buf)) < size {
		if c.large.buf != nil {
			c.port.Free(c.large.buf)
		}
		c.large.buf = c.port.Alloc(int(max(size, 2*c.s.maxList())))
	}
	b = c.large.buf[:size]
	c.ops[0] = fabric.Read(n.At(w.chunk().off64), b)
	if err := lock.Do(c.l, c.ops[:1]); err != nil {
		return h, nil, fmt.Errorf("objstore: object: %w", err)
	}
	if err := h.decode(b, w); err != nil {
		return h, nil, err
	}
	if uint64(h.keyLen)+headerSize > size {
		return h, nil, fmt.Errorf("%w: %v", ErrCorrupt, w)
	}
	return h, b, nil
}

// dropGarbage deletes the segments, and frees the chunks, that were noted for the end of the operation. What it cannot delete is swept.
func (c *Client) dropGarbage() {
	g := &c.large
	if len(g.garbage) == 0 && len(g.chunks) == 0 {
		return
	}
	c.user.Enter()
	for _, x := range g.chunks {
		c.free(x.n, x.ch)
	}
	c.user.Exit()
	for _, r := range g.garbage {
		if err := c.removeSegment(r); err != nil {
			c.s.uploads.leave()
			break
		}
	}
	g.garbage, g.chunks = g.garbage[:0], g.chunks[:0]
}

// removeSegment deletes a segment, if it is there.
func (c *Client) removeSegment(r segmentRef) error {
	k := work{look: look{head: true, segment: true}, need: toChange}
	key := r.key()
	if err := c.start(&k, key[:]); err != nil {
		return err
	}
	c.user.Enter()
	defer c.user.Exit()
	err := c.outlast(&k, func() error {
		if err := c.lookupLive(&k); err != nil {
			return err
		}
		return c.remove(&k)
	})
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// getSegment gets a segment: the first bytes of its data. They are in the client's buffer. ErrNotFound: it is gone.
func (c *Client) getSegment(l *Large, i, most int) ([]byte, error) {
	skip := 1 + len(l.key)
	k := work{look: look{segment: true, head: true, value: uint64(skip + most)}}
	key := l.ref(i).key()
	it, err := c.getObject(&k, key[:])
	if err != nil {
		return nil, err
	}
	_, n := l.span(i)
	if int(k.h.valueLen) != skip+n || len(it.Value) < skip+min(most, n) {
		return nil, fmt.Errorf("%w: segment %d of %q has %d bytes, not %d", ErrCorrupt, i, l.key, k.h.valueLen, skip+n)
	}
	return it.Value[skip : skip+min(most, n)], nil
}

// appendLarge appends bytes of a value to dst. ErrNotFound: a segment is gone.
func (c *Client) appendLarge(dst []byte, l *Large, from, n int) ([]byte, error) {
	if from < l.headLen {
		k := min(n, l.headLen-from)
		dst, from, n = append(dst, l.head[from:from+k]...), from+k, n-k
	}
	dst = slices.Grow(dst, n)
	for n > 0 {
		reads := c.readSegments(l, from, n, dst[len(dst):len(dst)+n])
		for i := range reads {
			r := &reads[i]
			ok, err := r.done, error(nil)
			if !ok {
				ok, err = c.readDirectly(l, r.index, r.from, r.to)
			}
			if !ok && err == nil {
				var data []byte
				data, err = c.getSegment(l, r.index, r.from+len(r.to))
				copy(r.to, data[min(r.from, len(data)):])
			}
			if err != nil {
				return dst, err
			}
			dst, from, n = dst[:len(dst)+len(r.to)], from+len(r.to), n-len(r.to)
		}
	}
	return dst, nil
}

const (
	// segmentsFound is how many segments of a value are looked for at a time.
	segmentsFound = 16
	// segmentsUnderWay is how many are read at a time: the link is not idle between two, and operations of others wait for no more.
	segmentsUnderWay = 2
)

// A segmentRead is the READ of a part of a segment, from an offset.
type segmentRead struct {
	index, from int
	to          []byte
	ops         [3]fabric.Op
	pending     fabric.Pending
	done        bool
}

// readSegments reads the first segments of a part of a value to where they are to be, without the lock, as readDirectly does: all are found at a time, and
// are read side by side. Of what is not done then nothing is known.
func (c *Client) readSegments(l *Large, from, n int, to []byte) []segmentRead {
	first, all := (from-l.headLen)/l.length, to
	reads := make([]segmentRead, 0, segmentsFound)
	for ; n > 0 && len(reads) < segmentsFound; n -= len(reads[len(reads)-1].to) {
		i := first + len(reads)
		begin, size := l.span(i)
		k := min(n, begin+size-from)
		reads = append(reads, segmentRead{index: i, from: from - begin, to: to[:k:k]})
		from, to = from+k, to[k:]
	}
	if len(reads) == 1 || c.s.locked || !c.s.h.UpToDate() || !c.port.Lend(all) {
		return reads
	}
	defer c.port.Lend(nil)
	units := c.findSegments(l, reads)
	under := 0 // reads before it are over
	for i := range units {
		if i-under == segmentsUnderWay {
			c.endSegment(&units[under], &reads[under])
			under++
		}
		c.beginSegment(l, &units[i], &reads[i])
	}
	for ; under < len(units); under++ {
		c.endSegment(&units[under], &reads[under])
	}
	return reads
}

// findSegments looks for segments without the lock.
func (c *Client) findSegments(l *Large, reads []segmentRead) []unit {
	outer := c.batch // of which this may be a part
	c.batch = batch{slots: outer.slots, gatherer: outer.gatherer}
	defer func() { outer.slots, c.batch = c.batch.slots, outer }()
	keys := make([][]byte, len(reads))
	for i := range reads {
		key := l.ref(reads[i].index).key()
		keys[i] = key[:]
	}
	c.beginBatch(keys, nil, true, &look{segment: true, head: true, value: uint64(1 + len(l.key))})
	c.findBatch()
	return c.batch.units
}

// beginSegment posts the READ of a segment that was found.
func (c *Client) beginSegment(l *Large, u *unit, r *segmentRead) {
	skip, now := 1+len(l.key), c.now()
	_, n := l.span(r.index)
	if u.outcome != present || c.stale(&u.look, now) || int(u.h.valueLen) != skip+n || lock.Ready(c.l, u.bucket) != nil {
		u.outcome = unclear
		return
	}
	r.ops = u.segmentOps(skip+r.from, r.to)
	var err error
	if r.pending, err = c.port.Post(r.ops[:]); err != nil {
		u.outcome = unclear
	}
}

// endSegment waits for what beginSegment has posted.
func (c *Client) endSegment(u *unit, r *segmentRead) {
	r.done = u.outcome == present && c.port.Wait(r.pending) == nil && u.segmentStands(&r.ops)
}

// segmentOps are the operations that read data of a segment which was found, from an offset in its value: see readDirectly.
func (k *look) segmentOps(from int, to []byte) [3]fabric.Op {
	first := k.n.At(k.word.chunk().off64)
	return [3]fabric.Op{fabric.Read(first.Add(headerSize+segmentKeySize+uint64(from)), to), fabric.Load(k.slot), fabric.Load(first)}
}

// segmentStands reports whether they have read it.
func (k *look) segmentStands(ops *[3]fabric.Op) bool {
	return slotWord(ops[1].Old) == k.word && ops[2].Old == k.h.unique
}

// directTries bounds how often a segment that changes place is read without the lock.
const directTries = 4

// readDirectly reads a part of a segment, from an offset, to where it is to be, in two chains without the lock: the first finds the segment, as a get does, with its slot word w and its unique u;
// the second is
//
//  1. READ the data   2. READ the slot   3. READ the segment's first word
//
// and has read the segment's data if 2 found w and 3 found u, for the reason in unlocked.go. It reports false where it cannot, or where that did not do.
func (c *Client) readDirectly(l *Large, i, from int, to []byte) (ok bool, err error) {
	if c.s.locked || !c.port.Lend(to) {
		return false, nil
	}
	defer c.port.Lend(nil)
	key := l.ref(i).key()
	skip := 1 + len(l.key)
	_, n := l.span(i)
	for range directTries {
		k := work{look: look{segment: true, head: true, value: uint64(skip)}}
		if _, err := c.getObject(&k, key[:]); err != nil {
			return false, err
		}
		if int(k.h.valueLen) != skip+n {
			return false, fmt.Errorf("%w: segment %d of %q has %d bytes, not %d", ErrCorrupt, i, l.key, k.h.valueLen, skip+n)
		}
		ops := k.segmentOps(skip+from, to)
		if err := c.doUnlocked(ops[:]); err != nil {
			if err = k.unlessReplaced(err); err != nil {
				return false, err
			}
			continue
		}
		if k.segmentStands(&ops) {
			return true, nil
		}
	}
	return false, nil
}

// getWhole appends the value of a list, which a get has returned, to dst, or of what is there by then.
func (c *Client) getWhole(key []byte, it Item, dst []byte) (Item, []byte, error) {
	var own [MaxKey]byte
	key = own[:copy(own[:], key)]
	begin := len(dst)
	for {
		l, err := decodeList(key, it.Value, it.CAS)
		if err != nil {
			return Item{}, dst, err
		}
		dst, err = c.appendLarge(slices.Grow(dst[:begin], l.size), l, 0, l.size)
		if err == nil {
			it.Value = dst[begin:len(dst):len(dst)]
			c.stats.BytesRead += uint64(l.size)
			return it, dst, nil
		}
		if !errors.Is(err, ErrNotFound) {
			return Item{}, dst[:begin], err
		}
		if err := c.removeBroken(l); err != nil {
			return Item{}, dst[:begin], err
		}
		var k work
		if it, err = c.getObject(&k, key); err != nil {
			return Item{}, dst[:begin], err
		}
		if k.h.kind != kindList {
			dst = append(dst[:begin], it.Value...)
			it.Value = dst[begin:len(dst):len(dst)]
			return it, dst, nil
		}
	}
}

// removeBroken deletes a list of which a segment is gone, if it is still there.
func (c *Client) removeBroken(l *Large) error {
	k := work{look: look{head: true}, need: toChange}
	if err := c.start(&k, l.key); err != nil {
		return err
	}
	c.user.Enter()
	err := c.outlast(&k, func() error {
		if err := c.lookup(&k, lock.Exclusive); err != nil {
			return err
		}
		if !k.found || k.h.unique != l.unique {
			return c.unlockAsFound(&k, nil)
		}
		return c.remove(&k)
	})
	c.user.Exit()
	c.dropGarbage()
	return err
}
