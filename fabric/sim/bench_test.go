package sim

import (
	"fmt"
	"math"
	"runtime"
	"testing"

	"github.com/declock/declock/fabric"
)

const (
	benchLocks   = 100_000
	benchStride  = 264
	benchTheta   = 0.99
	benchClients = 256
)

// zipf draws from a table of cumulated probabilities, scattered over memory
// so that neighbours in rank are no neighbours in memory.
type zipf struct{ cum []float64 }

func newZipf(n int, theta float64) *zipf {
	z := &zipf{cum: make([]float64, n)}
	sum := 0.0
	for i := range z.cum {
		sum += 1 / math.Pow(float64(i+1), theta)
		z.cum[i] = sum
	}
	for i := range z.cum {
		z.cum[i] /= sum
	}
	return z
}

func (z *zipf) draw(r uint64) uint64 {
	u := float64(r>>11) / (1 << 53)
	lo, hi := 0, len(z.cum)-1
	for lo < hi {
		if m := (lo + hi) / 2; z.cum[m] < u {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return uint64(lo) * 2654435761 % uint64(len(z.cum))
}

// simOps makes a cluster of 256 clients on 8 compute nodes, each a row of FAA
// and READ on locks drawn by Zipf, about n operations in all.
func simOps(n int) *Cluster {
	c := New(Config{Seed: 1})
	c.AddMN(benchLocks * benchStride)
	z := newZipf(benchLocks, benchTheta)
	draws := make([]fabric.Addr, 1<<16) // beforehand: the generator is not what is measured
	r := NewRand(1, 0)
	for i := range draws {
		draws[i] = fabric.At(0, z.draw(r.Uint64())*benchStride)
	}
	quota := (n + benchClients - 1) / benchClients
	var cn *Node
	for i := range benchClients {
		if i%32 == 0 {
			cn = c.AddCN()
		}
		c.Go(cn, fmt.Sprint("client ", i), func(p fabric.Port) {
			buf := p.Alloc(64)
			ops := make([]fabric.Op, 1)
			at := int(p.Rand() % uint64(len(draws)))
			for k := range quota {
				a := draws[(at+k)%len(draws)]
				if k&1 == 0 {
					ops[0] = fabric.FAA(a, 1)
				} else {
					ops[0] = fabric.Read(a, buf)
				}
				if err := p.Do(ops); err != nil {
					panic(err)
				}
			}
		})
	}
	return c
}

// BenchmarkSimOps tells how many one-sided operations are simulated per second of wall time.
func BenchmarkSimOps(b *testing.B) {
	c := simOps(b.N)
	defer c.Close()
	b.ReportAllocs()
	b.ResetTimer()
	if err := c.Run(); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	nic := c.NICStats(0)
	total := float64(nic.Total().Ops)
	b.ReportMetric(total/b.Elapsed().Seconds()/1e6, "Mops/s")
	b.ReportMetric(total*1e3/float64(c.Now()), "virtual-Mops/s")
	b.ReportMetric(float64(c.Events())/total, "events/op")
}

// The benchmark, tiny: it runs, and the engine allocates nothing per operation.
func TestSimOpsTiny(t *testing.T) {
	const n = 100 * benchClients
	c := simOps(n)
	defer c.Close()
	if err := c.RunUntil(20 * fabric.Microsecond); err != nil {
		t.Fatal(err)
	}
	nic := c.NICStats(0)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	ops := n - nic.Total().Ops
	// Pages of memory that is touched first are made 256 at a time.
	if allocs := after.Mallocs - before.Mallocs; allocs > ops/20 {
		t.Errorf("%d allocations for %d operations", allocs, ops)
	}
	if nic = c.NICStats(0); nic.Total().Ops != n {
		t.Errorf("%d operations, want %d", nic.Total().Ops, n)
	}
}
