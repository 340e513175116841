package overtcp_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/declock/declock"
)

// What one client's operations take over the loopback, to a memory node that is another process, and by local access to the same store and locks, in turns. The figures
// are medians: on a busy machine their ratios say something.
func BenchmarkLocal(b *testing.B) {
	dir, err := os.MkdirTemp("", "declock-overtcp")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	startEtcd(b, dir)
	address := fmt.Sprintf("tcp://%s/test?insecure=true&listen=127.0.0.1:0&dead-after=10s", filepath.Join(dir, "etcd.sock"))
	startSelf(b, roomyEnv+"="+address+lent)
	type way struct {
		get, set, acquire func() error
		treeGet, treePut  func() error
	}
	var ways [2]way
	for i, more := range []string{"", lent} {
		c, err := declock.Open(b.Context(), address+more)
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		st, err := c.Store(b.Context(), "objects", declock.StoreConfig{Objects: 10_000, MaxValue: 1024})
		if err != nil {
			b.Fatal(err)
		}
		locks, err := c.Locks(b.Context(), "locks", 100)
		if err != nil {
			b.Fatal(err)
		}
		tree, err := c.Tree(b.Context(), "tree", declock.TreeConfig{})
		if err != nil {
			b.Fatal(err)
		}
		key, value, dst := fmt.Append(nil, "key ", i), make([]byte, 100), make([]byte, 0, 1024)
		ways[i] = way{
			get: func() error { _, err := st.Get(b.Context(), key, dst); return err },
			set: func() error { return st.Set(b.Context(), key, value, declock.SetOptions{}) },
			acquire: func() error {
				g, err := c.Lock(b.Context(), locks.At(i))
				if err != nil {
					return err
				}
				return g.Unlock()
			},
			treeGet: func() error { _, err := tree.Get(b.Context(), key, dst); return err },
			treePut: func() error { return tree.Put(b.Context(), key, value) },
		}
	}
	var took [2][5][]float64
	for b.Loop() {
		for i, w := range ways {
			for j, f := range []func() error{w.set, w.get, w.acquire, w.treePut, w.treeGet} {
				for range 20 {
					began := time.Now()
					if err := f(); err != nil {
						b.Fatal(err)
					}
					took[i][j] = append(took[i][j], time.Since(began).Seconds())
				}
			}
		}
	}
	for j, name := range []string{"set", "get", "lock", "put", "treeget"} {
		var median [2]float64
		for i := range ways {
			slices.Sort(took[i][j])
			median[i] = took[i][j][len(took[i][j])/2]
		}
		b.ReportMetric(median[0]*1e6, name+"-us")
		b.ReportMetric(median[1]*1e6, "local-"+name+"-us")
		b.ReportMetric(median[0]/median[1], name+"-ratio")
	}
}

// What 32 clients get over the loopback, from a memory node that is another process, and by local access, in turns of 50 ms. The figures are medians of the turns.
func BenchmarkLocalClients(b *testing.B) {
	const clients, keys, window = 32, 10_000, 50 * time.Millisecond
	dir, err := os.MkdirTemp("", "declock-overtcp")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	startEtcd(b, dir)
	address := fmt.Sprintf("tcp://%s/test?insecure=true&listen=127.0.0.1:0&dead-after=10s", filepath.Join(dir, "etcd.sock"))
	startSelf(b, roomyEnv+"="+address+lent)
	var stores [2]*declock.Store
	for i, more := range []string{"", lent} {
		c, err := declock.Open(b.Context(), address+more)
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		if stores[i], err = c.Store(b.Context(), "objects", declock.StoreConfig{Objects: 4 * keys, MaxValue: 1024}); err != nil {
			b.Fatal(err)
		}
	}
	for i := range keys {
		if err := stores[1].Set(b.Context(), fmt.Append(nil, "key", i), make([]byte, 100), declock.SetOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	turn := func(st *declock.Store) float64 {
		var all sync.WaitGroup
		var done atomic.Int64
		end := time.Now().Add(window)
		for i := range clients {
			all.Go(func() {
				n, dst := 0, make([]byte, 0, 1024)
				for key := []byte(nil); n%16 != 0 || time.Now().Before(end); n++ {
					key = fmt.Append(key[:0], "key", (i*7919+n)%keys)
					if _, err := st.Get(b.Context(), key, dst); err != nil {
						b.Error(err)
						return
					}
				}
				done.Add(int64(n))
			})
		}
		all.Wait()
		return float64(done.Load()) / window.Seconds()
	}
	var rates [2][]float64
	for b.Loop() {
		for i, st := range stores {
			rates[i] = append(rates[i], turn(st))
		}
	}
	var median [2]float64
	for i := range stores {
		slices.Sort(rates[i])
		median[i] = rates[i][len(rates[i])/2]
	}
	b.ReportMetric(median[0], "gets/s")
	b.ReportMetric(median[1], "local-gets/s")
	b.ReportMetric(median[1]/median[0], "ratio")
}
