package redis

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/declock/declock"
)

// DBSIZE counts keys that are there, and not the many that were flushed; of more than it counts it says about how many there are.
func TestDBSize(t *testing.T) {
	_, address := startServer(t, openCluster(t), Options{})
	c := dial(t, address)
	set := func(from, to int) {
		text := ""
		for i := from; i < to; i++ {
			text += request("SET", fmt.Sprint("key", i), "v")
		}
		c.send(text)
		for range to - from {
			c.answer()
		}
	}
	for i := range 3 {
		set(1000*i, 1000*i+1000)
	}
	c.want("DBSIZE", ":3000")
	c.want("FLUSHALL", "OK")
	c.want("DBSIZE", ":0")
	set(5000, 5100)
	c.want("DBSIZE", ":100")
	for i := range 12 {
		set(10_000+1000*i, 11_000+1000*i)
	}
	if n, err := strconv.Atoi(c.do("DBSIZE")[1:]); err != nil || n < 10_000 || n > 14_500 {
		t.Errorf("%d keys, %v; there are 12,100", n, err)
	}
}

// DBSIZE is exact while there are few keys, however many the store is made for.
func TestDBSizeOfFew(t *testing.T) {
	cluster := openCluster(t)
	s, err := New(Options{})
	if err == nil {
		err = s.Attach(cluster, declock.StoreConfig{Objects: 400_000})
	}
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, listenFor(t, s))
	c.want("DBSIZE", ":0")
	for i := range 300 {
		c.want(fmt.Sprintf("SET key%d v", i), "OK")
		if i < 3 {
			c.want("DBSIZE", fmt.Sprint(":", i+1))
		}
	}
	c.want("DBSIZE", ":300")
	c.want("FLUSHALL", "OK")
	c.want("DBSIZE", ":0")
}

// A pass of SCAN over a store that is nearly empty takes few calls, each of which is bounded, however many items the store is made for.
func TestScanOfEmpty(t *testing.T) {
	cluster := openCluster(t)
	s, err := New(Options{})
	if err == nil {
		err = s.Attach(cluster, declock.StoreConfig{Objects: 400_000})
	}
	if err != nil {
		t.Fatal(err)
	}
	index := s.store.Load().items.Buckets() * 64 // at least
	c := dial(t, listenFor(t, s))
	for _, keys := range []int{0, 3} {
		for i := range keys {
			c.want(fmt.Sprintf("SET key%d v", i), "OK")
		}
		calls, found := 0, 0
		for cursor := "0"; calls == 0 || cursor != "0"; calls++ {
			c.send(request("SCAN", cursor))
			part := strings.Fields(strings.NewReplacer("*[", "", "]", "").Replace(c.answer()))
			cursor, found = part[0], found+len(part)-1
		}
		if found != keys || calls > 60 || calls < int(index>>20) {
			t.Errorf("%d calls find %d of %d keys in an index of more than %d bytes", calls, found, keys, index)
		}
	}
}
