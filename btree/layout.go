package btree

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory/reclaim"
	"github.com/declock/declock/memory/slab"
)

// Everything in this file is a format: do not change it; a new layout gets a
// new formatVersion. Integers are little-endian.

// formatVersion is in the root entry of every tree.
const formatVersion = 4

// A ptr names one incarnation of a slot: a place for a node, or for a value, on one of the
// tree's memory nodes. 0 is none.
//
//	 63          46 45      38 37                      0
//	+--------------+----------+-------------------------+
//	| incarnation  |   node   |       offset / 64       |
//	+--------------+----------+-------------------------+
//
// node counts the tree's memory nodes. The incarnation grows each time that
// the slot becomes another node; every node holds its own ptr, so a ptr
// of an earlier incarnation is noticed. Slots of values have incarnation 0.
type ptr uint64

const (
	ptrOffsetBits = 38
	ptrNodeBits   = 8
	ptrIncBits    = 18

	ptrNodeShift = ptrOffsetBits
	ptrIncShift  = ptrNodeShift + ptrNodeBits

	maxOffset64 = 1<<ptrOffsetBits - 1
	maxNodes    = 1<<ptrNodeBits - 1
	incMask     = 1<<ptrIncBits - 1
	slotUnit    = 64 // slots begin at multiples of it and their sizes are
)

// The fields fill the word.
const _ = uint(ptrIncShift+ptrIncBits-64) + uint(64-ptrIncShift-ptrIncBits)

func makePtr(node int, off64 uint64, inc uint32) ptr {
	return ptr(inc&incMask)<<ptrIncShift | ptr(node)<<ptrNodeShift | ptr(off64)
}

func (p ptr) inc() uint32   { return uint32(p >> ptrIncShift) }
func (p ptr) node() int     { return int(p >> ptrNodeShift & maxNodes) }
func (p ptr) off64() uint64 { return uint64(p & maxOffset64) }

// slot returns the ptr without its incarnation.
func (p ptr) slot() ptr { return p & (1<<ptrIncShift - 1) }

// next returns the ptr of the slot's next incarnation.
func (p ptr) next() ptr {
	inc := (p.inc() + 1) & incMask
	if inc == 0 {
		inc = 1
	}
	return p.slot() | ptr(inc)<<ptrIncShift
}

func (p ptr) String() string {
	return fmt.Sprintf("%d+%#x.%d", p.node(), p.off64()*slotUnit, p.inc())
}

// A word is the first word of a node, and what publishes every change of it.
// Zero is a slot that was never used.
//
//	 63   60 59              48 47         32 31                    0
//	+-------+------------------+-------------+-----------------------+
//	| state |        0         |    used     |   CRC32C of [8,used)  |  alive, dead, shadow, free
//	+-------+------------------+-------------+-----------------------+
//	| state |     version      |               offset / 64           |  moving
//	+-------+------------------+-------------------------------------+
//	 63   60 59              38 37                                  0
//
// alive: the node is the bytes up to used. Records are appended behind them, and then the
// word is stored: a reader that has the old word has a node that is whole still.
//
// dead: it was empty, and was alive so long. Its keys belong to its left neighbour,
// as soon as that has taken the fence over.
//
// moving: the node is being written anew, and what it is to be lies in the slot at
// the offset, on the same memory node, which is a shadow of the version.
type word uint64

// A state is what a slot is at present.
type state uint8

const (
	stateVirgin state = iota
	stateAlive
	stateDead
	stateMoving
	stateShadow
	stateFree // in no tree: a free bit on the memory node, or a list of a compute node, has it
	numStates
)

func (s state) String() string {
	if s < numStates {
		return [...]string{"virgin", "alive", "dead", "moving", "shadow", "free"}[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

const (
	wordStateShift   = 60
	wordUsedShift    = 32
	wordUsedMask     = 1<<16 - 1
	wordVersionShift = ptrOffsetBits
	wordVersionBits  = wordStateShift - wordVersionShift
	wordVersionMask  = 1<<wordVersionBits - 1
)

func makeWord(s state, used int, crc uint32) word {
	return word(s)<<wordStateShift | word(used)<<wordUsedShift | word(crc)
}

func movingWord(version uint32, shadow ptr) word {
	return word(stateMoving)<<wordStateShift | word(version&wordVersionMask)<<wordVersionShift | word(shadow.off64())
}

func (w word) state() state    { return state(w >> wordStateShift) }
func (w word) used() int       { return int(w >> wordUsedShift & wordUsedMask) }
func (w word) crc() uint32     { return uint32(w) }
func (w word) version() uint32 { return uint32(w >> wordVersionShift & wordVersionMask) }
func (w word) shadow() uint64  { return uint64(w & maxOffset64) }

// A slot of a node is a lock of the mechanism, and the node behind it:
//
//	offset  bytes
//	  0       8   word
//	  8       8   self: ptr of this node; in a shadow, of the node that it is to be
//	 16       8   link: ptr of the right neighbour, 0 is none
//	 24       8   fencing token of the client that wrote it whole, 0 is none
//	 32       4   version: how often it was written whole
//	 36       2   length of the low fence
//	 38       2   length of the high fence
//	 40       1   level: 0 is a leaf
//	 41       1   flags: 1 is that there is a high fence
//	 42       6   zero
//	 48           low fence, high fence, records
const (
	headerSize = 48

	selfAt    = 8
	linkAt    = 16
	tokenAt   = 24
	versionAt = 32
	lowLenAt  = 36
	highLenAt = 38
	levelAt   = 40
	flagsAt   = 41

	flagHigh = 1

	maxLevel = 15 // of a root
)

// A record is a key and what there is of it. Of records with one key the last counts.
//
//	 31  28 27                  12 11                0
//	+------+----------------------+-------------------+
//	| kind |  length of value     |  length of key    |  key, value
//	+------+----------------------+-------------------+
//
// The value of an out-of-line record is 16 bytes: ptr, length and CRC32C of the value. In
// an inner node, keys are separators and values the ptrs of children.
const (
	recordHeader  = 4
	recValueShift = 12
	recKindShift  = 28
	recKeyMask    = 1<<recValueShift - 1
	recValueMask  = 1<<16 - 1

	outOfLineSize = 16
	childSize     = 8
)

type kind uint8

const (
	kindInline kind = iota
	kindOutOfLine
	kindDeleted
	numKinds
)

// MaxKeySize is the largest size of a key in bytes that a tree can be made for.
const MaxKeySize = 512

// MaxValueSize is the largest size of a value in bytes.
const MaxValueSize = 64 << 10

// The memory of a tree on each of its nodes, that the root entry points to.
//
//	offset  bytes
//	0x000     8    ptr of the root, on the first node
//	0x400          registrations of compute nodes, and rounds in which leaked memory is found, on the first node (package memory/reclaim)
//	0x3000         lines of the classes (package memory/slab)
//	0x3600         the leftmost leaf, on the first node: it is never dead
const (
	rootOffset      = 0x000
	linesOffset     = reclaim.End
	firstLeafOffset = 0x3600
)

// There is room for the lines.
const _ = uint(firstLeafOffset - linesOffset - (numClasses+1)*slab.LineSize)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func get16(b []byte, at int) int           { return int(binary.LittleEndian.Uint16(b[at:])) }
func get32(b []byte, at int) uint32        { return binary.LittleEndian.Uint32(b[at:]) }
func get64(b []byte, at int) uint64        { return binary.LittleEndian.Uint64(b[at:]) }
func put64(b []byte, at int, v uint64)     { binary.LittleEndian.PutUint64(b[at:], v) }
func setWord(b []byte, w word)             { put64(b, 0, uint64(w)) }
func recordSize(key, value int) int        { return recordHeader + key + value }
func checksum(b []byte, used int) uint32   { return crc32.Update(0, castagnoli, b[8:used]) }
func valueSum(b []byte) uint32             { return crc32.Update(0, castagnoli, b) }
func extend(crc uint32, rec []byte) uint32 { return crc32.Update(crc, castagnoli, rec) }

// putRecord writes a record to b, which has room, and returns its size.
func putRecord(b []byte, k kind, key, value []byte) int {
	binary.LittleEndian.PutUint32(b, uint32(k)<<recKindShift|uint32(len(value))<<recValueShift|uint32(len(key)))
	n := recordHeader + copy(b[recordHeader:], key)
	return n + copy(b[n:], value)
}

// A fence is the upper bound of a node's keys. The zero fence is none.
type fence struct {
	key  []byte
	some bool
}

// above reports whether the key is not below the fence; strict: whether it is beyond it.
func (f fence) above(key []byte, strict bool) bool {
	if !f.some {
		return false
	}
	if strict {
		return bytes.Compare(key, f.key) > 0
	}
	return bytes.Compare(key, f.key) >= 0
}

// A node is a node as it was read: its slices point into b.
type node struct {
	b       []byte // from its word on
	word    word   // of a moving node: that of the shadow
	used    int
	self    ptr
	link    ptr
	token   lock.Token
	version uint32
	level   uint8
	low     []byte
	high    fence
	first   int // offset of the first record
	dead    bool
}

// What a READ of a node may turn out to be besides a node.
var (
	errTorn   = errors.New("btree: node changed while it was read")
	errGone   = errors.New("btree: slot is another node now")
	errMoving = errors.New("btree: node is being written anew")
)

// A tornError is that a slot stays torn. A node of the tree is so only if memory is damaged: a writer keeps it whole at
// each point. But a slot in which one was before can be: the writer of a new node there has crashed, or is stopped, or the
// memory node has restarted.
type tornError struct{ slot ptr }

func (e *tornError) Error() string {
	return fmt.Sprintf("%v: node %v stays torn: its checksum is wrong, so its writer has stopped halfway, or memory is damaged", ErrCorrupt, e.slot)
}

func (e *tornError) Unwrap() error { return ErrCorrupt }

// isGone reports whether err says that there is no such node, if memory is not damaged.
func isGone(err error) bool {
	if err == errGone {
		return true
	}
	_, torn := err.(*tornError)
	return torn
}

// decode makes n the node in b, which should be the one that want names. It validates
// all but the records.
func (n *node) decode(b []byte, want ptr) error {
	w := word(get64(b, 0))
	switch w.state() {
	case stateAlive, stateDead:
	case stateMoving:
		n.b, n.word = b, w
		return errMoving
	default:
		return errGone
	}
	if err := n.parse(b, w); err != nil {
		if err == errTorn && ptr(get64(b, selfAt)) != want {
			return errGone // a node names itself as long as it is there, also while it is written
		}
		return err
	}
	n.dead = w.state() == stateDead
	if n.self != want {
		return errGone
	}
	return nil
}

// parse reads the header, if used and checksum are right.
func (n *node) parse(b []byte, w word) error {
	used := w.used()
	if used < headerSize || used > len(b) || checksum(b, used) != w.crc() {
		return errTorn
	}
	n.b, n.word, n.used = b, w, used
	n.self, n.link = ptr(get64(b, selfAt)), ptr(get64(b, linkAt))
	n.token = lock.Token(get64(b, tokenAt))
	n.version = get32(b, versionAt)
	n.level = b[levelAt]
	lowEnd := headerSize + get16(b, lowLenAt)
	n.first = lowEnd + get16(b, highLenAt)
	if n.first > used || n.level > maxLevel {
		return fmt.Errorf("%w: header of %v: fences end at %d of %d, level %d", ErrCorrupt, n.self, n.first, used, n.level)
	}
	n.low = b[headerSize:lowEnd]
	n.high = fence{key: b[lowEnd:n.first], some: b[flagsAt]&flagHigh != 0}
	return nil
}

// decodeShadow makes n the node that b, a shadow, says the moving node want is to be.
func (n *node) decodeShadow(b []byte, want ptr, moving word) error {
	w := word(get64(b, 0))
	if w.state() != stateShadow {
		return errTorn
	}
	if err := n.parse(b, w); err != nil {
		return err
	}
	switch {
	case n.version&wordVersionMask != moving.version():
		return errTorn
	case n.self != want:
		return errGone // another node's, which the slot has become, if the moving word stands
	}
	n.dead = false
	return nil
}

// covers reports whether the node is the one for the key, and if not whether it is further right.
// strict: for what comes just before the key.
func (n *node) covers(key []byte, strict bool) (ok, right bool) {
	if n.high.above(key, strict) {
		return false, true
	}
	c := bytes.Compare(n.low, key)
	return c < 0 || c == 0 && !strict, false
}

// A record as it lies in a node.
type record struct {
	kind  kind
	key   []byte
	value []byte
}

func (r *record) child() ptr { return ptr(get64(r.value, 0)) }

// record returns the record at an offset and the offset behind it; 0 if it makes no sense.
func (n *node) record(at int) (r record, end int) {
	if at+recordHeader > n.used {
		return r, 0
	}
	h := get32(n.b, at)
	mid := at + recordHeader + int(h&recKeyMask)
	end = mid + int(h>>recValueShift&recValueMask)
	r.kind = kind(h >> recKindShift)
	if end > n.used || r.kind >= numKinds || n.level > 0 && r.kind == kindInline && end-mid != childSize ||
		r.kind == kindOutOfLine && end-mid != outOfLineSize {
		return r, 0
	}
	r.key, r.value = n.b[at+recordHeader:mid:mid], n.b[mid:end:end]
	return r, end
}

func (n *node) corrupt(at int) error {
	return fmt.Errorf("%w: node %v: record at %d of %d", ErrCorrupt, n.self, at, n.used)
}

// find returns the last record of a key, if there is one that is not deleted.
func (n *node) find(key []byte) (r record, ok bool, err error) {
	b, used, last := n.b, n.used, 0
	var head uint64
	long := len(key) >= 8
	if long {
		head = binary.LittleEndian.Uint64(key)
	}
	// The record before: the next is often like it.
	before, size, k := uint32(0), recordHeader, 0
	for at := n.first; at < used; {
		if at+recordHeader > used {
			return r, false, n.corrupt(at)
		}
		h := binary.LittleEndian.Uint32(b[at:])
		if h != before {
			before, k = h, int(h&recKeyMask)
			size = recordHeader + k + int(h>>recValueShift&recValueMask)
		}
		end := at + size
		if end > used {
			return r, false, n.corrupt(at)
		}
		if k == len(key) {
			if long {
				if binary.LittleEndian.Uint64(b[at+recordHeader:]) == head &&
					(k == 8 || bytes.Equal(b[at+recordHeader+8:at+recordHeader+k], key[8:])) {
					last = at
				}
			} else if bytes.Equal(b[at+recordHeader:at+recordHeader+k], key) {
				last = at
			}
		}
		at = end
	}
	if last == 0 {
		return r, false, nil
	}
	r, end := n.record(last)
	if end == 0 {
		return r, false, n.corrupt(last)
	}
	return r, r.kind != kindDeleted, nil
}

// An item is a record that counts: what sorted returns.
type item struct {
	record
	raw []byte // header, key, value
}

// sorted appends the records that count to items, in the order of keys.
func (n *node) sorted(items []item) ([]item, error) {
	begin := len(items)
	for at := n.first; at < n.used; {
		r, end := n.record(at)
		if end == 0 {
			return items, n.corrupt(at)
		}
		items = merge(items, begin, item{record: r, raw: n.b[at:end:end]})
		at = end
	}
	return items, nil
}

// merge puts an item, the newest, into items[begin:], which are sorted.
func merge(items []item, begin int, x item) []item {
	lo, hi := begin, len(items)
	if hi > lo && bytes.Compare(items[hi-1].key, x.key) < 0 {
		lo = hi // the common case: records in order
	}
	for lo < hi {
		if mid := (lo + hi) / 2; bytes.Compare(items[mid].key, x.key) < 0 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	there := lo < len(items) && bytes.Equal(items[lo].key, x.key)
	switch {
	case x.kind == kindDeleted && there:
		return slices.Delete(items, lo, lo+1)
	case x.kind == kindDeleted:
		return items
	case there:
		items[lo] = x
		return items
	}
	return slices.Insert(items, lo, x)
}

// An image says what a node is to be.
type image struct {
	self, link ptr
	token      lock.Token
	version    uint32
	level      uint8
	low        []byte
	high       fence
	items      []item
	tail       bool // the last item is new
}

// size returns how many bytes the node takes.
func (m *image) size() int {
	n := headerSize + len(m.low) + len(m.high.key)
	for i := range m.items {
		n += len(m.items[i].raw)
	}
	return n
}

// build writes the node to b, but for its word, and returns its size. Nothing of
// m may lie in b.
func (m *image) build(b []byte) int {
	clear(b[:headerSize])
	put64(b, selfAt, uint64(m.self))
	put64(b, linkAt, uint64(m.link))
	put64(b, tokenAt, uint64(m.token))
	binary.LittleEndian.PutUint32(b[versionAt:], m.version)
	binary.LittleEndian.PutUint16(b[lowLenAt:], uint16(len(m.low)))
	binary.LittleEndian.PutUint16(b[highLenAt:], uint16(len(m.high.key)))
	b[levelAt] = m.level
	if m.high.some {
		b[flagsAt] = flagHigh
	}
	n := headerSize + copy(b[headerSize:], m.low)
	n += copy(b[n:], m.high.key)
	for i := range m.items {
		n += copy(b[n:], m.items[i].raw)
	}
	return n
}

// finish sets the word of a node of n bytes in b.
func finish(b []byte, s state, n int) word {
	w := makeWord(s, n, checksum(b, n))
	setWord(b, w)
	return w
}

// An outOfLine is where the value of an out-of-line record is.
type outOfLine struct {
	at   ptr
	size int
	sum  uint32
}

func (o outOfLine) encode(b []byte) {
	put64(b, 0, uint64(o.at))
	binary.LittleEndian.PutUint32(b[8:], uint32(o.size))
	binary.LittleEndian.PutUint32(b[12:], o.sum)
}

func decodeOutOfLine(b []byte) outOfLine {
	return outOfLine{at: ptr(get64(b, 0)), size: int(get32(b, 8)), sum: get32(b, 12)}
}
