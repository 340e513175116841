package item

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/objstore"
)

// mostMany is how many keys ViewMany sees at a time.
const mostMany = 128

// A batch is what ViewMany has read.
type batch struct {
	results [mostMany]objstore.Result
	values  []byte // the results' lie here
	item    Item
}

// batches has those that are not in use: a connection has none while it waits.
var batches = sync.Pool{New: func() any { return new(batch) }}

// keepValues is how much of a batch's values stays.
const keepValues = 256 << 10

// ViewMany is View of the first n keys, which are read at a time, each at a moment of its own. f is called with each of them in their order, once: with its item, which is good until f returns, the zero
// Item if there is none, or an error. n is at least one, and bounded by 128 keys and about 1 MiB of values.
func (x *Items) ViewMany(ctx context.Context, keys [][]byte, f func(it *Item, found bool, err error)) (n int, err error) {
	b := batches.Get().(*batch)
	defer func() {
		b.item = Item{}
		if clear(b.results[:n]); cap(b.values) > keepValues {
			b.values = nil
		}
		batches.Put(b)
	}()
	keys = keys[:min(len(keys), mostMany)]
	var now fabric.Time
	see := func(c *objstore.Client) (err error) {
		n, b.values, err = c.OpenMulti(keys, b.results[:len(keys)], b.values[:0])
		for i := range b.results[:n] {
			if e := b.results[i].Err; e != nil && !errors.Is(e, objstore.ErrNotFound) {
				err = errors.Join(err, e)
			}
		}
		now = c.Clock()
		return err
	}
	at := x.gets.Begin()
	err = x.objects().Use(ctx, see)
	for since := time.Duration(0); x.retry(ctx, err, &since); {
		err = x.objects().Use(ctx, see)
	}
	x.gets.End(at)
	number := uint32(0)
	if n > 0 {
		number, err = x.flushes.Number(ctx) // as it is after the reads; errors of keys are theirs
	}
	if err != nil {
		return n, err
	}
	for i := range b.results[:n] {
		r, it := &b.results[i], &b.item
		*it = Item{}
		if r.Err != nil && !errors.Is(r.Err, objstore.ErrNotFound) {
			f(it, false, r.Err)
			continue
		}
		ok := r.Err == nil && it.open(&r.Item, r.Large, now) && it.Flush == number
		if !ok {
			*it = Item{}
		}
		f(it, ok, nil)
	}
	return n, nil
}
