package declock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/btree"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/objstore"
)

// opening opens a cluster of this process alone.
func opening() *declock.Cluster {
	c, err := declock.Open(context.Background(), "shm:")
	if err != nil {
		log.Fatal(err)
	}
	return c
}

// Locks by key, several at a time: in one order for all programs, so that they never wait for each other in a circle. A lock that two keys have in common is
// acquired once.
func ExampleCluster_LockAll() {
	ctx := context.Background()
	c := opening()
	defer c.Close()
	accounts, err := c.Locks(ctx, "accounts", 10_000)
	if err != nil {
		log.Fatal(err)
	}
	from, to, rates := accounts.Key([]byte("alice")), accounts.Key([]byte("bob")), accounts.Key([]byte("rates"))
	g, err := c.LockAll(ctx, declock.Write(from), declock.Write(to), declock.Read(rates))
	if err != nil {
		log.Fatal(err) // none of them is held
	}
	fmt.Println("move the money")
	if err := g.Unlock(); err != nil {
		log.Fatal(err)
	}
	// Output: move the money
}

// A resource that refuses older fencing tokens keeps out a holder that has lost the lock without knowing.
func ExampleGuard_Token() {
	ctx := context.Background()
	c := opening()
	defer c.Close()
	locks, err := c.Locks(ctx, "printer", 1)
	if err != nil {
		log.Fatal(err)
	}
	var newest lock.Token // of the resource
	write := func(token lock.Token) {
		if token < newest {
			fmt.Println("refused")
			return
		}
		newest = token
		fmt.Println("written")
	}
	var tokens []lock.Token
	for range 2 {
		g, err := c.Lock(ctx, locks.At(0))
		if err != nil {
			log.Fatal(err)
		}
		tokens = append(tokens, g.Token())
		if err := g.Unlock(); err != nil {
			log.Fatal(err)
		}
	}
	write(tokens[1])
	write(tokens[0]) // late
	// Output:
	// written
	// refused
}

// The leader among several programs is the one that holds a lock. It leads until it has lost the lock, or is asked to stop.
func ExampleGuard_Lost() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	c := opening()
	defer c.Close()
	locks, err := c.Locks(ctx, "leader", 1)
	if err != nil {
		log.Fatal(err)
	}
	g, err := c.Lock(ctx, locks.At(0)) // waits until the leader of before is gone
	if err != nil {
		log.Fatal(err)
	}
	work := time.NewTicker(time.Millisecond)
	defer work.Stop()
	for leading, done := true, 0; leading; {
		select {
		case <-work.C: // with g.Token(), for resources that compare it
			if done++; done == 3 {
				stop()
			}
		case <-g.Lost():
			leading = false // another program may lead by now: stop at once
		case <-ctx.Done():
			leading = false
			fmt.Println("resigns:", g.Unlock())
		}
	}
	// Output: resigns: <nil>
}

// A web server: each request has a goroutine, and all share the handles. A request that its client gives up ends what it waits for.
func ExampleStore() {
	c := opening()
	defer c.Close()
	st, err := c.Store(context.Background(), "pages", declock.StoreConfig{Objects: 10_000})
	if err != nil {
		log.Fatal(err)
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page, err := st.Get(r.Context(), []byte(r.URL.Path), nil)
		if err != nil {
			page = []byte("page of " + r.URL.Path) // made with much effort
			err = st.Set(r.Context(), []byte(r.URL.Path), page, declock.SetOptions{TTL: time.Minute})
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write(page)
	}))
	defer srv.Close()
	for range 2 {
		resp, err := http.Get(srv.URL + "/index")
		if err != nil {
			log.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		fmt.Printf("%s %v\n", body, err)
	}
	// Output:
	// page of /index <nil>
	// page of /index <nil>
}

// Many objects at once. Each key is an operation of its own.
func ExampleStore_GetMulti() {
	ctx := context.Background()
	c := opening()
	defer c.Close()
	st, err := c.Store(ctx, "pages", declock.StoreConfig{Objects: 10_000})
	if err != nil {
		log.Fatal(err)
	}
	if err := st.SetMulti(ctx, []declock.SetItem{
		{Key: []byte("a"), Value: []byte("1")},
		{Key: []byte("b"), Value: []byte("2"), SetOptions: declock.SetOptions{TTL: time.Hour}},
	}); err != nil {
		log.Fatal(err)
	}
	keys := [][]byte{[]byte("a"), []byte("b"), []byte("c")}
	found, err := st.GetMulti(ctx, keys)
	if err != nil {
		log.Fatal(err)
	}
	for i, r := range found {
		fmt.Printf("%s: %q %v\n", keys[i], r.Value, r.Err)
	}
	// Output:
	// a: "1" <nil>
	// b: "2" <nil>
	// c: "" objstore: key not found
}

// Locks by name: any text is a lock, no two of them are the same, and a name that is not in use costs nothing.
func ExampleCluster_Names() {
	c := opening()
	defer c.Close()
	ctx := context.Background()
	orders, err := c.Names(ctx, "orders", 0)
	if err != nil {
		log.Fatal(err)
	}
	g, err := orders.Lock(ctx, "customer 17")
	if err != nil {
		log.Fatal(err)
	}
	_, err = orders.TryLock(ctx, "customer 17")
	fmt.Println(errors.Is(err, lock.ErrBusy))
	if err := g.Unlock(); err != nil {
		log.Fatal(err)
	}
	// Output: true
}

// Any number of goroutines share what is opened: each operation takes a session of a pool, which WithSessions bounds. Several in a row can have one, and need no copy of
// what they get.
func ExampleStore_Use() {
	ctx := context.Background()
	c, err := declock.Open(ctx, "shm:", declock.WithSessions(8))
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	st, err := c.Store(ctx, "visits", declock.StoreConfig{Objects: 10_000})
	if err != nil {
		log.Fatal(err)
	}
	var visitors sync.WaitGroup
	for range 100 {
		visitors.Go(func() {
			if err := st.Use(ctx, func(c *objstore.Client) error {
				if err := c.Add([]byte("page"), []byte("0"), objstore.Options{}); err != nil && !errors.Is(err, objstore.ErrExists) {
					return err
				}
				_, err := c.Incr([]byte("page"), 1)
				return err
			}); err != nil {
				log.Fatal(err)
			}
		})
	}
	visitors.Wait()
	n, err := st.Get(ctx, []byte("page"), nil)
	fmt.Printf("%s %v\n", n, err)
	// Output: 100 <nil>
}

// The first program that gets a lock after one that crashed with it repairs what that has left half done.
func ExampleGuard_Recovered() {
	ctx := context.Background()
	c := opening()
	defer c.Close()
	locks, err := c.Locks(ctx, "ledger", 1)
	if err != nil {
		log.Fatal(err)
	}
	g, err := c.Lock(ctx, locks.At(0))
	if err != nil {
		log.Fatal(err)
	}
	if g.Recovered() {
		fmt.Println("look at the ledger first") // it is fit to be done without need
	}
	fmt.Println("write:", g.Unlock())
	// Output: write: <nil>
}

// A tree that is filled from sorted files, one part from each: nothing is to be seen of it before all is there.
func ExampleTree_BulkLoad() {
	ctx := context.Background()
	c := opening()
	defer c.Close()
	words, err := c.Tree(ctx, "words", declock.TreeConfig{})
	if err != nil {
		log.Fatal(err)
	}
	lines := func(text string) iter.Seq2[[]byte, []byte] {
		return func(yield func(key, value []byte) bool) {
			for line := range strings.Lines(text) {
				if !yield([]byte(strings.TrimSpace(line)), nil) {
					return
				}
			}
		}
	}
	if err := words.BulkLoad(ctx, btree.BulkOptions{}, lines("apple\nbanana\n"), lines("cherry\ndate\n")); err != nil {
		log.Fatal(err)
	}
	last, _, err := words.Prev(ctx, []byte("d"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", last)
	// Output: cherry
}
