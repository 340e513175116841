package declock

import (
	"context"
	"errors"

	"github.com/declock/declock/btree"
)

// A treeUse is a client of a tree that an operation has, from begin to end.
type treeUse struct {
	*btree.Client
	t     *Tree
	w     *worker
	begun int
}

// begin begins an operation.
func (t *Tree) begin(ctx context.Context) (u treeUse, err error) {
	w, err := t.c.work.take(ctx)
	if err != nil {
		return u, err
	}
	cl, err := w.tree(t)
	if err != nil {
		w.home.give(w)
		return u, err
	}
	begun, err := w.s.s.Begin(ctx)
	if err != nil {
		w.home.give(w)
		return u, err
	}
	return treeUse{cl, t, w, begun}, nil
}

// end ends an operation, and returns its error.
func (u *treeUse) end(ctx context.Context, err error) error {
	if u.begun != 0 {
		err = u.w.s.s.End(ctx, u.begun, err)
	}
	switch {
	case err == nil:
	case errors.Is(err, ErrMemoryLost):
		u.t.notified.Store(u.t.Losses())
	case errors.Is(err, btree.ErrDropped):
		u.Client.Close()
		delete(u.w.trees, u.t)
	}
	u.w.home.give(u.w)
	return err
}

// Get appends the value of a key to dst, which may be nil, and returns the result. btree.ErrNotFound: there is none.
func (t *Tree) Get(ctx context.Context, key, dst []byte) ([]byte, error) {
	u, err := t.begin(ctx)
	if err != nil {
		return dst, err
	}
	v, err := u.Get(key)
	if err == nil {
		dst = append(dst, v...)
	}
	return dst, u.end(ctx, err)
}

// Put stores a value, whatever was there.
func (t *Tree) Put(ctx context.Context, key, value []byte) error {
	u, err := t.begin(ctx)
	if err != nil {
		return err
	}
	return u.end(ctx, u.Put(key, value))
}

// Insert stores a value if the key is not there: else btree.ErrExists.
func (t *Tree) Insert(ctx context.Context, key, value []byte) error {
	u, err := t.begin(ctx)
	if err != nil {
		return err
	}
	return u.end(ctx, u.Insert(key, value))
}

// CompareAndPut stores a value if the present one equals old: else btree.ErrChanged; btree.ErrNotFound if there is none.
func (t *Tree) CompareAndPut(ctx context.Context, key, old, value []byte) error {
	u, err := t.begin(ctx)
	if err != nil {
		return err
	}
	return u.end(ctx, u.CompareAndPut(key, old, value))
}

// Delete removes a key. btree.ErrNotFound: there is none.
func (t *Tree) Delete(ctx context.Context, key []byte) error {
	u, err := t.begin(ctx)
	if err != nil {
		return err
	}
	return u.end(ctx, u.Delete(key))
}
