package item

import (
	"encoding/binary"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/objstore"
)

// HeadSize is the size of what stands before an item's value in its object:
//
//	offset  bytes
//	  0       8   unique of this version of the item, which memcached's clients see as CAS
//	  8       4   number of the flush after which the item was stored
//	 12       1   state, of memcached's meta commands
//	 13       3   zero; the last two may be anything
//	 16           value
const HeadSize = 16

// mostState is the largest state that servers of memcached's clients store.
const mostState = 3

// A Head is what stands before a value.
type Head struct {
	Unique uint64
	Flush  uint32
	State  uint8
}

// Encode writes the head to b.
func (h *Head) Encode(b []byte) {
	_ = b[HeadSize-1]
	binary.LittleEndian.PutUint64(b, h.Unique)
	binary.LittleEndian.PutUint32(b[8:], h.Flush)
	binary.LittleEndian.PutUint32(b[12:], uint32(h.State))
}

// Decode reads the head before a value. It is not ok in an object that no server has stored.
func (h *Head) Decode(b []byte) (ok bool) {
	if len(b) < HeadSize {
		return false
	}
	h.Unique = binary.LittleEndian.Uint64(b)
	h.Flush = binary.LittleEndian.Uint32(b[8:])
	h.State = b[12]
	return h.State <= mostState && b[13] == 0
}

// An Item is what clients see of an object.
type Item struct {
	Head
	Flags  uint32
	Value  []byte
	Size   int             // of the whole value, of which Value may be the beginning
	Large  *objstore.Large // of View and ViewMany: Value is the beginning, and Read reads all of it; else nil
	Expiry int64           // Unix time in milliseconds; 0 is never
	Clock  fabric.Time     // the store's, by which it expires, at the moment of the operation
}

// itemOf makes it the item in an object, of size bytes with its head, and reports whether that has one. It was the zero Item.
func (it *Item) itemOf(o *objstore.Item, size int, now fabric.Time) bool {
	it.Clock = now
	if !it.Decode(o.Value) {
		return false
	}
	it.Flags, it.Value, it.Size = o.Flags, o.Value[HeadSize:], size-HeadSize
	if o.Expiry != 0 {
		it.Expiry = int64(o.Expiry)*1000 - int64(o.Early)
	}
	return true
}

// NowMs is the clock in milliseconds, rounded up: what expires so much later than now does not do so early.
func (it *Item) NowMs() int64 { return int64((it.Clock + fabric.Millisecond - 1) / fabric.Millisecond) }

// LastExpiry is the latest expiry that an item may have, in 2106.
const LastExpiry = (1<<32 - 1) * 1000

// expiryOf returns the second at which the store has the item expire, and by how many milliseconds it expires earlier. What is before the store's time expires at its begin.
func expiryOf(ms int64) (second uint32, early uint16) {
	if ms == 0 {
		return 0, 0
	}
	ms = min(max(ms, 1), LastExpiry)
	s := (ms + 999) / 1000
	return uint32(s), uint16(s*1000 - ms)
}

// Unique returns the unique of an item that is stored under a key's lock with a fencing token: it grows with the token, and differs from that of
// another key, which may have the same token.
func Unique(key []byte, t lock.Token) uint64 {
	h := uint64(14695981039346656037) // FNV-1a
	for _, b := range key {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return uint64(t) + h>>(64-uniqueBits)
}

// uniqueBits is how many bits of a key's hash are added to tokens.
const uniqueBits = 40
