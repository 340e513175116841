package declock_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/declock/declock"
)

// What values of 4 MiB take on shared memory, in turns with a copy of as many bytes: each to and from memory that is larger than the caches. The figures are medians.
func BenchmarkLarge(b *testing.B) {
	const size, keys = 4 << 20, 16
	c, err := declock.Open(b.Context(), "shm:", declock.WithMemory(512<<20))
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	st, err := c.Store(b.Context(), "objects", declock.StoreConfig{Objects: 1000, MaxValue: 64 << 20})
	if err != nil {
		b.Fatal(err)
	}
	value, dst, far := bytes.Repeat([]byte("value..."), size/8), make([]byte, 0, size), bytes.Repeat([]byte("elsewhere"), size*keys/9+1)
	key := func(i int) []byte { return fmt.Append(nil, "key ", i%keys) }
	for i := range 4 * keys { // memory is taken, and touched
		if err := st.Set(b.Context(), key(i), value, declock.SetOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	var set, get, in, out []float64
	timed := func(to *[]float64, f func()) {
		began := time.Now()
		f()
		*to = append(*to, time.Since(began).Seconds())
	}
	i := 0
	for b.Loop() {
		timed(&set, func() { err = st.Set(b.Context(), key(i), value, declock.SetOptions{}) })
		timed(&in, func() { copy(far[i%keys*size:], value) })
		if err != nil {
			b.Fatal(err)
		}
		timed(&get, func() { _, err = st.Get(b.Context(), key(i+keys/2), dst) })
		timed(&out, func() { copy(dst[:size], far[(i+keys/2)%keys*size:]) })
		if err != nil {
			b.Fatal(err)
		}
		i++
	}
	median := func(list []float64) float64 {
		slices.Sort(list)
		return list[len(list)/2]
	}
	b.ReportMetric(size/median(set)/1e6, "set-MB/s")
	b.ReportMetric(size/median(get)/1e6, "get-MB/s")
	b.ReportMetric(size/median(in)/1e6, "copy-in-MB/s")
	b.ReportMetric(median(in)/median(set), "set/copy")
	b.ReportMetric(median(out)/median(get), "get/copy")
}
