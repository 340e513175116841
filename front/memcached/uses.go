package memcached

import (
	"hash/maphash"
	"sync/atomic"
)

// uses is what a server knows of when it has given items to clients last, for the flags h and l of mg: the store notes it to some seconds only. It
// forgets what others take the place of.
type uses struct {
	seed maphash.Seed
	list []atomic.Uint64 // hash of key, and second
}

const (
	numUses = 1 << 16
	useTag  = 1<<32 - 1
)

func (u *uses) init() {
	u.seed = maphash.MakeSeed()
	u.list = make([]atomic.Uint64, numUses)
}

// note notes that a key has been got in a second.
func (u *uses) note(key []byte, now uint32) { u.noteHash(u.hash(key), now) }

func (u *uses) hash(key []byte) uint64 { return maphash.Bytes(u.seed, key) }

// noteHash is note of a key with a hash.
func (u *uses) noteHash(h uint64, now uint32) {
	v := h&^useTag | uint64(now)
	if e := &u.list[h%numUses]; e.Load() != v {
		e.Store(v)
	}
}

// last reports whether a key has been got since its item was stored, and when that was, or when it was stored.
func (u *uses) last(key []byte, it *entry) (hit bool, second uint32) {
	h := u.hash(key)
	v := u.list[h%numUses].Load()
	if v&^useTag != h&^useTag {
		return false, it.access
	}
	return true, max(uint32(v), it.access)
}

// forget forgets the uses of a key: it has a new item.
func (u *uses) forget(key []byte) {
	h := u.hash(key)
	if e := &u.list[h%numUses]; e.Load()&^useTag == h&^useTag {
		e.Store(0)
	}
}
