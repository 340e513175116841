package btree

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// An aliased is a client whose operations are given keys, values and bounds that may be slices of what its last operation returned.
type aliased struct {
	t    *testing.T
	r    *rand.Rand
	c    *Client
	keys map[string]string
	last []byte // what Get returned, or a callback was given, until the next operation
	used int    // arguments that were slices of it
}

// slice returns a slice of the last result, of some bytes; or, with nothing there or by chance, bytes of its own.
func (a *aliased) slice(most int) []byte {
	if len(a.last) > 0 && a.r.IntN(4) > 0 {
		from := a.r.IntN(len(a.last))
		n := a.r.IntN(min(most, len(a.last)-from) + 1)
		a.used++
		return a.last[from : from+n]
	}
	b := make([]byte, a.r.IntN(most+1))
	for i := range b {
		b[i] = '0' + byte(a.r.IntN(2))
	}
	return b
}

// value returns a value: one that lies in the leaf, or a large one.
func (a *aliased) value() []byte {
	if a.r.IntN(2) == 0 {
		return a.slice(16)
	}
	return a.slice(500)
}

const aliasedKey = 5 // bytes of a key at most: slices of values are often keys that are there

func (a *aliased) step() {
	switch k := a.slice(aliasedKey); a.r.IntN(9) {
	case 0, 1, 2:
		a.get(k)
		return
	case 3, 4:
		a.put(k, a.value())
	case 5:
		key := string(k)
		_, there := a.keys[key]
		v := a.value()
		want := string(v)
		if there {
			wantErr(a.t, "insert "+key, a.c.Insert(k, v), ErrExists)
			break
		}
		wantErr(a.t, "insert "+key, a.c.Insert(k, v), nil)
		a.keys[key] = want
	case 6:
		a.compareAndPut(k)
	case 7:
		a.delete(k)
	case 8:
		a.scan(Range{From: a.slice(aliasedKey), To: a.slice(aliasedKey), Descending: a.r.IntN(2) == 0})
	}
	a.last = nil
}

func (a *aliased) get(k []byte) {
	want, there := a.keys[string(k)]
	v, err := a.c.Get(k)
	if there {
		wantErr(a.t, "get", err, nil)
	} else {
		wantErr(a.t, "get", err, ErrNotFound)
	}
	if string(v) != want {
		a.t.Fatalf("get %q: %q, want %q", k, v, want)
	}
	a.last = v
}

func (a *aliased) put(k, v []byte) {
	key, want := string(k), string(v)
	wantErr(a.t, "put", a.c.Put(k, v), nil)
	a.keys[key] = want
}

func (a *aliased) delete(k []byte) {
	key, want := string(k), ErrNotFound
	if _, there := a.keys[key]; there {
		want = nil
	}
	wantErr(a.t, "delete "+key, a.c.Delete(k), want)
	delete(a.keys, key)
}

// compareAndPut expects what was got of the key, a part of it, or something else.
func (a *aliased) compareAndPut(k []byte) {
	key, old := string(k), a.last
	have, there := a.keys[key]
	if a.r.IntN(2) == 0 {
		old = a.slice(500)
	}
	v := a.value()
	want, same := string(v), string(old) == have
	err := a.c.CompareAndPut(k, old, v)
	switch {
	case !there:
		wantErr(a.t, "compare", err, ErrNotFound)
	case !same:
		wantErr(a.t, "compare", err, ErrChanged)
	default:
		wantErr(a.t, "compare", err, nil)
		a.keys[key] = want
	}
}

// scan goes through a range, and its callback does operations with what it was given.
func (a *aliased) scan(r Range) {
	from, to := string(r.From), string(r.To)
	in := func(key string) bool { return from <= key && key <= to }
	if r.Descending {
		in = func(key string) bool { return to <= key && key <= from }
	}
	changed, seen := map[string]bool{}, map[string]bool{}
	expected := maps.Clone(a.keys)
	err := a.c.Each(r, func(k, v []byte) bool {
		key := string(k)
		if seen[key] || !in(key) || a.keys[key] != string(v) && !changed[key] {
			a.t.Fatalf("scan %q to %q: %q = %q, want %q", from, to, key, v, a.keys[key])
		}
		seen[key] = true
		switch a.last = slices.Concat(k, v); a.r.IntN(5) {
		case 0:
			a.last = k
		case 1:
			a.last = v
		}
		if k := a.slice(aliasedKey); a.r.IntN(3) == 0 {
			changed[string(k)] = true
			a.put(k, a.value())
		} else if a.r.IntN(3) == 0 {
			changed[string(k)] = true
			a.delete(k)
		}
		a.last = nil
		return true
	})
	wantErr(a.t, "scan", err, nil)
	for key := range expected {
		if in(key) && !seen[key] && !changed[key] {
			a.t.Fatalf("scan %q to %q: nothing of %q", from, to, key)
		}
	}
}

// Keys, values and bounds of every operation may be slices of what the last one returned, or gave to a callback.
func TestArgumentsInTheLastResult(t *testing.T) {
	_, c := one(t, 1, nil)
	a := &aliased{t: t, r: rand.New(rand.NewPCG(1, 1)), c: c, keys: map[string]string{}}
	for range 20000 {
		a.step()
	}
	if a.used < 2000 {
		t.Fatalf("%d arguments were slices of a result", a.used)
	}
	mustBeSound(t, c)
	for key, want := range a.keys {
		wantValue(t, c, key, want)
	}
}

// A bulk load may be given slices of what the last operation returned.
func TestBulkLoadOfTheLastResult(t *testing.T) {
	for _, size := range []int{16, 500} {
		_, c := one(t, 1, nil)
		data := make([]byte, size)
		for i := range data {
			data[i] = 'a' + byte(i*i%19)
		}
		want := string(data)
		wantErr(t, "put", c.Put([]byte("k"), data), nil)
		v, err := c.Get([]byte("k"))
		wantErr(t, "get", err, nil)
		copied := slices.Clone(v)
		wantErr(t, "delete", c.Delete([]byte("k")), nil)
		// The deletion may have changed what was returned; what follows changes nothing before the load.
		if v, err = c.Get([]byte("k")); err != ErrNotFound {
			t.Fatalf("%q, %v", v, err)
		}
		b := c.leaf
		if size > c.t.geo.maxInline {
			b = c.value
		}
		copy(b, copied)
		err = c.BulkLoad(func(yield func(k, v []byte) bool) {
			for i := range 50 {
				if !yield(fmt.Appendf(nil, "%03d", i), b[i%8:size]) {
					return
				}
			}
		}, BulkOptions{})
		wantErr(t, "load", err, nil)
		for i := range 50 {
			wantValue(t, c, fmt.Sprintf("%03d", i), want[i%8:])
		}
	}
}
