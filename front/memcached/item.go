package memcached

import (
	"github.com/declock/declock/front/item"
	"github.com/declock/declock/objstore"
)

// headSize is the size of what stands before an item's value in its object.
const headSize = item.HeadSize

// The states of items that meta commands know.
const (
	stale     uint8 = 1 << iota // md I, ms I: it is to be stored anew
	tokenSent                   // a client has been told that it is the one to do so
)

// An entry is an item that a client gets.
type entry struct {
	item.Head
	flags  uint32
	value  []byte // of a get: it lies in the worker's memory until its next operation
	size   int    // of the value
	expiry uint32 // second of the store's clock, 0 is never
	early  uint16 // milliseconds by which it expires before
	access uint32
}

// itemOf makes it the item in an object of the store, and reports whether that has one.
func (it *entry) itemOf(o *objstore.Item, size int) bool {
	if !it.Decode(o.Value) {
		return false
	}
	it.flags, it.value, it.size, it.expiry, it.early, it.access = o.Flags, o.Value[headSize:], size-headSize, o.Expiry, o.Early, o.Access
	return true
}
