package declock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/declock/declock/btree"
	"github.com/declock/declock/objstore"
)

// GetMulti gets many keys at once: over a network in the time of two round trips, or one if this process knows where all objects are, for some 100 keys of small
// objects. The results are in the order of the keys; their values are the caller's. The Err of a key that is not there is objstore.ErrNotFound. GetMulti returns the first
// other error that a key has met.
func (st *Store) GetMulti(ctx context.Context, keys [][]byte) ([]objstore.Result, error) {
	results := make([]objstore.Result, len(keys))
	err := st.shared.do(ctx, func(c *objstore.Client) error {
		var err error
		for n, done := 0, 0; done < len(keys) && err == nil; done += n {
			n, _, err = c.GetMulti(keys[done:], results[done:], nil)
		}
		for i := range results {
			if e := results[i].Err; err == nil && e != nil && !errors.Is(e, objstore.ErrNotFound) {
				err = fmt.Errorf("declock: key %.40q: %w", keys[i], e)
			}
		}
		return err
	})
	return results, err
}

// A SetItem is an object to be stored, among others.
type SetItem struct {
	Key, Value []byte
	SetOptions
}

// SetMulti stores objects, several at a time, each as by Set. Its error joins those of all.
func (st *Store) SetMulti(ctx context.Context, items []SetItem) error {
	return several(len(items), func(i int) error {
		x := &items[i]
		if err := st.Set(ctx, x.Key, x.Value, x.SetOptions); err != nil {
			return fmt.Errorf("declock: key %.40q: %w", x.Key, err)
		}
		return nil
	})
}

// DeleteMulti removes objects, several at a time, each as by Delete, and returns how many there were. Its error joins those of all.
func (st *Store) DeleteMulti(ctx context.Context, keys [][]byte) (deleted int, err error) {
	return deleteSeveral(keys, func(key []byte) error { return st.Delete(ctx, key) }, objstore.ErrNotFound)
}

// deleteSeveral calls remove for all keys, and returns for how many that did not return none.
func deleteSeveral(keys [][]byte, remove func(key []byte) error, none error) (deleted int, err error) {
	var n atomic.Int64
	err = several(len(keys), func(i int) error {
		err := remove(keys[i])
		switch {
		case err == nil:
			n.Add(1)
		case !errors.Is(err, none):
			return fmt.Errorf("declock: key %.40q: %w", keys[i], err)
		}
		return nil
	})
	return int(n.Load()), err
}

// A TreeItem is what a tree has of a key.
type TreeItem struct {
	Key, Value []byte
	Err        error // of GetMulti; btree.ErrNotFound: there is none
}

// GetMulti gets many keys, several at a time, each as by Get. The items are in the order of the keys; the error joins those of all but btree.ErrNotFound.
func (t *Tree) GetMulti(ctx context.Context, keys [][]byte) ([]TreeItem, error) {
	items := make([]TreeItem, len(keys))
	err := several(len(keys), func(i int) error {
		x := &items[i]
		x.Key = keys[i]
		if x.Value, x.Err = t.Get(ctx, x.Key, nil); x.Err != nil && !errors.Is(x.Err, btree.ErrNotFound) {
			return fmt.Errorf("declock: key %.40q: %w", x.Key, x.Err)
		}
		return nil
	})
	return items, err
}

// PutMulti stores keys with their values, several at a time, each as by Put. Its error joins those of all.
func (t *Tree) PutMulti(ctx context.Context, items []TreeItem) error {
	return several(len(items), func(i int) error {
		if err := t.Put(ctx, items[i].Key, items[i].Value); err != nil {
			return fmt.Errorf("declock: key %.40q: %w", items[i].Key, err)
		}
		return nil
	})
}

// DeleteMulti removes keys, several at a time, each as by Delete, and returns how many there were. Its error joins those of all.
func (t *Tree) DeleteMulti(ctx context.Context, keys [][]byte) (deleted int, err error) {
	return deleteSeveral(keys, func(key []byte) error { return t.Delete(ctx, key) }, btree.ErrNotFound)
}

// severalAt is how many operations of a batch of changes are under way at a time: 100 keys at once, and sessions are left for others.
const severalAt = 100

// several calls f for 0 to n-1, several at a time.
func several(n int, f func(i int) error) error {
	errs := make([]error, n)
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(n, severalAt) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				errs[i] = f(i)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
