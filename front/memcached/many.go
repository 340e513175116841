package memcached

import (
	"context"
	"errors"
	"sync"

	"github.com/declock/declock/objstore"
)

// A batch is some keys of a get of many, which are got at a time.
type batch struct {
	keys    [128][]byte
	n       int
	results [128]objstore.Result
	values  []byte // the results' lie here
	used    [128]uint64
}

// batches has those that are not in use: a connection has none while it waits.
var batches = sync.Pool{New: func() any { return new(batch) }}

// keepValues is how much of a batch's values stays.
const keepValues = 256 << 10

func (b *batch) release() {
	if cap(b.values) > keepValues {
		b.values = nil
	}
	batches.Put(b)
}

// getMany answers a get of keys, and of those in rest.
func (c *conn) getMany(keys [][]byte, rest []byte, unique bool) error {
	b := batches.Get().(*batch)
	defer b.release()
	b.n = 0
	a := answer{begin: len(c.out)}
	for {
		for _, key := range keys {
			if len(key) > len(c.key) {
				return c.notGot(&a, nil)
			}
			if b.n == len(b.keys) {
				if ok, err := c.values(b, &a, unique); !ok {
					return err
				}
			}
			b.keys[b.n] = key
			b.n++
		}
		if rest == nil {
			break
		}
		keys, rest = c.split(rest)
	}
	if ok, err := c.values(b, &a, unique); !ok {
		return err
	}
	c.out = append(c.out, "END\r\n"...)
	return nil
}

// values appends the items of a batch. If it is not ok, the request is answered.
func (c *conn) values(b *batch, a *answer, unique bool) (ok bool, err error) {
	for keys := b.keys[:b.n]; len(keys) > 0; {
		n, number, err := c.w.getSome(keys, b)
		if err != nil {
			return false, c.notGot(a, err)
		}
		hits, it := 0, entry{}
		for i, key := range keys[:n] {
			r := &b.results[i]
			size := len(r.Value)
			if r.Large != nil {
				size = r.Large.Size()
			}
			found := it.itemOf(&r.Item, size)
			if found && it.Flush != number {
				c.srv.counted.add(getFlushed, 1)
				found = false
			}
			switch {
			case found && (c.srv.large(&it) || r.Large != nil):
				if found, err = c.fetch(key, unique); err != nil {
					return false, c.notGot(a, err)
				}
			case found:
				c.out = appendValue(c.out, key, &it, unique)
			}
			c.prefixGet(key, found)
			if !found {
				continue
			}
			b.used[hits] = c.srv.uses.hash(key)
			hits++
			if err := c.roomFor(a); err != nil {
				return false, err
			}
		}
		now := c.srv.second.Load()
		for _, h := range b.used[:hits] { // apart from the above, so that the processor waits for memory of several at a time
			c.srv.uses.noteHash(h, now)
		}
		c.srv.counted.gotMany(n, hits)
		keys = keys[n:]
	}
	b.n = 0
	return true, nil
}

// getSome gets the first n keys, and the number of the last flush, which was right afterwards: items with another one are not there.
func (w *worker) getSome(keys [][]byte, b *batch) (n int, number uint32, err error) {
	at := w.getTime.Begin()
	err = w.do(items, func(k *objstore.Client) (err error) {
		expired := k.Stats().Expired
		n, b.values, err = k.OpenMulti(keys, b.results[:], b.values[:0])
		if d := k.Stats().Expired - expired; d > 0 {
			w.counted.add(getExpired, d)
		}
		for i := range b.results[:n] {
			if e := b.results[i].Err; err == nil && e != nil && !errors.Is(e, objstore.ErrNotFound) {
				err = e
			}
		}
		return err
	})
	w.getTime.End(at)
	if err == nil {
		number, err = w.flushes.Number(context.Background())
	}
	return n, number, err
}
