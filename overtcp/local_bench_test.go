package overtcp_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
		get, set func() error
		acquire  func() error
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
		}
	}
	var took [2][3][]float64
	for b.Loop() {
		for i, w := range ways {
			for j, f := range []func() error{w.set, w.get, w.acquire} {
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
	for j, name := range []string{"set", "get", "lock"} {
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
