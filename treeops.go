package declock

import (
	"context"

	"github.com/declock/declock/btree"
)

// Get appends the value of a key to dst, which may be nil, and returns the result. btree.ErrNotFound: there is none.
func (t *Tree) Get(ctx context.Context, key, dst []byte) ([]byte, error) {
	err := t.shared.do(ctx, func(c *btree.Client) error {
		v, err := c.Get(key)
		if err == nil {
			dst = append(dst, v...)
		}
		return err
	})
	return dst, err
}

// Put stores a value, whatever was there.
func (t *Tree) Put(ctx context.Context, key, value []byte) error {
	return t.shared.do(ctx, func(c *btree.Client) error { return c.Put(key, value) })
}

// Insert stores a value if the key is not there: else btree.ErrExists.
func (t *Tree) Insert(ctx context.Context, key, value []byte) error {
	return t.shared.do(ctx, func(c *btree.Client) error { return c.Insert(key, value) })
}

// CompareAndPut stores a value if the present one equals old: else btree.ErrChanged; btree.ErrNotFound if there is none.
func (t *Tree) CompareAndPut(ctx context.Context, key, old, value []byte) error {
	return t.shared.do(ctx, func(c *btree.Client) error { return c.CompareAndPut(key, old, value) })
}

// Delete removes a key. btree.ErrNotFound: there is none.
func (t *Tree) Delete(ctx context.Context, key []byte) error {
	return t.shared.do(ctx, func(c *btree.Client) error { return c.Delete(key) })
}
