package btree

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/fabrictest"
	"github.com/declock/declock/lock/cas"
	"github.com/declock/declock/lock/locktest"
	"github.com/declock/declock/region"
)

// shmCluster returns a formatted memory node in shared memory and compute nodes.
func shmCluster(t testing.TB, size uint64, cns int) fabrictest.Cluster {
	t.Helper()
	cl := locktest.Shm(t.TempDir()).Start(t, fabrictest.Config{Mem: []uint64{size}, CNs: cns})
	t.Cleanup(cl.Close)
	wantErr(t, "format", region.Format(shmPort(t, cl, 0), 0, region.Params{Size: size, CapacityLog2: 3, VersionBits: 16}), nil)
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
func shmUint64(t testing.TB, n uint64) *Uint64 {
	t.Helper()
	cl := shmCluster(t, 64<<20+n*100, 1)
	cfg := shmConfig()
	cfg.MaxKey, cfg.MaxInline = 8, 8
	tr, err := Open(shmPort(t, cl, 0), cfg)
	wantErr(t, "open", err, nil)
	u := clientOn(t, tr, shmPort(t, cl, 0)).Uint64()
	var v [8]byte
	for i := range n {
		k := i * 7919 % n
		binary.LittleEndian.PutUint64(v[:], k)
		wantErr(t, "put", u.Put(k, v[:]), nil)
	}
	return u
}

// BenchmarkShm: a million keys of 8 bytes with values of 8 bytes, one client.
func BenchmarkShm(b *testing.B) {
	n := uint64(1_000_000)
	if testing.Short() {
		n = 10_000
	}
	u := shmUint64(b, n)
	var v [8]byte
	x := uint64(1)
	next := func() uint64 {
		x = x*6364136223846793005 + 1442695040888963407
		return (x >> 20) % n
	}
	b.Run("get", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := u.Get(next()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("put", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := u.Put(next(), v[:]); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("scan", func(b *testing.B) {
		b.ReportAllocs()
		keys := 0
		for b.Loop() {
			err := u.Each(next(), false, 10000, func(uint64, []byte) bool { keys++; return true })
			if err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(keys)/b.Elapsed().Seconds()/1e6, "Mkeys/s")
	})
	b.Log(fmt.Sprintf("%+v %+v", *u.Stats(), u.t.CacheStats()))
}
