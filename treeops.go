package declock

import (
	"bytes"
	"context"
	"errors"

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

// Update changes the value of a key as a function decides, which sees what is there, or nil if there is nothing, and returns what is to be there; nil leaves it as it is. No other
// change of the key takes place in between: if one did, the function is called again, with a value of its own each time.
func (t *Tree) Update(ctx context.Context, key []byte, change func(value []byte) []byte) error {
	for {
		old, err := t.Get(ctx, key, []byte{})
		there := !errors.Is(err, btree.ErrNotFound)
		if there && err != nil {
			return err
		}
		if !there {
			old = nil
		}
		value := change(bytes.Clone(old))
		switch {
		case value == nil:
			return nil
		case there:
			err = t.CompareAndPut(ctx, key, old, value)
		default:
			err = t.Insert(ctx, key, value)
		}
		if !errors.Is(err, btree.ErrChanged) && !errors.Is(err, btree.ErrExists) && !errors.Is(err, btree.ErrNotFound) {
			return err
		}
	}
}

// Delete removes a key. btree.ErrNotFound: there is none.
func (t *Tree) Delete(ctx context.Context, key []byte) error {
	return t.shared.do(ctx, func(c *btree.Client) error { return c.Delete(key) })
}
