//go:build cgo && !shmonly

package verbs

import (
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/fabrictest"
)

// cluster starts a memory node and a compute node.
func cluster(t testing.TB, mem uint64, cns int) *testCluster {
	needDevice(t)
	c := harness{}.Start(t, fabrictest.Config{Mem: []uint64{mem}, CNs: cns}).(*testCluster)
	t.Cleanup(c.Close)
	return c
}

// countedEnv is set by scripts/verbs-vm when the guest's clock counts the instructions of
// its one processor. Elsewhere what is measured depends on other load.
const countedEnv = "DECLOCK_VERBS_ICOUNT"

func cpuTime() time.Duration {
	if os.Getenv(countedEnv) != "" {
		return time.Since(started)
	}
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// loopKinds are the operations that TestCostOfTheLayer compares.
func loopKinds(p fabric.Port) map[string]fabric.Op {
	a := fabric.At(0, 4096)
	return map[string]fabric.Op{
		"FAA": fabric.FAA(a, 1), "CAS": fabric.CAS(a, 0, 1), "READ 64": fabric.Read(a, p.Alloc(64)),
		"WRITE 64": fabric.Write(a, p.Alloc(64)), "WRITE 4096": fabric.Write(a, p.Alloc(4096)),
	}
}

// maxCost is what one operation may cost, in processor time, as a multiple of the plainest
// loop in C on the same queue pair.
const maxCost = 1.5

// TestCostOfTheLayer compares the processor time of an operation at queue depth 1 with that
// of a C program that posts and polls and does nothing else.
func TestCostOfTheLayer(t *testing.T) {
	c := cluster(t, 1<<20, 1)
	p, err := c.Node(0).Open()
	if err != nil {
		t.Fatal(err)
	}
	own := p.(*port)
	const ops, rounds = 1000, 5
	for name, op := range loopKinds(p) {
		r, _, _ := own.target([]fabric.Op{op})
		l := r.lanes[own.Lane%len(r.lanes)]
		var ratios []float64
		var ours, theirs time.Duration
		for range rounds {
			begin := cpuTime()
			chain := []fabric.Op{op}
			for range ops {
				if err := p.Do(chain); err != nil {
					t.Fatal(err)
				}
			}
			go1 := cpuTime() - begin
			begin = cpuTime()
			if err := cLoop(own, l, op, ops); err != nil {
				t.Fatal(err)
			}
			c1 := cpuTime() - begin
			ours, theirs = ours+go1, theirs+c1
			ratios = append(ratios, float64(go1)/float64(c1))
		}
		slices.Sort(ratios)
		t.Logf("%-10s %6.2f us of processor time in Go, %6.2f in C, ratio %.2f (median of %d; %.2f to %.2f)", name,
			us(ours, rounds*ops), us(theirs, rounds*ops), ratios[rounds/2], rounds, ratios[0], ratios[rounds-1])
		if os.Getenv(countedEnv) != "" && ratios[rounds/2] > maxCost {
			t.Errorf("%s costs %.2f times what it does in C, at most %.1f", name, ratios[rounds/2], maxCost)
		}
	}
}

var started = time.Now()

func us(d time.Duration, n int) float64 { return float64(d.Nanoseconds()) / float64(n) / 1000 }

// cLoop executes an operation n times in C, on a queue pair that is not in use otherwise.
func cLoop(p *port, l *lane, op fabric.Op, n int) error {
	ops := []fabric.Op{op}
	i := uint32(len(p.chains))
	c := p.take(i, ops, 1, nil)
	c.lane = l
	c.plan()
	var w [1]wrOp
	c.fill(w[:], l.r)
	l.cq.mu.Lock()
	err := l.q.loop(l.cq.q, &w[0], n)
	l.cq.mu.Unlock()
	c.atomic, c.n = false, 0
	_ = p.End(i)
	return err
}

func BenchmarkDo(b *testing.B) {
	c := cluster(b, 1<<20, 1)
	p, err := c.Node(0).Open()
	if err != nil {
		b.Fatal(err)
	}
	for name, op := range loopKinds(p) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			ops := []fabric.Op{op}
			for b.Loop() {
				if err := p.Do(ops); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkClients(b *testing.B) {
	for _, clients := range []int{1, 8, 64} {
		b.Run(fmt.Sprint(clients), func(b *testing.B) {
			c := cluster(b, 1<<20, 1)
			b.ReportAllocs()
			for k := range clients {
				p, err := c.Node(0).Open()
				if err != nil {
					b.Fatal(err)
				}
				c.Go(p, func(p fabric.Port) {
					ops := []fabric.Op{fabric.FAA(fabric.At(0, uint64(64*k)), 1)}
					for range (b.N + clients - 1) / clients {
						if err := p.Do(ops); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			c.Wait()
		})
	}
}
