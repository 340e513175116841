package objstore

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A modelObject is an object of the model: a map that does what memcached does.
type modelObject struct {
	value  string
	flags  uint32
	expiry uint32
	cas    uint64 // as the store gave it, 0 if unknown
}

type model struct {
	t    *rapid.T
	c    *Client
	now  uint32
	objs map[string]*modelObject

	largest int // value; 0: none becomes so large
}

func (m *model) live(k string) *modelObject {
	o := m.objs[k]
	if o != nil && o.expiry != 0 && m.now >= o.expiry {
		delete(m.objs, k)
		return nil
	}
	return o
}

func (m *model) expect(what string, err, want error) {
	if !errors.Is(err, want) || (want == nil) != (err == nil) {
		m.t.Fatalf("%s: error %v, want %v", what, err, want)
	}
}

func (m *model) expiry(ttl uint32) uint32 {
	if ttl == 0 {
		return 0
	}
	return m.now + ttl
}

// step draws an operation, does it on both, and compares.
func (m *model) step() {
	k := fmt.Sprintf("k%d", rapid.IntRange(0, 30).Draw(m.t, "key"))
	v := strings.Repeat(string(rune('a'+rapid.IntRange(0, 25).Draw(m.t, "char"))), rapid.IntRange(0, 700).Draw(m.t, "length"))
	if rapid.IntRange(0, 3).Draw(m.t, "number") == 0 {
		v = strconv.FormatUint(rapid.Uint64().Draw(m.t, "value"), 10)
	}
	o := Options{Flags: rapid.Uint32().Draw(m.t, "flags"), TTL: rapid.Uint32Range(0, 20).Draw(m.t, "ttl")}
	old := m.live(k)
	fresh := &modelObject{value: v, flags: o.Flags, expiry: m.expiry(o.TTL)}
	absent, present := error(nil), error(nil)
	if old != nil {
		absent = ErrExists
	} else {
		present = ErrNotFound
	}
	put := func(want error) {
		if want == nil {
			m.objs[k] = fresh
		}
	}
	switch op := rapid.SampledFrom([]string{"get", "set", "add", "replace", "cas", "append", "prepend",
		"delete", "incr", "decr", "touch", "time"}).Draw(m.t, "op"); op {
	case "get":
		m.get(k, old)
	case "set":
		m.expect(op, m.c.Set([]byte(k), []byte(v), o), nil)
		put(nil)
	case "add":
		m.expect(op, m.c.Add([]byte(k), []byte(v), o), absent)
		put(absent)
	case "replace":
		m.expect(op, m.c.Replace([]byte(k), []byte(v), o), present)
		put(present)
	case "cas":
		unique := uint64(1)
		want := present
		if old != nil {
			if want = ErrExists; old.cas != 0 {
				unique, want = old.cas, nil
			}
		}
		m.expect(op, m.c.CompareAndSwap([]byte(k), []byte(v), o, unique), want)
		put(want)
	case "append", "prepend":
		f, joined := m.c.Append, func() string { return old.value + v }
		if op == "prepend" {
			f, joined = m.c.Prepend, func() string { return v + old.value }
		}
		large := old != nil && m.largest > 0 && len(joined()) > m.largest
		if large {
			present = ErrValueSize
		}
		m.expect(op, f([]byte(k), []byte(v)), present)
		if old != nil && !large {
			old.value, old.cas = joined(), 0
		}
	case "delete":
		m.expect(op, m.c.Delete([]byte(k)), present)
		delete(m.objs, k)
	case "incr", "decr":
		m.count(op, k, old, uint64(rapid.Uint32().Draw(m.t, "delta")))
	case "touch":
		m.expect(op, m.c.Touch([]byte(k), o.TTL), present)
		if old != nil {
			old.expiry = m.expiry(o.TTL)
		}
	case "time":
		m.now += rapid.Uint32Range(0, 8).Draw(m.t, "seconds")
		m.c.SetNow(m.now)
	}
}

func (m *model) get(k string, old *modelObject) {
	it, err := m.c.Get([]byte(k))
	if old == nil {
		m.expect("get", err, ErrNotFound)
		return
	}
	m.expect("get", err, nil)
	if string(it.Value) != old.value || it.Flags != old.flags || old.cas != 0 && it.CAS != old.cas {
		m.t.Fatalf("get %q: %q flags %d cas %d, want %+v", k, it.Value, it.Flags, it.CAS, *old)
	}
	old.cas = it.CAS
}

func (m *model) count(op, k string, old *modelObject, delta uint64) {
	f := m.c.Incr
	if op == "decr" {
		f = m.c.Decr
	}
	got, err := f([]byte(k), delta)
	if old == nil {
		m.expect(op, err, ErrNotFound)
		return
	}
	n, perr := strconv.ParseUint(strings.TrimRight(old.value, " "), 10, 64)
	if perr != nil || len(old.value) > 20 {
		m.expect(op, err, ErrNotNumber)
		return
	}
	m.expect(op, err, nil)
	if op == "incr" {
		n += delta
	} else {
		n -= min(n, delta)
	}
	old.value, old.cas = fmt.Sprintf("%-*d", len(old.value), n), 0
	if got != n {
		m.t.Fatalf("%s: %d, want %d", op, got, n)
	}
}

// One client against a map, in a store that is large enough and in one whose
// buckets overflow.
func TestModel(t *testing.T) {
	for _, objects := range []uint64{100, 1} {
		t.Run(fmt.Sprint(objects, " objects"), func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				_, c := one(t, func(cfg *Config) { cfg.Objects = objects; cfg.CacheEntries = 16 })
				m := &model{t: rt, c: c, now: 1000, objs: map[string]*modelObject{}}
				c.SetNow(m.now)
				for range rapid.IntRange(1, 120).Draw(rt, "steps") {
					m.step()
				}
				r, err := c.Check(CheckOptions{})
				if err != nil || !r.Sound() {
					rt.Fatal(r, err)
				}
				if n := r.Nodes[0]; n.Elsewhere != 0 || int(n.Objects) < len(m.objs)-int(n.Expired) {
					rt.Fatalf("%d objects in the model:\n%v", len(m.objs), r)
				}
			})
		})
	}
}
