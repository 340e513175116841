package declock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/declock/declock/objstore"
)

// SetOptions of an object that is stored. The zero value is good for most.
type SetOptions struct {
	// TTL is how long the object lives at least. The store counts in seconds: it is gone less than a second, and what TTL lacks to a full one, later.
	// 0 is for ever.
	TTL time.Duration
	// Flags are the program's own: see objstore.Item.
	Flags uint32
}

// ErrTTL: a TTL below 0.
var ErrTTL = errors.New("declock: negative TTL")

// seconds returns a TTL as the store has it.
func seconds(ttl time.Duration) (uint32, error) {
	if ttl < 0 {
		return 0, fmt.Errorf("%w: %v", ErrTTL, ttl)
	}
	return uint32(min((ttl+time.Second-1)/time.Second, math.MaxUint32)), nil
}

// A storeUse is a client of a store that an operation has, from begin to end.
type storeUse struct {
	*objstore.Client
	st    *Store
	w     *worker
	begun int
}

// begin begins an operation.
func (st *Store) begin(ctx context.Context) (u storeUse, err error) {
	w, err := st.c.work.take(ctx)
	if err != nil {
		return u, err
	}
	cl, err := w.store(st)
	if err != nil {
		w.home.give(w)
		return u, err
	}
	begun, err := w.s.s.Begin(ctx)
	if err != nil {
		w.home.give(w)
		return u, err
	}
	return storeUse{cl, st, w, begun}, nil
}

// end ends an operation, and returns its error.
func (u *storeUse) end(ctx context.Context, err error) error {
	if u.begun != 0 {
		err = u.w.s.s.End(ctx, u.begun, err)
	}
	switch {
	case err == nil:
		u.Trim()
	case errors.Is(err, ErrMemoryLost):
		u.st.notified.Store(u.st.Losses())
	case errors.Is(err, objstore.ErrDropped):
		u.Client.Close()
		delete(u.w.stores, u.st)
	}
	u.w.home.give(u.w)
	return err
}

// Get appends the value of a key to dst, which may be nil, and returns the result. objstore.ErrNotFound: there is none.
func (st *Store) Get(ctx context.Context, key, dst []byte) ([]byte, error) {
	u, err := st.begin(ctx)
	if err != nil {
		return dst, err
	}
	it, err := u.Get(key)
	if err == nil {
		dst = append(dst, it.Value...)
	}
	return dst, u.end(ctx, err)
}

// GetItem is Get with the object's flags, expiry, and the CAS for CompareAndSwap. Item.Value is what Get returns.
func (st *Store) GetItem(ctx context.Context, key, dst []byte) (objstore.Item, error) {
	u, err := st.begin(ctx)
	if err != nil {
		return objstore.Item{Value: dst}, err
	}
	it, err := u.Get(key)
	it.Value = append(dst, it.Value...)
	return it, u.end(ctx, err)
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
	ttl, err := seconds(o.TTL)
	if err != nil {
		return err
	}
	u, err := st.begin(ctx)
	if err != nil {
		return err
	}
	return u.end(ctx, f(u.Client, objstore.Options{Flags: o.Flags, TTL: ttl}))
}

// Append adds data behind the value; flags and expiry stay. objstore.ErrNotFound: there is no object.
func (st *Store) Append(ctx context.Context, key, data []byte) error {
	u, err := st.begin(ctx)
	if err != nil {
		return err
	}
	return u.end(ctx, u.Append(key, data))
}

// Prepend adds data before the value; flags and expiry stay. objstore.ErrNotFound: there is no object.
func (st *Store) Prepend(ctx context.Context, key, data []byte) error {
	u, err := st.begin(ctx)
	if err != nil {
		return err
	}
	return u.end(ctx, u.Prepend(key, data))
}

// Delete removes the object. objstore.ErrNotFound: there is none.
func (st *Store) Delete(ctx context.Context, key []byte) error {
	u, err := st.begin(ctx)
	if err != nil {
		return err
	}
	return u.end(ctx, u.Delete(key))
}

// Incr adds to a decimal value, modulo 2^64, and returns the new one. objstore.ErrNotFound: there is none.
func (st *Store) Incr(ctx context.Context, key []byte, delta uint64) (uint64, error) {
	u, err := st.begin(ctx)
	if err != nil {
		return 0, err
	}
	v, err := u.Incr(key, delta)
	return v, u.end(ctx, err)
}

// Decr subtracts from a decimal value, not below 0, and returns the new one. objstore.ErrNotFound: there is none.
func (st *Store) Decr(ctx context.Context, key []byte, delta uint64) (uint64, error) {
	u, err := st.begin(ctx)
	if err != nil {
		return 0, err
	}
	v, err := u.Decr(key, delta)
	return v, u.end(ctx, err)
}

// Touch gives the object a new TTL from now; 0 is for ever. objstore.ErrNotFound: there is none.
func (st *Store) Touch(ctx context.Context, key []byte, ttl time.Duration) error {
	s, err := seconds(ttl)
	if err != nil {
		return err
	}
	u, err := st.begin(ctx)
	if err != nil {
		return err
	}
	return u.end(ctx, u.Touch(key, s))
}

// Update changes the object of a key as a function decides that sees it: see objstore.Update. It is called at most once, under the
// lock of the key's bucket, so it must neither wait nor use the store; what it is given is valid until it returns.
func (st *Store) Update(ctx context.Context, key []byte, change objstore.Update) error {
	u, err := st.begin(ctx)
	if err != nil {
		return err
	}
	returned := false
	defer func() {
		if !returned { // it has panicked: the session is in the middle of an operation
			u.w.home.lose()
		}
	}()
	err = u.Update(key, change)
	returned = true
	return u.end(ctx, err)
}
