package btree

import "encoding/binary"

// Uint64 is a client of a tree whose keys are numbers, in their order. It does what Client does, and is as fast.
type Uint64 struct {
	*Client
	key [8]byte
}

// Uint64 returns the client for keys that are numbers: the tree must hold no others.
func (c *Client) Uint64() *Uint64 { return &Uint64{Client: c} }

func (u *Uint64) bytes(key uint64) []byte {
	binary.BigEndian.PutUint64(u.key[:], key)
	return u.key[:]
}

// Get is Client.Get.
func (u *Uint64) Get(key uint64) ([]byte, error) { return u.Client.Get(u.bytes(key)) }

// Put is Client.Put.
func (u *Uint64) Put(key uint64, value []byte) error { return u.Client.Put(u.bytes(key), value) }

// Insert is Client.Insert.
func (u *Uint64) Insert(key uint64, value []byte) error { return u.Client.Insert(u.bytes(key), value) }

// CompareAndPut is Client.CompareAndPut.
func (u *Uint64) CompareAndPut(key uint64, old, value []byte) error {
	return u.Client.CompareAndPut(u.bytes(key), old, value)
}

// Delete is Client.Delete.
func (u *Uint64) Delete(key uint64) error { return u.Client.Delete(u.bytes(key)) }

// Each calls f for keys from one on, in order, until it returns false or limit keys were there; 0 is no limit.
func (u *Uint64) Each(from uint64, descending bool, limit int, f func(key uint64, value []byte) bool) error {
	return u.Client.Each(Range{From: u.bytes(from), Descending: descending, Limit: limit}, func(k, v []byte) bool {
		return f(KeyUint64(k), v)
	})
}

// KeyUint64 returns the number that a key of such a tree is.
func KeyUint64(key []byte) uint64 {
	if len(key) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(key)
}
