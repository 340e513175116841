package sim

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/declock/declock/fabric"
)

// casClient is the spinlock of the paper's section 2.3, as simple as can be.
func casClient(p fabric.Port, draw func() uint64, until fabric.Time, ops, retries *int, lat *[]fabric.Time) {
	const writer = 1 << 32
	op := make([]fabric.Op, 1)
	do := func(o fabric.Op) uint64 {
		op[0] = o
		if err := p.Do(op); err != nil {
			panic(err)
		}
		return op[0].Old
	}
	for p.Now() < until {
		begin := p.Now()
		a := fabric.At(0, draw()*benchStride)
		write := p.Rand()&1 == 0
		for guess := uint64(0); ; {
			next := guess + 1
			if write {
				guess, next = 0, writer
			}
			old := do(fabric.CAS(a, guess, next))
			if old == guess {
				break
			}
			*retries++
			guess = old
			if old >= writer {
				guess = 0
			}
		}
		if write {
			do(fabric.Store(a+64, 1))
			do(fabric.FAA(a, ^uint64(writer-1)))
		} else {
			do(fabric.Load(a + 64))
			do(fabric.FAA(a, ^uint64(0)))
		}
		*ops++
		*lat = append(*lat, p.Now()-begin)
	}
}

func casRun(nic NIC, clients int, span fabric.Time) (mops, retries float64, p50, p99 fabric.Time, s NICStats) {
	c := New(Config{Seed: 1, NIC: nic})
	defer c.Close()
	c.AddMN(benchLocks * benchStride)
	z := newZipf(benchLocks, benchTheta)
	var ops, tries int
	var lat []fabric.Time
	var n *Node
	for i := range clients {
		if i%32 == 0 {
			n = c.AddCN()
		}
		c.Go(n, fmt.Sprint(i), func(p fabric.Port) {
			casClient(p, func() uint64 { return z.draw(p.Rand()) }, span, &ops, &tries, &lat)
		})
	}
	if err := c.Run(); err != nil {
		panic(err)
	}
	slices.Sort(lat)
	return float64(ops) * 1e3 / float64(c.Now()), float64(tries) / float64(ops), lat[len(lat)/2], lat[len(lat)*99/100], c.NICStats(0)
}

func TestX(t *testing.T) {
	if os.Getenv("X") == "" {
		t.Skip()
	}
	for _, n := range []int{1, 8, 16, 24, 32, 64, 128, 256} {
		m, r, p50, p99, s := casRun(CX4(), n, 10*fabric.Millisecond)
		t.Logf("%3d clients: %.2f Mops, %.1f retries, p50 %d p99 %d, NIC %.1f Mops stalls %d", n, m, r, p50, p99, float64(s.Total())/10000, s.Stalls)
	}
}
