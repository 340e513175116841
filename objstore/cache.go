package objstore

import (
	"errors"

	"github.com/declock/declock/fabric"
)

// Errors of cache operations, for errors.Is. Errors of locks and of the fabric come wrapped.
var (
	// ErrNotFound: there is no live object with the key (memcached: NOT_FOUND, or NOT_STORED of replace, append and prepend).
	ErrNotFound = errors.New("objstore: key not found")
	// ErrExists: add found a live object (NOT_STORED), or cas found a changed one (EXISTS).
	ErrExists = errors.New("objstore: key exists")
	// ErrNotNumber: incr or decr of a value that is not a decimal unsigned 64-bit number.
	ErrNotNumber = errors.New("objstore: value is not a decimal number")
	// ErrKeySize: a key must have 1 to MaxKey bytes.
	ErrKeySize = errors.New("objstore: key size out of range")
	// ErrValueSize: the value is larger than the store was made for.
	ErrValueSize = errors.New("objstore: value too large")
	// ErrClosed: the client, its session or its compute node has been closed.
	ErrClosed = fabric.ErrClosed
	// ErrNoSpace: memory is full and nothing that could be evicted makes room.
	ErrNoSpace = errors.New("objstore: out of memory")
	// ErrDropped: the store has been dropped.
	ErrDropped = errors.New("objstore: store has been dropped")
	// ErrCorrupt: remote memory does not hold what the store's layout says.
	ErrCorrupt = errors.New("objstore: corrupt remote memory")
)

// MaxKey is the largest size of a key in bytes (memcached's).
const MaxKey = 250

// An Item is what Get finds. Value is valid until the client's next operation ends: its key and data may be slices of Value.
type Item struct {
	Value []byte
	Flags uint32
	CAS   uint64 // unique of this version of the object: see CompareAndSwap
	// Expiry and Access are the seconds of the store's clock (Client.Now) in which the object expires, 0 is never, and in which it was
	// used last, about. It expires Early milliseconds before Expiry begins. An adapter to another cache may leave them out.
	Expiry, Access uint32
	Early          uint16
}

// Options of an object that is stored.
type Options struct {
	Flags uint32 // the user's own
	TTL   uint32 // seconds until the object expires, at least, and less than one more; 0 is never
	// Millis, if not 0, is in the place of TTL: milliseconds until the object expires, neither more nor less by the clock of the client.
	Millis uint64
}

// Cache is one client's view of a cache, with memcached's meaning of each
// operation. *Client implements it, and so do adapters to other caches, to compare.
// One goroutine uses it at a time. Every operation on a key is linearizable.
type Cache interface {
	// Get returns the object. (memcached's gets: Item.CAS is always there.)
	Get(key []byte) (Item, error)
	// Set stores the object, whatever was there.
	Set(key, value []byte, o Options) error
	// Add stores the object if there is none: else ErrExists.
	Add(key, value []byte, o Options) error
	// Replace stores the object if there is one: else ErrNotFound.
	Replace(key, value []byte, o Options) error
	// CompareAndSwap stores the object if the present one still has the given
	// unique: else ErrExists; ErrNotFound if there is none.
	CompareAndSwap(key, value []byte, o Options, cas uint64) error
	// Append adds data behind the value; flags and expiry stay.
	Append(key, data []byte) error
	// Prepend adds data before the value; flags and expiry stay.
	Prepend(key, data []byte) error
	// Delete removes the object.
	Delete(key []byte) error
	// Incr adds to a decimal value, modulo 2^64, and returns the new one.
	Incr(key []byte, delta uint64) (uint64, error)
	// Decr subtracts from a decimal value, not below 0, and returns the new one.
	Decr(key []byte, delta uint64) (uint64, error)
	// Touch gives the object a new TTL from now.
	Touch(key []byte, ttl uint32) error
}

// Clocked is a Cache whose idea of now, for expiry, can be set: a replayer
// that honours TTLs by trace time does.
type Clocked interface {
	Cache
	// SetNow fixes the time in seconds (of any origin that all clients share); 0 returns to the Port's clock.
	SetNow(seconds uint32)
}
