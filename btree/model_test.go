package btree

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A model is what a tree must be: a sorted map.
type model map[string]string

func (m model) scan(r Range) (pairs []string) {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	if r.Descending {
		slices.Reverse(keys)
	}
	for _, k := range keys {
		from, to := 0, 0
		if r.From != nil {
			from = bytes.Compare([]byte(k), r.From)
		}
		if r.To != nil {
			to = bytes.Compare([]byte(k), r.To)
		}
		if r.Descending {
			from, to = -from, -to
		}
		if from < 0 || to > 0 || from == 0 && r.From != nil && r.FromOpen || to == 0 && r.To != nil && r.ToOpen {
			continue
		}
		if pairs = append(pairs, k+"="+m[k]); len(pairs) == r.Limit {
			break
		}
	}
	return pairs
}

// Random operations agree with a sorted map, in trees of several shapes.
func TestModel(t *testing.T) {
	for _, x := range []struct {
		name string
		mns  int
		cfg  func(*Config)
	}{
		{"small nodes", 2, nil},
		{"tiny nodes", 1, func(c *Config) { c.MaxKey, c.MaxInline, c.NodeSize = 2, 16, minNodeSize(2, 16) }},
		{"no cache", 1, func(c *Config) { c.CacheBytes = -1 }},
		{"little cache", 2, func(c *Config) { c.CacheBytes = 2000 }},
		{"defaults", 2, func(c *Config) { c.MaxKey, c.MaxInline, c.NodeSize = 0, 0, 0 }},
	} {
		t.Run(x.name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				_, c := one(t, x.mns, x.cfg)
				defer c.Close()
				modelRun(t, rt, c)
			})
		})
	}
}

// modelRun does random operations on an empty tree.
func modelRun(t *testing.T, rt *rapid.T, c *Client) {
	m := model{}
	maxKey := min(c.t.geo.maxKey, 16)
	keyGen := rapid.Custom(func(rt *rapid.T) string {
		alphabet := rapid.SampledFrom([]string{"ab", "\x00\xff", "abcdefgh"}).Draw(rt, "alphabet")
		return rapid.StringOfN(rapid.SampledFrom([]rune(alphabet)), 0, -1, maxKey).Draw(rt, "key")
	})
	shortKey := rapid.Custom(func(rt *rapid.T) string { return fmt.Sprintf("%02d", rapid.IntRange(0, 99).Draw(rt, "n")) })
	key := func() string { return rapid.OneOf(keyGen, shortKey, shortKey).Draw(rt, "key") }
	value := func() string {
		n := rapid.SampledFrom([]int{0, 3, 10, 16, 17, 200, 5000}).Draw(rt, "size")
		return string(bytes.Repeat([]byte{byte('a' + rapid.IntRange(0, 25).Draw(rt, "v"))}, n))
	}
	wantAre := func(what string, err, want error) {
		if !errors.Is(err, want) || (want == nil) != (err == nil) {
			rt.Fatalf("%s: %v, want %v", what, err, want)
		}
	}
	put := func(rt *rapid.T) {
		k, v := key(), value()
		wantAre("put", c.Put([]byte(k), []byte(v)), nil)
		m[k] = v
	}
	rt.Repeat(map[string]func(*rapid.T){
		"put": put, "put again": put, "put more": put,
		"get": func(rt *rapid.T) {
			k := key()
			v, err := c.Get([]byte(k))
			if want, ok := m[k]; !ok {
				wantAre("get", err, ErrNotFound)
			} else if wantAre("get", err, nil); string(v) != want {
				rt.Fatalf("get %q: %q, want %q", k, v, want)
			}
		},
		"insert": func(rt *rapid.T) {
			k, v := key(), value()
			err := c.Insert([]byte(k), []byte(v))
			if _, ok := m[k]; ok {
				wantAre("insert", err, ErrExists)
				return
			}
			wantAre("insert", err, nil)
			m[k] = v
		},
		"compare": func(rt *rapid.T) {
			k, old, v := key(), value(), value()
			if rapid.Bool().Draw(rt, "right") {
				old = m[k]
			}
			err := c.CompareAndPut([]byte(k), []byte(old), []byte(v))
			switch have, ok := m[k]; {
			case !ok:
				wantAre("compare", err, ErrNotFound)
			case have != old:
				wantAre("compare", err, ErrChanged)
			default:
				wantAre("compare", err, nil)
				m[k] = v
			}
		},
		"delete": func(rt *rapid.T) {
			k := key()
			err := c.Delete([]byte(k))
			if _, ok := m[k]; !ok {
				wantAre("delete", err, ErrNotFound)
				return
			}
			wantAre("delete", err, nil)
			delete(m, k)
		},
		"delete range": func(rt *rapid.T) {
			from := key()
			for _, p := range m.scan(Range{From: []byte(from), Limit: 12}) {
				k, _, _ := bytes.Cut([]byte(p), []byte("="))
				wantAre("delete", c.Delete(k), nil)
				delete(m, string(k))
			}
		},
		"scan": func(rt *rapid.T) {
			r := Range{Descending: rapid.Bool().Draw(rt, "descending"), Limit: rapid.IntRange(0, 20).Draw(rt, "limit"),
				FromOpen: rapid.Bool().Draw(rt, "from open"), ToOpen: rapid.Bool().Draw(rt, "to open")}
			if rapid.Bool().Draw(rt, "from") {
				r.From = []byte(key())
			}
			if rapid.Bool().Draw(rt, "to") {
				r.To = []byte(key())
			}
			if got, want := all(t, c, r), m.scan(r); !slices.Equal(got, want) {
				rt.Fatalf("scan %+v:\n%q, want\n%q", r, got, want)
			}
		},
		"": func(rt *rapid.T) {
			if c.stats.Deferred > 0 {
				rt.Fatalf("deferred: %+v", c.stats)
			}
		},
	})
	r, err := c.Check(CheckOptions{})
	wantAre("check", err, nil)
	if !r.Sound() || r.Keys != uint64(len(m)) {
		rt.Fatalf("%d keys in the model, %v", len(m), r)
	}
}
