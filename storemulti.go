package declock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

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
	var n atomic.Int64
	err = several(len(keys), func(i int) error {
		err := st.Delete(ctx, keys[i])
		switch {
		case err == nil:
			n.Add(1)
		case !errors.Is(err, objstore.ErrNotFound):
			return fmt.Errorf("declock: key %.40q: %w", keys[i], err)
		}
		return nil
	})
	return int(n.Load()), err
}

// severalAt is how many operations of a batch of changes are under way at a time.
const severalAt = 16

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
