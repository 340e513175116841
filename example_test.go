package declock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/btree"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/objstore"
)

// A cluster of this process alone, a lock.
func Example() {
	ctx := context.Background()
	c, err := declock.Open(ctx, "shm:") // "shm:NAME" joins one that "declock up" started
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	locks, err := c.Locks(ctx, "accounts", 1000)
	if err != nil {
		log.Fatal(err)
	}
	first, err := c.Lock(ctx, locks.At(17))
	if err != nil {
		log.Fatal(err)
	}
	if err := first.Unlock(); err != nil {
		log.Fatal(err)
	}
	second, err := c.Lock(ctx, locks.At(17))
	if err != nil {
		log.Fatal(err)
	}
	defer second.Unlock()
	fmt.Println("tokens grow:", second.Token() > first.Token())
	// Output: tokens grow: true
}

// What the sessions of a program count is added up: each counts for itself, without atomics.
func Example_counters() {
	ctx := context.Background()
	c, err := declock.Open(ctx, "shm:")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	locks, err := c.Locks(ctx, "accounts", 1000)
	if err != nil {
		log.Fatal(err)
	}
	store, err := c.Store(ctx, "sessions", declock.StoreConfig{Objects: 100})
	if err != nil {
		log.Fatal(err)
	}
	var grants lock.Stats // btree.Stats and fabric.Stats likewise
	var work objstore.Stats
	for range 2 {
		s, err := c.Session()
		if err != nil {
			log.Fatal(err)
		}
		g, err := s.Lock(ctx, locks.At(17))
		if err == nil {
			err = g.Unlock()
		}
		if err != nil {
			log.Fatal(err)
		}
		grants.Add(s.Locker().Stats())
		cache, err := store.Client(s)
		if err != nil {
			log.Fatal(err)
		}
		if err := cache.Set([]byte("key"), []byte("value"), objstore.Options{}); err != nil {
			log.Fatal(err)
		}
		work.Add(cache.Stats())
	}
	fmt.Println(grants.Acquires, "locks acquired,", work.Stores, "objects stored")
	// Output: 2 locks acquired, 2 objects stored
}

// A wait for a lock ends with its context, and then the lock is not held.
func ExampleSession_Lock_timeout() {
	ctx := context.Background()
	c, err := declock.Open(ctx, "shm:")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	locks, _ := c.Locks(ctx, "one", 1)
	holder, _ := c.Session()
	g, err := holder.Lock(ctx, locks.At(0))
	if err != nil {
		log.Fatal(err)
	}
	defer g.Unlock()

	other, _ := c.Session()
	short, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
	defer cancel()
	_, err = other.Lock(short, locks.At(0))
	fmt.Println(errors.Is(err, lock.ErrCanceled), errors.Is(err, context.DeadlineExceeded))
	_, err = other.TryRLock(locks.At(0))
	fmt.Println(errors.Is(err, lock.ErrBusy))
	// Output:
	// true true
	// true
}

// An object store, shared by all compute nodes that open it by its name.
func ExampleCluster_Store() {
	ctx := context.Background()
	c, err := declock.Open(ctx, "shm:")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	st, err := c.Store(ctx, "sessions", declock.StoreConfig{Objects: 10_000})
	if err != nil {
		log.Fatal(err)
	}
	key := []byte("greeting")
	if err := st.Set(ctx, key, []byte("hello"), declock.SetOptions{TTL: time.Minute}); err != nil {
		log.Fatal(err)
	}
	if err := st.Append(ctx, key, []byte(", world")); err != nil {
		log.Fatal(err)
	}
	value, err := st.Get(ctx, key, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", value)
	_, err = st.Get(ctx, []byte("nothing"), value[:0])
	fmt.Println(errors.Is(err, objstore.ErrNotFound))
	// Output:
	// hello, world
	// true
}

// A B+tree index: keys in order.
func ExampleCluster_Tree() {
	ctx := context.Background()
	c, err := declock.Open(ctx, "shm:")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	t, err := c.Tree(ctx, "users", declock.TreeConfig{})
	if err != nil {
		log.Fatal(err)
	}
	for _, name := range []string{"carol", "alice", "bob", "dave"} {
		if err := t.Put(ctx, []byte(name), []byte(name+"@example.org")); err != nil {
			log.Fatal(err)
		}
	}
	if err := t.Delete(ctx, []byte("carol")); err != nil {
		log.Fatal(err)
	}
	s := t.Scan(ctx, btree.Range{From: []byte("b")})
	for name, address := range s.All() {
		fmt.Printf("%s %s\n", name, address)
	}
	fmt.Println(s.Err())
	// Output:
	// bob bob@example.org
	// dave dave@example.org
	// <nil>
}
