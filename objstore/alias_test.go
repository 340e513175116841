package objstore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

// An aliased is a client whose operations are given keys and data that may be slices of what its last Get returned.
type aliased struct {
	t    *testing.T
	r    *rand.Rand
	c    *Client
	objs map[string]string
	last []byte // what Get returned, until the next operation
	used int    // arguments that were slices of it
}

// slice returns a slice of what the last Get returned, of some bytes; or, with nothing there or by chance, bytes of its own.
func (a *aliased) slice(least, most int) []byte {
	if len(a.last) >= least && a.r.IntN(4) > 0 {
		from := a.r.IntN(len(a.last) - least + 1)
		n := least + a.r.IntN(min(most, len(a.last)-from)-least+1)
		a.used++
		return a.last[from : from+n]
	}
	b := make([]byte, least+a.r.IntN(most-least+1))
	for i := range b {
		b[i] = '0' + byte(a.r.IntN(2))
	}
	return b
}

func (a *aliased) expect(what string, err, want error) {
	a.t.Helper()
	if !errors.Is(err, want) || (want == nil) != (err == nil) {
		a.t.Fatalf("%s: error %v, want %v", what, err, want)
	}
}

// step does an operation and compares its result with the model's. Two digits and short keys have slices of values
// be keys that are there.
func (a *aliased) step() {
	k := a.slice(1, 4)
	key := string(k)
	old, there := a.objs[key]
	absent, present := error(nil), ErrNotFound
	if there {
		absent, present = ErrExists, nil
	}
	most := 40
	if a.r.IntN(8) == 0 {
		most = 12000 // buffers grow
	}
	op := a.r.IntN(10)
	what := fmt.Sprintf("operation %d on %q", op, key)
	switch op {
	case 0, 1, 2:
		it, err := a.c.Get(k)
		a.expect(what, err, present)
		if string(it.Value) != old {
			a.t.Fatalf("%s: %.60q, want %.60q", what, it.Value, old)
		}
		a.last = it.Value
		return
	case 3:
		v := a.slice(0, most)
		want := string(v)
		a.expect(what, a.c.Set(k, v, Options{}), nil)
		a.objs[key] = want
	case 4:
		v := a.slice(0, most)
		want := string(v)
		a.expect(what, a.c.Add(k, v, Options{}), absent)
		if !there {
			a.objs[key] = want
		}
	case 5:
		v := a.slice(0, most)
		want := string(v)
		a.expect(what, a.c.Replace(k, v, Options{}), present)
		if there {
			a.objs[key] = want
		}
	case 6:
		v := a.slice(0, 20)
		want := old + string(v)
		a.expect(what, a.c.Append(k, v), present)
		if there {
			a.objs[key] = want
		}
	case 7:
		v := a.slice(0, 20)
		want := string(v) + old
		a.expect(what, a.c.Prepend(k, v), present)
		if there {
			a.objs[key] = want
		}
	case 8:
		a.count(what, k, key)
	case 9:
		a.expect(what, a.c.Touch(k, 0), present)
		if a.r.IntN(2) == 0 {
			k := []byte(key)
			if it, err := a.c.Get(k); err == nil {
				a.cas(it, key)
			}
		}
		if a.r.IntN(4) == 0 {
			a.remove()
		}
	}
	a.last = nil
}

// cas replaces an object by a slice of itself.
func (a *aliased) cas(it Item, key string) {
	a.last = it.Value
	k, v := []byte(key), a.slice(0, 100)
	if i := strings.Index(string(a.last), key); i >= 0 {
		k = a.last[i : i+len(key)]
	}
	want := string(v)
	a.expect("cas of "+key, a.c.CompareAndSwap(k, v, Options{}, it.CAS), nil)
	a.objs[key], a.last = want, nil
}

// remove deletes a key that is a slice of what Get returned.
func (a *aliased) remove() {
	for key := range a.objs {
		it, err := a.c.Get([]byte(key))
		a.expect("get "+key, err, nil)
		a.last = it.Value
		break
	}
	k := a.slice(1, 4)
	key := string(k)
	want := ErrNotFound
	if _, there := a.objs[key]; there {
		want = nil
	}
	a.expect("delete "+key, a.c.Delete(k), want)
	delete(a.objs, key)
}

func (a *aliased) count(what string, k []byte, key string) {
	old, there := a.objs[key]
	n, err := strconv.ParseUint(strings.TrimRight(old, " "), 10, 64)
	got, gotErr := a.c.Incr(k, 1)
	switch {
	case !there:
		a.expect(what, gotErr, ErrNotFound)
	case err != nil || len(old) > maxDigits:
		a.expect(what, gotErr, ErrNotNumber)
	default:
		a.expect(what, gotErr, nil)
		if got != n+1 {
			a.t.Fatalf("%s: %d, want %d", what, got, n+1)
		}
		a.objs[key] = fmt.Sprintf("%-*d", len(old), n+1)
	}
}

// Keys and data of every operation may be slices of what the last Get returned, in a store whose bucket overflows and whose
// gets take the lock, too.
func TestArgumentsInTheLastResult(t *testing.T) {
	for _, paper := range []bool{false, true} {
		for _, objects := range []uint64{1, 1000} {
			t.Run(fmt.Sprint(objects, " objects, paper ", paper), func(t *testing.T) {
				_, c := one(t, func(cfg *Config) { cfg.Objects, cfg.CacheEntries, cfg.Paper = objects, 8, paper })
				a := &aliased{t: t, r: rand.New(rand.NewPCG(objects, 1)), c: c, objs: map[string]string{}}
				for range 20000 {
					a.step()
				}
				if a.used < 2000 {
					t.Fatalf("%d arguments were slices of a result", a.used)
				}
				mustBeSound(t, c)
				for key, want := range a.objs {
					wantValue(t, c, key, want)
				}
			})
		}
	}
}

// A client gives large buffers back, once it has handled small objects for a while, and not while arguments lie in them.
func TestLargeBuffersAreGivenBack(t *testing.T) {
	_, c := one(t, nil)
	large := make([]byte, 1<<20)
	for i := range large {
		large[i] = byte(i * 7)
	}
	after := map[string]func() error{
		"get":    func() error { _, err := c.Get([]byte("small")); return err },
		"set":    func() error { return c.Set([]byte("small"), []byte("value"), Options{}) },
		"touch":  func() error { return c.Touch([]byte("small"), 0) },
		"append": func() error { return c.Append([]byte("small"), nil) },
		"delete": func() error { return ignore(c.Delete([]byte("small")), ErrNotFound) },
		"incr": func() error {
			_, err := c.Incr([]byte("small"), 1)
			return ignore(ignore(err, ErrNotNumber), ErrNotFound)
		},
	}
	for name, f := range after {
		wantErr(t, "set", c.Set([]byte("small"), []byte("value"), Options{}), nil)
		wantErr(t, "set", c.Set([]byte("large"), large, Options{}), nil)
		for range 2 * keepFor {
			if it, err := c.Get([]byte("large")); err != nil || len(it.Value) != len(large) || len(c.obj) < len(large) {
				t.Fatalf("%s: large: %d bytes, %v, in %d", name, len(it.Value), err, len(c.obj))
			}
		}
		for range 3 * keepFor {
			wantErr(t, name, f(), nil)
		}
		if n := len(c.obj) + len(c.out); n > 2*keepBuffer {
			t.Errorf("%s: %d bytes of buffers are kept", name, n)
		}
		it, err := c.Get([]byte("large"))
		wantErr(t, "get", err, nil)
		c.small = keepFor + 1
		wantErr(t, "set", c.Set(it.Value[8:12], it.Value[:keepBuffer], Options{}), nil)
		wantValue(t, c, string(large[8:12]), string(large[:keepBuffer]))
	}
}
