package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
	"github.com/declock/declock"
	"github.com/declock/declock/front/memcached"
)

// serveMemcached serves clients of memcached at two addresses, as two compute nodes of one cluster would.
func serveMemcached(t *testing.T) (addresses [2]string) {
	t.Helper()
	c, err := declock.Open(t.Context(), "shm:", declock.WithMemory(64<<20))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	for i := range addresses {
		s, err := memcached.New(memcached.Options{})
		if err == nil {
			err = s.Attach(c, declock.StoreConfig{Objects: 1000})
		}
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go s.Serve(l)
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if err := s.Shutdown(ctx); err != nil {
				t.Error(err)
			}
		})
		addresses[i] = l.Addr().String()
	}
	return addresses
}

// gomemcache works on front/memcached as it is. It spreads keys over the servers that it knows; which one it asks makes no difference here.
func TestGomemcache(t *testing.T) {
	at := serveMemcached(t)
	both, one := memcache.New(at[0], at[1]), memcache.New(at[1])
	defer both.Close()
	defer one.Close()
	check := func(what string, err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	check("ping", both.Ping(), nil)
	var keys []string
	for i := range 200 {
		keys = append(keys, fmt.Sprint("key", i))
		if i < 100 {
			check("set", both.Set(&memcache.Item{Key: keys[i], Value: []byte(keys[i]), Flags: uint32(i), Expiration: 100}), nil)
		}
	}
	found, err := one.GetMulti(keys)
	check("get of many", err, nil)
	if len(found) != 100 || string(found["key99"].Value) != "key99" || found["key99"].Flags != 99 {
		t.Errorf("%d of 100 items, %+v", len(found), found["key99"])
	}
	_, err = one.Get("none")
	check("get", err, memcache.ErrCacheMiss)
	check("add", one.Add(&memcache.Item{Key: "key0"}), memcache.ErrNotStored)
	check("add", one.Add(&memcache.Item{Key: "n", Value: []byte("5")}), nil)
	check("replace", one.Replace(&memcache.Item{Key: "none"}), memcache.ErrNotStored)
	if n, err := both.Increment("n", 37); n != 42 || err != nil {
		t.Errorf("increment: %d, %v", n, err)
	}
	if n, err := one.Decrement("n", 100); n != 0 || err != nil {
		t.Errorf("decrement: %d, %v", n, err)
	}
	check("append", both.Append(&memcache.Item{Key: "key0", Value: []byte(">")}), nil)
	check("prepend", one.Prepend(&memcache.Item{Key: "key0", Value: []byte("<")}), nil)
	it, err := both.Get("key0")
	check("get", err, nil)
	if string(it.Value) != "<key0>" {
		t.Errorf("%q", it.Value)
	}
	it.Value = []byte("swapped")
	check("compare and swap", one.CompareAndSwap(it), nil)
	check("compare and swap of what has changed", both.CompareAndSwap(it), memcache.ErrCASConflict)
	check("touch", both.Touch("key0", 100), nil)
	check("touch", both.Touch("none", 100), memcache.ErrCacheMiss)
	if it, err := one.GetAndTouch("key0", 100); err != nil || string(it.Value) != "swapped" {
		t.Errorf("get and touch: %+v, %v", it, err)
	}
	if err := one.Set(&memcache.Item{Key: "large", Value: make([]byte, 1<<20)}); err == nil || !strings.Contains(err.Error(), "too large") {
		t.Errorf("a set that is too large: %v", err)
	}
	check("delete", one.Delete("key0"), nil)
	check("delete", both.Delete("key0"), memcache.ErrCacheMiss)
	check("flush", one.FlushAll(), nil)
	_, err = both.Get("key1")
	check("get after a flush", err, memcache.ErrCacheMiss)
}
