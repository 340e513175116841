package overtcp_test

import (
	"encoding/binary"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/btree"
)

// numbers yields keys of 8 bytes from one number to another, each with itself as its value.
func numbers(from, to int) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		b := make([]byte, 8)
		for i := from; i < to; i++ {
			binary.BigEndian.PutUint64(b, uint64(i))
			if !yield(b, b) {
				return
			}
		}
	}
}

// What it takes to load a tree over TCP, into a memory node that is another process, in one part and in several, in turns. Each tree has all keys.
func BenchmarkBulkLoad(b *testing.B) {
	const n = 100_000
	dir, err := os.MkdirTemp("", "declock-overtcp")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	startEtcd(b, dir)
	address := fmt.Sprintf("tcp://%s/test?insecure=true&listen=127.0.0.1:0&dead-after=10s", filepath.Join(dir, "etcd.sock"))
	startSelf(b, roomyEnv+"="+address)
	c, err := declock.Open(b.Context(), address)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	var took [3]time.Duration
	parts := [3]int{1, 4, 8}
	for i := 0; b.Loop(); i++ {
		for k, p := range parts {
			name := fmt.Sprint("t", i, ".", k)
			tr, err := c.Tree(b.Context(), name, declock.TreeConfig{MaxKey: 8, MaxInline: 8})
			if err != nil {
				b.Fatal(err)
			}
			var list []iter.Seq2[[]byte, []byte]
			for j := range p {
				list = append(list, numbers(n*j/p, n*(j+1)/p))
			}
			began := time.Now()
			if err := tr.BulkLoad(b.Context(), btree.BulkOptions{}, list...); err != nil {
				b.Fatal(err)
			}
			took[k] += time.Since(began)
			keys := 0
			for range tr.Scan(b.Context(), btree.Range{}).All() {
				keys++
			}
			if keys != n {
				b.Fatalf("%d keys", keys)
			}
			if err := c.DropTree(b.Context(), name); err != nil {
				b.Fatal(err)
			}
		}
	}
	for k, p := range parts {
		b.ReportMetric(float64(n)*float64(b.N)/took[k].Seconds(), fmt.Sprintf("keys/s-of-%d", p))
		b.ReportMetric(float64(took[0])/float64(took[k]), fmt.Sprintf("ratio-of-%d", p))
	}
}
