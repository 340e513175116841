package replay

import (
	"slices"
	"strconv"
	"sync"

	"github.com/declock/declock/objstore"
)

// A mapCache is a cache in a map behind a mutex, which its clients share: the plainest implementation of objstore.Cache that is right.
type mapCache struct {
	// MaxValue refuses larger values with ErrValueSize; 0 is no bound.
	MaxValue int

	mu   sync.Mutex
	m    map[string]*object
	last uint64 // unique given out
}

type object struct {
	value   []byte
	flags   uint32
	unique  uint64
	expires uint32 // 0 is never
}

func newMapCache() *mapCache { return &mapCache{m: make(map[string]*object)} }

func (s *mapCache) client() *mapClient { return &mapClient{s: s} }

// A mapClient is one client of a mapCache.
type mapClient struct {
	s   *mapCache
	now uint32
	buf []byte // the last value that Get returned
}

var _ objstore.Clocked = (*mapClient)(nil)

func (c *mapClient) SetNow(seconds uint32) { c.now = seconds }

// locked calls f with the object of a key, nil if there is none that has not expired, while the store is locked.
func (c *mapClient) locked(key []byte, f func(o *object) error) error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	o := c.s.m[string(key)]
	if o != nil && o.expires != 0 && c.now >= o.expires {
		delete(c.s.m, string(key))
		o = nil
	}
	return f(o)
}

// found is locked for operations on what is there.
func (c *mapClient) found(key []byte, f func(o *object) error) error {
	return c.locked(key, func(o *object) error {
		if o == nil {
			return objstore.ErrNotFound
		}
		return f(o)
	})
}

func (c *mapClient) expiry(ttl uint32) uint32 {
	if ttl == 0 || c.now == 0 {
		return 0
	}
	return c.now + ttl
}

// put stores a copy. The store is locked.
func (c *mapClient) put(key, value []byte, o objstore.Options) error {
	s := c.s
	switch {
	case len(key) == 0 || len(key) > objstore.MaxKey:
		return objstore.ErrKeySize
	case s.MaxValue > 0 && len(value) > s.MaxValue:
		return objstore.ErrValueSize
	}
	s.last++
	if old := s.m[string(key)]; old != nil { // in place: the replayer's own allocations are measured
		*old = object{append(old.value[:0], value...), o.Flags, s.last, c.expiry(o.TTL)}
		return nil
	}
	s.m[string(key)] = &object{slices.Clone(value), o.Flags, s.last, c.expiry(o.TTL)}
	return nil
}

func (c *mapClient) Get(key []byte) (it objstore.Item, err error) {
	err = c.found(key, func(o *object) error {
		c.buf = append(c.buf[:0], o.value...)
		it = objstore.Item{Value: c.buf, Flags: o.flags, CAS: o.unique}
		return nil
	})
	return it, err
}

func (c *mapClient) Set(key, value []byte, o objstore.Options) error {
	return c.locked(key, func(*object) error { return c.put(key, value, o) })
}

func (c *mapClient) Add(key, value []byte, o objstore.Options) error {
	return c.locked(key, func(old *object) error {
		if old != nil {
			return objstore.ErrExists
		}
		return c.put(key, value, o)
	})
}

func (c *mapClient) Replace(key, value []byte, o objstore.Options) error {
	return c.found(key, func(*object) error { return c.put(key, value, o) })
}

func (c *mapClient) CompareAndSwap(key, value []byte, o objstore.Options, cas uint64) error {
	return c.found(key, func(old *object) error {
		if old.unique != cas {
			return objstore.ErrExists
		}
		return c.put(key, value, o)
	})
}

func (c *mapClient) Append(key, data []byte) error {
	return c.change(key, func(v []byte) ([]byte, error) { return append(v, data...), nil })
}

func (c *mapClient) Prepend(key, data []byte) error {
	return c.change(key, func(v []byte) ([]byte, error) { return append(slices.Clone(data), v...), nil })
}

func (c *mapClient) Delete(key []byte) error {
	return c.found(key, func(*object) error {
		delete(c.s.m, string(key))
		return nil
	})
}

func (c *mapClient) Incr(key []byte, delta uint64) (uint64, error) {
	return c.count(key, func(n uint64) uint64 { return n + delta })
}

func (c *mapClient) Decr(key []byte, delta uint64) (uint64, error) {
	return c.count(key, func(n uint64) uint64 { return n - min(n, delta) })
}

func (c *mapClient) Touch(key []byte, ttl uint32) error {
	return c.found(key, func(o *object) error {
		o.expires = c.expiry(ttl)
		return nil
	})
}

func (c *mapClient) count(key []byte, f func(uint64) uint64) (n uint64, err error) {
	err = c.change(key, func(v []byte) ([]byte, error) {
		old, err := strconv.ParseUint(string(v), 10, 64)
		if err != nil {
			return nil, objstore.ErrNotNumber
		}
		n = f(old)
		return strconv.AppendUint(v[:0], n, 10), nil
	})
	return n, err
}

// change replaces the value; flags and expiry stay.
func (c *mapClient) change(key []byte, f func(v []byte) ([]byte, error)) error {
	return c.found(key, func(o *object) error {
		v, err := f(o.value)
		if err != nil {
			return err
		}
		if c.s.MaxValue > 0 && len(v) > c.s.MaxValue {
			return objstore.ErrValueSize
		}
		c.s.last++
		o.value, o.unique = v, c.s.last
		return nil
	})
}
