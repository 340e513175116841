package objstore

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/memory/reclaim"
	"github.com/declock/declock/memory/slab"
)

// Everything in this file is a format: do not change it; a new layout gets a
// new formatVersion. Integers are little-endian.

// formatVersion is in the root entry of every store.
const formatVersion = 4

// A class is a size of chunks. Sizes are 64, 128, 192, ... 512, and then eight to each power of two: 576, 640, ... 1024,
// 1152, ... up to 8 MiB. The last class is of overflow blocks only: nothing leads from a block to its bucket, so its memory stays what it is.
type class uint8

const (
	classBits     = 7
	objectClasses = 120
	overflowClass = class(objectClasses)
	numClasses    = objectClasses + 1
	chunkUnit     = 64 // chunks begin at multiples of it and their sizes are
)

// size returns the size of the class's chunks in bytes.
func (c class) size() uint64 {
	switch {
	case c < 8:
		return chunkUnit * uint64(c+1)
	case c >= objectClasses:
		return overflowSize
	}
	i := uint(c - 8)
	return chunkUnit * uint64(9+i&7) << (i >> 3)
}

// step is how far apart sizes around the class are, in bytes.
func (c class) step() uint64 {
	if c < 8 || c >= objectClasses {
		return chunkUnit
	}
	return chunkUnit << (uint(c-8) >> 3)
}

// maxChunk is the size of the largest class.
const maxChunk = 8 << 20

// classFor returns the smallest class of at least n bytes; n is at most maxChunk.
func classFor(n uint64) class {
	if n <= 8*chunkUnit {
		return class((n+chunkUnit-1)/chunkUnit - 1)
	}
	e := bits.Len64(n-1) - 10 // 512 << e <= n-1 < 1024 << e
	eighth := (n - 1) >> (e + 6)
	return class(uint64(e)*8 + eighth) // eighth is 8 to 15: which eighth of it
}

// A slotWord is a slot of a bucket: it points to an object, or is 0. It only ever
// changes by CAS, and that is what publishes an object.
//
//	 63          51 50     44 43    40 39     34 33                0
//	+--------------+---------+--------+---------+-------------------+
//	| fingerprint  |  class  | slack  |   tag   |    offset / 64    |
//	+--------------+---------+--------+---------+-------------------+
//
// The fingerprint is the low bits of the key's hash. Slack tells how much of
// the chunk need not be read: below 8, that many eighths of the class's step; from 8
// on, all but size >> (slack-7). The tag differs from that of the word which
// the slot held before, so that a late CAS of a holder that lost the lock
// fails even if key and chunk are the same again.
type slotWord uint64

const (
	offsetBits = 34
	tagBits    = 6
	slackBits  = 4
	fpBits     = 13

	tagShift   = offsetBits
	slackShift = tagShift + tagBits
	classShift = slackShift + slackBits
	fpShift    = classShift + classBits

	maxOffset64   = 1<<offsetBits - 1
	linearSlacks  = 8 // slacks that count eighths of a step
	maxTag        = 1<<tagBits - 1
	maxSlack      = 1<<slackBits - 1
	fpMask        = 1<<fpBits - 1
	locationShift = fpBits // the bits of a hash that index the location cache begin here
)

// The fields fill the word.
const _ = uint(fpShift+fpBits-64) + uint(64-fpShift-fpBits)

// A fingerprint is a part of a key's hash in its slot.
type fingerprint uint16

func fingerprintOf(hash uint64) fingerprint { return fingerprint(hash & fpMask) }

// makeSlot returns the word for an object of n bytes in a chunk.
func makeSlot(fp fingerprint, ch chunk, n uint64, tag uint8) slotWord {
	return slotWord(fp)<<fpShift | slotWord(ch.class)<<classShift |
		slotWord(slackFor(ch.class, n))<<slackShift |
		slotWord(tag&maxTag)<<tagShift | slotWord(ch.off64)
}

// slackFor returns the largest slack with which n bytes are still read.
func slackFor(c class, n uint64) uint8 {
	for s := maxSlack; s >= linearSlacks; s-- {
		if c.size()>>(s-linearSlacks+1) >= n {
			return uint8(s)
		}
	}
	return uint8(min((c.size()-n)/(c.step()/8), linearSlacks-1))
}

func (w slotWord) fp() fingerprint { return fingerprint(w >> fpShift) }
func (w slotWord) class() class    { return class(w >> classShift & (1<<classBits - 1)) }
func (w slotWord) tag() uint8      { return uint8(w >> tagShift & maxTag) }
func (w slotWord) chunk() chunk    { return chunk{off64: uint64(w & maxOffset64), class: w.class()} }

// readLen returns how many bytes of the chunk to read, to have the object.
func (w slotWord) readLen() uint64 {
	return uint64(readLens[w>>slackShift&(1<<(classBits+slackBits)-1)])
}

// readLens are by class and slack, as these lie in a slotWord.
var readLens = func() (list [1 << (classBits + slackBits)]uint32) {
	for i := range list {
		c, s := class(i>>slackBits), i&maxSlack
		if list[i] = uint32(c.size() >> max(s-linearSlacks+1, 0)); s < linearSlacks {
			list[i] -= uint32(uint64(s) * (c.step() / 8))
		}
	}
	return list
}()

// moved returns the word when the object is in another chunk of the class.
func (w slotWord) moved(to chunk, tag uint8) slotWord {
	return w.tagged(tag)&^maxOffset64 | slotWord(to.off64)
}

// tagged returns the word with another tag.
func (w slotWord) tagged(tag uint8) slotWord {
	return w&^(maxTag<<tagShift) | slotWord(tag&maxTag)<<tagShift
}

func (w slotWord) String() string {
	return fmt.Sprintf("fp %#x class %d (%d B) read %d tag %d at %#x",
		uint16(w.fp()), w.class(), w.class().size(), w.readLen(), w.tag(), w.chunk().offset())
}

// A chunk is a block of a memory node's memory. The zero chunk is none.
type chunk struct {
	off64 uint64 // offset in units of 64 bytes
	class class
}

func (ch chunk) offset() uint64 { return ch.off64 * chunkUnit }
func (ch chunk) none() bool     { return ch.off64 == 0 }

// A linkWord is the last word of a bucket: it points to an overflow block, a
// chunk with 15 more slots and a link, or is 0.
//
//	 63    56 55    48 47                                0
//	+--------+--------+-----------------------------------+
//	|  0x4f  | class  |              offset               |
//	+--------+--------+-----------------------------------+
//
// class is that of overflow blocks.
type linkWord uint64

const (
	linkMark       = 0x4f
	linkMarkShift  = 56
	linkShift      = 48
	overflowSize   = 128
	overflowSlots  = overflowSize/8 - 1
	maxOverflow    = 4 // overflow blocks of a bucket
	maxOffset      = 1<<linkShift - 1
	slotSize       = 8
	minBucketSlots = 12
)

func makeLink(ch chunk) linkWord {
	return linkMark<<linkMarkShift | linkWord(ch.class)<<linkShift | linkWord(ch.offset())
}

// chunk returns the overflow block; ok is false if the word is no link.
func (w linkWord) chunk() (ch chunk, ok bool) {
	off := uint64(w & maxOffset)
	ch = chunk{off64: off / chunkUnit, class: class(w >> linkShift & 0xff)}
	return ch, w>>linkMarkShift == linkMark && off%chunkUnit == 0 && ch.off64 <= maxOffset64 && ch.class == overflowClass
}

// An object lies in a chunk: its header, its key, its value.
//
//	offset  bytes
//	  0       8   unique of this version of the object
//	  8       4   second of the last access, about  \ one word: replaced in place (expiry.go)
//	 12       4   second of expiry, 0 is never      /
//	 16       4   flags
//	 20       4   length of the value
//	 24       1   length of the key
//	 25       1   class of the chunk
//	 26       1   kind: 0, a list of segments, or a segment (segments.go)
//	 27       1   zero
//	 28       4   check: of the key's hash and what does not change above
//	 32           key, value
type header struct {
	unique   uint64
	access   access
	expiry   expiry
	flags    uint32
	valueLen uint32
	keyLen   uint8
	class    class
	kind     kind
	check    uint32
}

const (
	headerSize = 32
	metaOffset = 8
)

// checkOf returns what the check of the header must be for a key with a hash.
func (h *header) checkOf(hash uint64) uint32 {
	m := mum(h.unique^hashK1, hash^hashK2)
	return uint32(mum(m^uint64(h.flags)<<32^uint64(h.valueLen), hashK3^uint64(h.kind)<<16^uint64(h.keyLen)<<8^uint64(h.class)))
}

// meta is the word of access and expiry.
func (h *header) meta() uint64 { return metaWord(h.expiry, h.access) }

func (h *header) expired(now fabric.Time) bool { return h.expiry.passed(now) }

// size returns the bytes of the object.
func (h *header) size() uint64 { return headerSize + uint64(h.keyLen) + uint64(h.valueLen) }

// encode writes the header to b.
func (h *header) encode(b []byte) {
	_ = b[headerSize-1]
	binary.LittleEndian.PutUint64(b, h.unique)
	binary.LittleEndian.PutUint64(b[metaOffset:], h.meta())
	binary.LittleEndian.PutUint32(b[16:], h.flags)
	binary.LittleEndian.PutUint32(b[20:], h.valueLen)
	binary.LittleEndian.PutUint32(b[24:], uint32(h.keyLen)|uint32(h.class)<<8|uint32(h.kind)<<16)
	binary.LittleEndian.PutUint32(b[28:], h.check)
}

// decode reads the header from b, the object that w points to, and validates
// its lengths. The check needs the key: see checkOf.
func (h *header) decode(b []byte, w slotWord) error {
	_ = b[headerSize-1]
	h.unique = binary.LittleEndian.Uint64(b)
	h.expiry, h.access = fromMeta(wordAt(b, metaOffset/8))
	h.flags = binary.LittleEndian.Uint32(b[16:])
	h.valueLen = binary.LittleEndian.Uint32(b[20:])
	k := binary.LittleEndian.Uint32(b[24:])
	h.keyLen, h.class, h.kind = uint8(k), class(k>>8&0xff), kind(k>>16)
	h.check = binary.LittleEndian.Uint32(b[28:])
	if k>>24 != 0 || h.kind > kindSegment || h.keyLen == 0 || h.keyLen > MaxKey || h.class != w.class() || h.size() > w.readLen() {
		return fmt.Errorf("%w: header: key %d B, value %d B, class word %#x in %v",
			ErrCorrupt, h.keyLen, h.valueLen, k, w)
	}
	return nil
}

// The memory of a store on each of its nodes, that the root entry points to.
//
//	offset  bytes
//	0x000     8    incarnations: one for each client ever opened
//	0x100   576    epochs, if slots open (reclaim.Grace)
//	0x400          registrations of compute nodes, and rounds in which leaked memory is found, on the first node (package reclaim)
//	0x3000         lines of the classes (package slab)
//	0x5000         buckets
//
// A bucket is a lock, slots, a link:
//
//	+-------------------------+--------+-----+--------+------+
//	| lock (the mechanism's)  | slot 0 | ... | slot n | link |
//	+-------------------------+--------+-----+--------+------+
const (
	incarnationOffset = 0x000
	graceOffset       = 0x100
	linesOffset       = reclaim.End
	tableOffset       = 0x5000
)

// There is room for the epochs, and for the lines.
const _ = uint(reclaim.Offset - graceOffset - reclaim.GraceBytes)
const _ = uint(tableOffset - linesOffset - (numClasses+1)*slab.LineSize)

// wordAt returns the i-th word of b.
func wordAt(b []byte, i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }

func putWord(b []byte, i int, v uint64) { binary.LittleEndian.PutUint64(b[8*i:], v) }
