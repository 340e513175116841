package objstore

import (
	"bytes"
	"strings"
	"testing"
)

func b(s string) []byte { return []byte(s) }

// Each operation with memcached's meaning.
func TestSemantics(t *testing.T) {
	_, c := one(t, nil)
	c.SetNow(1000)

	wantMiss(t, c, "k")
	wantErr(t, "set", c.Set(b("k"), b("v1"), Options{Flags: 7}), nil)
	it := wantValue(t, c, "k", "v1")
	if it.Flags != 7 || it.CAS == 0 {
		t.Fatalf("%+v", it)
	}
	wantErr(t, "add of a live key", c.Add(b("k"), b("v2"), Options{}), ErrExists)
	wantErr(t, "add", c.Add(b("k2"), b("v2"), Options{}), nil)
	wantErr(t, "replace of no key", c.Replace(b("k3"), b("x"), Options{}), ErrNotFound)
	wantErr(t, "replace", c.Replace(b("k2"), b("v3"), Options{Flags: 9}), nil)
	it2 := wantValue(t, c, "k2", "v3")

	wantErr(t, "cas of no key", c.CompareAndSwap(b("k3"), b("x"), Options{}, 1), ErrNotFound)
	wantErr(t, "cas with a wrong unique", c.CompareAndSwap(b("k2"), b("x"), Options{}, it.CAS), ErrExists)
	wantErr(t, "cas", c.CompareAndSwap(b("k2"), b("v4"), Options{Flags: 3}, it2.CAS), nil)
	wantErr(t, "cas again", c.CompareAndSwap(b("k2"), b("v5"), Options{}, it2.CAS), ErrExists)
	wantValue(t, c, "k2", "v4")

	wantErr(t, "append", c.Append(b("k2"), b("-end")), nil)
	wantErr(t, "prepend", c.Prepend(b("k2"), b("begin-")), nil)
	if it := wantValue(t, c, "k2", "begin-v4-end"); it.Flags != 3 {
		t.Fatalf("append changed the flags: %+v", it)
	}
	wantErr(t, "append to no key", c.Append(b("k3"), b("x")), ErrNotFound)
	wantErr(t, "prepend to no key", c.Prepend(b("k3"), b("x")), ErrNotFound)

	wantErr(t, "delete", c.Delete(b("k2")), nil)
	wantErr(t, "delete again", c.Delete(b("k2")), ErrNotFound)
	wantMiss(t, c, "k2")
	wantErr(t, "touch of no key", c.Touch(b("k2"), 3), ErrNotFound)
	mustBeSound(t, c)
}

func TestIncrDecr(t *testing.T) {
	_, c := one(t, nil)
	for _, x := range []struct {
		value string
		incr  bool
		delta uint64
		want  uint64
		err   error
		after string
	}{
		{"10", true, 5, 15, nil, "15"},
		{"99", true, 1, 100, nil, "100"},
		{"10", false, 1, 9, nil, "9 "}, // memcached does not shrink
		{"9 ", true, 2, 11, nil, "11"},
		{"5", false, 6, 0, nil, "0"},
		{"18446744073709551615", true, 1, 0, nil, "0                   "},
		{"18446744073709551615", true, 0, 18446744073709551615, nil, "18446744073709551615"},
		{"18446744073709551616", true, 0, 0, ErrNotNumber, "18446744073709551616"},
		{"99999999999999999999", true, 0, 0, ErrNotNumber, "99999999999999999999"},
		{"abc", true, 1, 0, ErrNotNumber, "abc"},
		{"-1", true, 1, 0, ErrNotNumber, "-1"},
		{"", true, 1, 0, ErrNotNumber, ""},
		{" ", true, 1, 0, ErrNotNumber, " "},
		{"1 2", true, 1, 0, ErrNotNumber, "1 2"},
		{"000000000000000000001", true, 1, 0, ErrNotNumber, "000000000000000000001"},
	} {
		wantErr(t, "set", c.Set(b("n"), b(x.value), Options{Flags: 5}), nil)
		f := c.Decr
		if x.incr {
			f = c.Incr
		}
		got, err := f(b("n"), x.delta)
		wantErr(t, x.value, err, x.err)
		if got != x.want {
			t.Errorf("%q by %d: %d, want %d", x.value, x.delta, got, x.want)
		}
		if it := wantValue(t, c, "n", x.after); it.Flags != 5 {
			t.Errorf("flags %d", it.Flags)
		}
	}
	_, err := c.Incr(b("none"), 1)
	wantErr(t, "incr of no key", err, ErrNotFound)
	mustBeSound(t, c)
}

func TestExpiry(t *testing.T) {
	_, c := one(t, nil)
	c.SetNow(100)
	wantErr(t, "set", c.Set(b("k"), b("v"), Options{TTL: 10}), nil)
	wantErr(t, "append", c.Append(b("k"), b("w")), nil) // keeps the expiry
	c.SetNow(109)
	wantValue(t, c, "k", "vw")
	c.SetNow(110)
	wantMiss(t, c, "k")
	if c.Stats().Expired != 1 || mustBeSound(t, c).Nodes[0].Objects != 0 {
		t.Fatal("expired object was not dropped on sight")
	}

	// Every operation takes an expired object for none.
	for what, f := range map[string]func() error{
		"replace": func() error { return c.Replace(b("e"), b("x"), Options{}) },
		"cas":     func() error { return c.CompareAndSwap(b("e"), b("x"), Options{}, 1) },
		"append":  func() error { return c.Append(b("e"), b("x")) },
		"delete":  func() error { return c.Delete(b("e")) },
		"incr":    func() error { _, err := c.Incr(b("e"), 1); return err },
		"touch":   func() error { return c.Touch(b("e"), 5) },
	} {
		c.SetNow(200)
		wantErr(t, "set", c.Set(b("e"), b("1"), Options{TTL: 1}), nil)
		c.SetNow(201)
		wantErr(t, what+" of an expired key", f(), ErrNotFound)
		wantMiss(t, c, "e")
	}
	c.SetNow(300)
	wantErr(t, "set", c.Set(b("e"), b("1"), Options{TTL: 1}), nil)
	c.SetNow(302)
	wantErr(t, "add over an expired key", c.Add(b("e"), b("2"), Options{}), nil)
	wantValue(t, c, "e", "2")

	// Touch sets a new expiry, and 0 is never; it does not change the unique.
	unique := wantValue(t, c, "e", "2").CAS
	wantErr(t, "touch", c.Touch(b("e"), 5), nil)
	c.SetNow(306)
	if wantValue(t, c, "e", "2").CAS != unique {
		t.Fatal("touch changed the unique")
	}
	wantErr(t, "touch", c.Touch(b("e"), 0), nil)
	c.SetNow(4_000_000_000)
	wantValue(t, c, "e", "2")
	wantErr(t, "touch", c.Touch(b("e"), 4_000_000_000), nil) // saturates
	wantValue(t, c, "e", "2")

	// Without SetNow the Port's clock counts.
	c.SetNow(0)
	wantErr(t, "set", c.Set(b("p"), b("1"), Options{TTL: 2}), nil)
	wantValue(t, c, "p", "1")
	c.port.Pause(c.port.Now() + 3e9)
	wantMiss(t, c, "p")
}

func TestSizes(t *testing.T) {
	_, c := one(t, nil)
	long := strings.Repeat("k", MaxKey)
	wantErr(t, "no key", c.Set(nil, b("v"), Options{}), ErrKeySize)
	wantErr(t, "long key", c.Set(b(long+"k"), b("v"), Options{}), ErrKeySize)
	_, err := c.Get(b(long + "k"))
	wantErr(t, "get of a long key", err, ErrKeySize)
	wantErr(t, "250-byte key", c.Set(b(long), nil, Options{}), nil)
	wantValue(t, c, long, "")

	for _, n := range []int{0, 1, 63, 64, 65, 1000, 4096, 9213, 100_000, 1 << 20} {
		v := bytes.Repeat([]byte{byte(n), 1, 2}, n/3+1)[:n]
		wantErr(t, "set", c.Set(b("big"), v, Options{}), nil)
		wantValue(t, c, "big", string(v))
		mustBeSound(t, c)
	}
	wantErr(t, "too large", c.Set(b("big"), make([]byte, 1<<20+1), Options{}), ErrValueSize)
	wantErr(t, "append beyond", c.Append(b("big"), b("x")), ErrValueSize)
	wantErr(t, "prepend beyond", c.Prepend(b("big"), b("x")), ErrValueSize)
	if it, err := c.Get(b("big")); err != nil || len(it.Value) != 1<<20 {
		t.Fatal(len(it.Value), err)
	}
	mustBeSound(t, c)
}

// More objects in a bucket than it has slots.
func TestOverflow(t *testing.T) {
	_, c := one(t, func(cfg *Config) { cfg.Objects = 1 })
	if n, _ := c.s.Buckets(); n != 1 {
		t.Fatal(n, "buckets")
	}
	most := c.s.geo.slots + maxOverflow*overflowSlots
	for i := range most {
		wantErr(t, "set", c.Set(keyOf(i), keyOf(i), Options{}), nil)
	}
	for i := range most {
		wantValue(t, c, string(keyOf(i)), string(keyOf(i)))
	}
	r := mustBeSound(t, c)
	if n := r.Nodes[0]; n.Objects != uint64(most) || n.Overflows != maxOverflow {
		t.Fatal(r)
	}
	for i := range most {
		if i%3 == 0 {
			wantErr(t, "delete", c.Delete(keyOf(i)), nil)
		}
	}
	for i := range most {
		if i%3 == 0 {
			wantMiss(t, c, string(keyOf(i)))
			wantErr(t, "set", c.Set(keyOf(i), b("again"), Options{}), nil)
		} else {
			wantValue(t, c, string(keyOf(i)), string(keyOf(i)))
		}
	}
	// The bucket is full: one object makes room for another.
	wantErr(t, "set", c.Set(b("one more"), b("x"), Options{}), nil)
	wantValue(t, c, "one more", "x")
	if r := mustBeSound(t, c); r.Nodes[0].Objects != uint64(most) || c.Stats().Evictions != 1 {
		t.Fatal(r, c.Stats())
	}
	c.s.cfg.NoEvict = true
	wantErr(t, "set", c.Set(b("two more"), b("x"), Options{}), ErrNoSpace)
	mustBeSound(t, c)
}
