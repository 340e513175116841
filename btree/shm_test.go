package btree

import (
	"encoding/binary"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/fabrictest"
	"github.com/declock/declock/lab/locks/cas"
	"github.com/declock/declock/lock/locktest"
	"github.com/declock/declock/memory"
	"github.com/google/btree"
	"go.etcd.io/bbolt"
)

// shmCluster returns a formatted memory node in shared memory and compute nodes.
func shmCluster(t testing.TB, size uint64, cns int) fabrictest.Cluster {
	t.Helper()
	return realCluster(t, locktest.Shm(t.TempDir()), size, cns)
}

// realCluster returns a formatted memory node and compute nodes of a fabric that works in real time.
func realCluster(t testing.TB, h fabrictest.Harness, size uint64, cns int) fabrictest.Cluster {
	t.Helper()
	cl := h.Start(t, fabrictest.Config{Mem: []uint64{size}, CNs: cns})
	t.Cleanup(cl.Close)
	wantErr(t, "format", memory.Format(shmPort(t, cl, 0), 0, memory.Params{Size: size, CapacityLog2: 3, VersionBits: 16}), nil)
	return cl
}

func shmPort(t testing.TB, cl fabrictest.Cluster, cn int) fabric.Port {
	t.Helper()
	p, err := cl.Node(cn).Open()
	wantErr(t, "port", err, nil)
	return p
}

func shmConfig() Config {
	return Config{Name: "shm", Nodes: []fabric.MemID{0}, Lock: cas.Config{Plain: true}.Layout()}
}

// shmUint64 returns a client of a tree with keys 0 to n-1, permuted.
func shmUint64(t testing.TB, n uint64) *Client {
	t.Helper()
	cl := shmCluster(t, 64<<20+n*100, 1)
	cfg := shmConfig()
	cfg.MaxKey, cfg.MaxInline = 8, 8
	tr, err := Open(shmPort(t, cl, 0), cfg)
	wantErr(t, "open", err, nil)
	u := clientOn(t, tr, shmPort(t, cl, 0))
	var v [8]byte
	for i := range n {
		k := i * 7919 % n
		binary.LittleEndian.PutUint64(v[:], k)
		wantErr(t, "put", u.Put(binary.BigEndian.AppendUint64(nil, k), v[:]), nil)
	}
	return u
}

// A rival is what an index is compared with: the same keys and values of 8 bytes, one client.
type rival struct {
	name string
	get  func(k uint64) bool
	put  func(k uint64, v []byte) error
	scan func(from uint64, n int) int
}

// BenchmarkShm compares, in one run, the tree over shared memory with google/btree behind a mutex (what one machine would use)
// and with bbolt (which writes a file, here without waiting for the disk): a million keys of 8 bytes with
// values of 8 bytes, in random order, all warm. Metrics are medians over single operations, and at the end how many times as long as
// the others the tree takes. With -short, few keys.
func BenchmarkShm(b *testing.B) {
	n := uint64(1_000_000)
	if testing.Short() {
		n = 10_000
	}
	u := shmUint64(b, n)
	var kb [8]byte
	key := func(k uint64) []byte { return binary.BigEndian.AppendUint64(kb[:0], k) }
	ours := rival{"tree",
		func(k uint64) bool { _, err := u.Get(key(k)); return err == nil },
		func(k uint64, v []byte) error { return u.Put(key(k), v) },
		func(from uint64, n int) (found int) {
			_ = u.Each(Range{From: key(from), Limit: n}, func(_, _ []byte) bool { found++; return true })
			return found
		}}
	figures := map[string]float64{} // ns an operation, and a key of a scan
	rivals := []rival{ours, googleRival(n), boltRival(b, n)}
	for _, r := range rivals {
		x := uint64(1)
		next := func() uint64 {
			x = x*6364136223846793005 + 1442695040888963407
			return (x >> 20) % n
		}
		var v [8]byte
		b.Run(r.name+"/get", func(b *testing.B) {
			figures[r.name+"/get"] = median(b, func() {
				if !r.get(next()) {
					b.Fatal("not found")
				}
			})
		})
		b.Run(r.name+"/put", func(b *testing.B) {
			figures[r.name+"/put"] = median(b, func() {
				if err := r.put(next(), v[:]); err != nil {
					b.Fatal(err)
				}
			})
		})
		b.Run(r.name+"/scan", func(b *testing.B) {
			keys := 0
			for b.Loop() {
				keys += r.scan(next(), 10000)
			}
			b.ReportMetric(float64(keys)/b.Elapsed().Seconds()/1e6, "Mkeys/s")
			figures[r.name+"/scan"] = float64(b.Elapsed()) / float64(keys)
		})
	}
	for _, r := range rivals[1:] {
		b.Run("tree over "+r.name, func(b *testing.B) {
			for b.Loop() {
			}
			b.ReportMetric(0, "ns/op")
			for _, op := range []string{"get", "put", "scan"} {
				b.ReportMetric(figures["tree/"+op]/figures[r.name+"/"+op], op+"-x")
			}
		})
	}
}

// median reports the median and the 99th percentile of an operation, and returns the median in ns.
func median(b *testing.B, f func()) float64 {
	b.ReportAllocs()
	took := make([]time.Duration, 0, 1<<20)
	for b.Loop() {
		begin := time.Now()
		f()
		if d := time.Since(begin); len(took) < cap(took) {
			took = append(took, d)
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2]), "p50-ns")
	b.ReportMetric(float64(took[len(took)*99/100]), "p99-ns")
	return float64(took[len(took)/2])
}

type pair struct{ k, v uint64 }

func googleRival(n uint64) rival {
	t := btree.NewG(32, func(a, b pair) bool { return a.k < b.k })
	var mu sync.Mutex
	for k := range n {
		t.ReplaceOrInsert(pair{k, k})
	}
	return rival{"google", func(k uint64) bool {
		mu.Lock()
		defer mu.Unlock()
		_, ok := t.Get(pair{k: k})
		return ok
	}, func(k uint64, v []byte) error {
		mu.Lock()
		defer mu.Unlock()
		t.ReplaceOrInsert(pair{k, binary.LittleEndian.Uint64(v)})
		return nil
	}, func(from uint64, n int) (found int) {
		mu.Lock()
		defer mu.Unlock()
		t.AscendGreaterOrEqual(pair{k: from}, func(pair) bool { found++; return found < n })
		return found
	}}
}

func boltRival(b *testing.B, n uint64) rival {
	db, err := bbolt.Open(b.TempDir()+"/bolt", 0o600, &bbolt.Options{NoSync: true, NoFreelistSync: true})
	wantErr(b, "bbolt", err, nil)
	b.Cleanup(func() { db.Close() })
	name := []byte("b")
	wantErr(b, "bbolt", db.Update(func(tx *bbolt.Tx) error {
		bk, err := tx.CreateBucket(name)
		for k := uint64(0); err == nil && k < n; k++ {
			err = bk.Put(binary.BigEndian.AppendUint64(nil, k), make([]byte, 8))
		}
		return err
	}), nil)
	return rival{"bbolt", func(k uint64) (found bool) {
		_ = db.View(func(tx *bbolt.Tx) error {
			found = tx.Bucket(name).Get(binary.BigEndian.AppendUint64(nil, k)) != nil
			return nil
		})
		return found
	}, func(k uint64, v []byte) error {
		return db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(name).Put(binary.BigEndian.AppendUint64(nil, k), v) })
	}, func(from uint64, n int) (found int) {
		_ = db.View(func(tx *bbolt.Tx) error {
			c := tx.Bucket(name).Cursor()
			for k, _ := c.Seek(binary.BigEndian.AppendUint64(nil, from)); k != nil && found < n; k, _ = c.Next() {
				found++
			}
			return nil
		})
		return found
	}}
}
