package sim

import (
	"fmt"
	"math"
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

// BenchmarkSimOps: 256 clients on 8 compute nodes, each an endless row of FAA
// and READ on locks drawn by Zipf.
func BenchmarkSimOps(b *testing.B) {
	c := New(Config{Seed: 1})
	defer c.Close()
	c.AddMN(benchLocks * benchStride)
	z := newZipf(benchLocks, benchTheta)
	draws := make([]fabric.Addr, 1<<16) // beforehand: the generator is not what is measured
	r := NewRand(1, 0)
	for i := range draws {
		draws[i] = fabric.At(0, z.draw(r.Uint64())*benchStride)
	}
	quota := b.N/benchClients + 1
	for cn := 0; cn < 8; cn++ {
		n := c.AddCN()
		for i := 0; i < benchClients/8; i++ {
			c.Go(n, fmt.Sprint(cn, "/", i), func(p fabric.Port) {
				buf := p.Alloc(64)
				ops := make([]fabric.Op, 1)
				at := int(p.Rand() % uint64(len(draws)))
				for k := 0; k < quota; k++ {
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
	}
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
