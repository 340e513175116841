package declock

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"

	"github.com/declock/declock/btree"
	"github.com/declock/declock/lock"
)

// A TreeScan goes through a part of a tree: see [Tree.Scan].
type TreeScan struct {
	t   *Tree
	ctx context.Context
	r   btree.Range // what is left
	err error

	limited bool // Limit has been given; 0 is that nothing is left then
	over    bool // a loop has come to the end
}

// Pages of a TreeScan, in entries and in bytes.
const (
	firstPage = 16
	lastPage  = 1024
	pageBytes = 64 << 10
)

// Scan returns the keys of a range, in order, with their values:
//
//	s := t.Scan(ctx, btree.Range{From: []byte("b"), Limit: 10})
//	for key, value := range s.All() {
//		..
//	}
//	err := s.Err()
//
// It reads page by page, and has no session while the loop's body runs, which may use the tree. Each leaf is read as it is at one moment; a key that is there throughout is
// returned, once, and none that never was. Keys and values are the caller's own.
func (t *Tree) Scan(ctx context.Context, r btree.Range) *TreeScan {
	r.From, r.To = bytes.Clone(r.From), bytes.Clone(r.To)
	return &TreeScan{t: t, ctx: ctx, r: r, limited: r.Limit != 0}
}

// Prefix returns the range of all keys that begin with a prefix. For descending order exchange From and To.
func (t *Tree) Prefix(prefix []byte) btree.Range {
	last := bytes.Repeat([]byte{0xff}, max(t.MaxKey(), len(prefix)))
	copy(last, prefix)
	return btree.Range{From: bytes.Clone(prefix), To: last}
}

// All returns what is left of the scan. A loop that breaks leaves the rest to the next one. After one that has come to the end there is no other: it has no keys, and Err is
// lock.ErrMisuse.
func (s *TreeScan) All() iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		if s.over {
			s.err = fmt.Errorf("%w: All of a scan that has ended: Tree.Scan begins another", lock.ErrMisuse)
			return
		}
		var page []entry
		for size, more := firstPage, true; more; size = min(4*size, lastPage) {
			if page, more, s.err = s.page(page[:0], size); s.err != nil {
				return
			}
			for _, e := range page {
				s.r.FromOpen, s.r.From = true, append(s.r.From[:0], e.key...) // a copy: the loop's body may change its key
				if s.limited {
					s.r.Limit--
					more = more && s.r.Limit > 0
				}
				if !yield(e.key, e.value) {
					return
				}
			}
		}
		s.over = true
	}
}

// Err returns the error that ended the scan, if one did.
func (s *TreeScan) Err() error { return s.err }

// First returns the first key of a range, and its value: with Range{From: key} the key itself or the next, with Range{From: key, FromOpen: true, Descending: true} the
// one before it, with the zero Range the smallest. btree.ErrNotFound: the range is empty.
func (t *Tree) First(ctx context.Context, r btree.Range) (key, value []byte, err error) {
	r.Limit = 1
	s := t.Scan(ctx, r)
	for key, value = range s.All() {
		return key, value, nil
	}
	return nil, nil, cmp.Or(s.Err(), btree.ErrNotFound)
}

// Seek is First of the keys from one on: that key itself, or the next one that is there.
func (t *Tree) Seek(ctx context.Context, from []byte) (key, value []byte, err error) {
	return t.First(ctx, btree.Range{From: from})
}

// Prev is First of the keys before one, backwards: the last one that is there.
func (t *Tree) Prev(ctx context.Context, before []byte) (key, value []byte, err error) {
	return t.First(ctx, btree.Range{From: before, FromOpen: true, Descending: true})
}

// An entry is a key with its value.
type entry struct{ key, value []byte }

// page appends the next entries, and reports whether there may be more behind them.
func (s *TreeScan) page(list []entry, size int) (_ []entry, more bool, err error) {
	switch {
	case s.r.Limit < 0:
		return list, false, fmt.Errorf("%w: a range of at most %d keys", btree.ErrConfig, s.r.Limit)
	case s.limited && s.r.Limit == 0:
		return list, false, nil
	case s.limited:
		size = min(size, s.r.Limit)
	}
	r := s.r
	r.Limit = 0
	err = s.t.shared.do(s.ctx, func(c *btree.Client) error {
		it := c.Scan(r)
		defer it.Close()
		var buf []byte
		for len(list) < size && len(buf) < pageBytes {
			if !it.Next() {
				return it.Err()
			}
			begin := len(buf)
			buf = append(append(buf, it.Key()...), it.Value()...)
			k, e := begin+len(it.Key()), len(buf)
			list = append(list, entry{buf[begin:k:k], buf[k:e:e]})
		}
		more = true
		return nil
	})
	return list, more, err
}
