package memcached

import (
	"encoding/binary"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/objstore"
)

// What stands before an item's value in its object:
//
//	offset  bytes
//	  0       8   unique that clients see (CAS)
//	  8       4   number of the flush after which the item was stored
//	 12       1   state: see below
//	 13       1   zero
//	 14       2   milliseconds by which it expires before the object's second of expiry: servers of package redis count so
//	 16           value
const headSize = 16

// A state is what meta commands know of an item.
type state uint8

const (
	stale     state = 1 << iota // md I, ms I: it is to be stored anew
	tokenSent                   // a client has been told that it is the one to do so
)

// A head is what stands before a value.
type head struct {
	cas   uint64
	flush uint32
	state state
	early uint16
}

// unique returns the unique of an item that is stored under a key's lock with a fencing token: it grows with the token, and differs from that of
// another key, which may have the same token.
func unique(key []byte, t lock.Token) uint64 {
	h := uint64(14695981039346656037) // FNV-1a
	for _, b := range key {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return uint64(t) + h>>(64-uniqueBits)
}

// uniqueBits is how many bits of a key's hash are added to tokens.
const uniqueBits = 40

// encode writes the head to b.
func (h *head) encode(b []byte) {
	_ = b[headSize-1]
	binary.LittleEndian.PutUint64(b, h.cas)
	binary.LittleEndian.PutUint32(b[8:], h.flush)
	binary.LittleEndian.PutUint32(b[12:], uint32(h.state)|uint32(h.early)<<16)
}

// decodeHead reads the head before a value. It is not ok in an object that no server of this package has stored.
func decodeHead(b []byte) (h head, ok bool) {
	if len(b) < headSize {
		return h, false
	}
	h.cas = binary.LittleEndian.Uint64(b)
	h.flush = binary.LittleEndian.Uint32(b[8:])
	s := binary.LittleEndian.Uint32(b[12:])
	h.state, h.early = state(s), uint16(s>>16)
	return h, s&0xffff <= uint32(stale|tokenSent) && h.early < 1000
}

// An item is what a client gets.
type item struct {
	head
	flags  uint32
	value  []byte // of a get: it lies in the worker's memory until its next operation
	size   int    // of the value
	expiry uint32 // second of the store's clock, 0 is never
	access uint32
}

// expired reports whether the item is not there any more. What expires at a full second is not there for the store either.
func (it *item) expired(now fabric.Time) bool {
	return it.early != 0 && it.expiry != 0 && int64(now/fabric.Millisecond) >= int64(it.expiry)*1000-int64(it.early)
}

// until returns the second at which the store has the item expire, if its head stays as it is, so that it is there until another.
func (it *item) until(second uint32) uint32 {
	if second != 0 && it.early != 0 {
		second++
	}
	return second
}

// itemOf returns the item in an object of the store.
func itemOf(o *objstore.Item, size int) (it item, ok bool) {
	it.head, ok = decodeHead(o.Value)
	if !ok {
		return it, false
	}
	it.flags, it.value, it.size, it.expiry, it.access = o.Flags, o.Value[headSize:], size-headSize, o.Expiry, o.Access
	return it, true
}
