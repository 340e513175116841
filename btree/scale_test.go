package btree

import (
	"encoding/binary"
	"flag"
	"testing"
	"time"

	"github.com/declock/declock/fabric/sim"
)

var (
	bulk    = flag.Uint64("bulk", 200_000, "keys of TestBulkLoadShm: 10 million take 300 MB")
	bulkSim = flag.Uint64("bulk-sim", 200_000, "keys of TestBulkLoadSim: 100 million take 3 GB")
)

// A bulk load over shared memory.
func TestBulkLoadShm(t *testing.T) {
	cl := shmCluster(t, 64<<20+*bulk*40, 1)
	cfg := shmConfig()
	cfg.MaxKey, cfg.MaxInline = 8, 8
	tr, err := Open(shmPort(t, cl, 0), cfg)
	wantErr(t, "open", err, nil)
	loadMany(t, clientOn(t, tr, shmPort(t, cl, 0)), *bulk)
}

// A bulk load in the simulator: bytes of a key, and the height.
func TestBulkLoadSim(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 64<<20+*bulkSim*40, 1)
	cfg := w.config()
	cfg.MaxKey, cfg.MaxInline, cfg.NodeSize = 8, 8, 0
	loadMany(t, w.client(0, w.open(0, cfg)), *bulkSim)
}

// loadMany loads n keys of 8 bytes with values of 8, looks for some, and checks the tree.
func loadMany(t *testing.T, c *Client, n uint64) {
	t.Helper()
	var kb, vb [8]byte
	begin := time.Now()
	wantErr(t, "load", c.BulkLoad(func(yield func(k, v []byte) bool) {
		for i := range n {
			binary.BigEndian.PutUint64(kb[:], i)
			binary.LittleEndian.PutUint64(vb[:], i)
			if !yield(kb[:], vb[:]) {
				return
			}
		}
	}, BulkOptions{}), nil)
	took := time.Since(begin)
	for i := uint64(0); i < n; i += n/1000 + 1 {
		binary.BigEndian.PutUint64(kb[:], i)
		if v, err := c.Get(kb[:]); err != nil || binary.LittleEndian.Uint64(v) != i {
			t.Fatal(i, v, err)
		}
	}
	r := mustBeSound(t, c)
	if r.Keys != n || !r.Clean() {
		t.Fatal(r)
	}
	t.Logf("%d keys in %v, %d levels, %.1f bytes a key", n, took, r.Height, float64(r.Memory[0].Bytes)/float64(n))
}
