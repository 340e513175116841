package declock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/declock/declock/objstore"
)

// SetOptions of an object that is stored. The zero value is good for most.
type SetOptions struct {
	// TTL is how long the object lives, to the millisecond: what is not a whole one is rounded up.
	// 0 is for ever.
	TTL time.Duration
	// Flags are the program's own: see objstore.Item.
	Flags uint32
}

// ErrTTL: a TTL below 0.
var ErrTTL = errors.New("declock: negative TTL")

// millis returns a TTL as the store has it.
func millis(ttl time.Duration) (uint64, error) {
	if ttl < 0 {
		return 0, fmt.Errorf("%w: %v", ErrTTL, ttl)
	}
	ms := uint64(ttl / time.Millisecond)
	if ttl%time.Millisecond != 0 {
		ms++
	}
	return ms, nil
}

// Get appends the value of a key to dst, which may be nil, and returns the result. objstore.ErrNotFound: there is none.
func (st *Store) Get(ctx context.Context, key, dst []byte) ([]byte, error) {
	err := st.shared.do(ctx, func(c *objstore.Client) error {
		var err error
		_, dst, err = c.GetTo(key, dst)
		return err
	})
	return dst, err
}

// GetItem is Get with the object's flags, expiry, and the CAS for CompareAndSwap. Item.Value is what Get returns.
func (st *Store) GetItem(ctx context.Context, key, dst []byte) (it objstore.Item, err error) {
	err = st.shared.do(ctx, func(c *objstore.Client) (err error) {
		it, dst, err = c.GetTo(key, dst)
		return err
	})
	it.Value = dst
	return it, err
}

// Set stores the object, whatever was there.
func (st *Store) Set(ctx context.Context, key, value []byte, o SetOptions) error {
	return st.store(ctx, o, func(c *objstore.Client, o objstore.Options) error { return c.Set(key, value, o) })
}

// Add stores the object if there is none: else objstore.ErrExists.
func (st *Store) Add(ctx context.Context, key, value []byte, o SetOptions) error {
	return st.store(ctx, o, func(c *objstore.Client, o objstore.Options) error { return c.Add(key, value, o) })
}

// Replace stores the object if there is one: else objstore.ErrNotFound.
func (st *Store) Replace(ctx context.Context, key, value []byte, o SetOptions) error {
	return st.store(ctx, o, func(c *objstore.Client, o objstore.Options) error { return c.Replace(key, value, o) })
}

// CompareAndSwap stores the object if the present one still has the CAS that GetItem returned: else objstore.ErrExists; objstore.ErrNotFound if there is none.
func (st *Store) CompareAndSwap(ctx context.Context, key, value []byte, o SetOptions, cas uint64) error {
	return st.store(ctx, o, func(c *objstore.Client, o objstore.Options) error { return c.CompareAndSwap(key, value, o, cas) })
}

func (st *Store) store(ctx context.Context, o SetOptions, f func(*objstore.Client, objstore.Options) error) error {
	ttl, err := millis(o.TTL)
	if err != nil {
		return err
	}
	return st.shared.do(ctx, func(c *objstore.Client) error { return f(c, objstore.Options{Flags: o.Flags, Millis: ttl}) })
}

// Append adds data behind the value; flags and expiry stay. objstore.ErrNotFound: there is no object.
func (st *Store) Append(ctx context.Context, key, data []byte) error {
	return st.shared.do(ctx, func(c *objstore.Client) error { return c.Append(key, data) })
}

// Prepend adds data before the value; flags and expiry stay. objstore.ErrNotFound: there is no object.
func (st *Store) Prepend(ctx context.Context, key, data []byte) error {
	return st.shared.do(ctx, func(c *objstore.Client) error { return c.Prepend(key, data) })
}

// Delete removes the object. objstore.ErrNotFound: there is none.
func (st *Store) Delete(ctx context.Context, key []byte) error {
	return st.shared.do(ctx, func(c *objstore.Client) error { return c.Delete(key) })
}

// Incr adds to a decimal value, modulo 2^64, and returns the new one. objstore.ErrNotFound: there is none.
func (st *Store) Incr(ctx context.Context, key []byte, delta uint64) (v uint64, err error) {
	err = st.shared.do(ctx, func(c *objstore.Client) (err error) {
		v, err = c.Incr(key, delta)
		return err
	})
	return v, err
}

// Decr subtracts from a decimal value, not below 0, and returns the new one. objstore.ErrNotFound: there is none.
func (st *Store) Decr(ctx context.Context, key []byte, delta uint64) (v uint64, err error) {
	err = st.shared.do(ctx, func(c *objstore.Client) (err error) {
		v, err = c.Decr(key, delta)
		return err
	})
	return v, err
}

// Touch gives the object a new TTL from now; 0 is for ever. objstore.ErrNotFound: there is none.
func (st *Store) Touch(ctx context.Context, key []byte, ttl time.Duration) error {
	ms, err := millis(ttl)
	if err != nil {
		return err
	}
	return st.shared.do(ctx, func(c *objstore.Client) error { return c.TouchAs(key, objstore.Options{Millis: ms}) })
}

// Update changes the object of a key as a function decides that sees it: see objstore.Update. It is called under the
// lock of the key's bucket, so it must neither wait nor use the store; what it is given is valid until it returns. It may be called again, if memory has copies or values have segments: only what it
// decides last takes place. If it panics, nothing is changed.
func (st *Store) Update(ctx context.Context, key []byte, change objstore.Update) error {
	return st.shared.do(ctx, func(c *objstore.Client) error { return c.Update(key, change) })
}
