package tcp

import (
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/declock/declock/coordinator/coordtest"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peertest"
	"github.com/declock/declock/lab/locks/cas"
	"github.com/declock/declock/lock"
)

// BenchmarkLoopback is a message to and fro over loopback, to a process with one processor, with Go's own
// connections: what to compare with.
func BenchmarkLoopback(b *testing.B) {
	c := newTestCluster(b)
	e := start(b, childSpec{Role: "loopback", Coordinator: coordtest.Serve(b, c.Members.Now()), Procs: 1})
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", uint64(e.incarnation)))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	var buf [40]byte
	measure(b, func() {
		_, _ = conn.Write(buf[:])
		_, _ = conn.Read(buf[:])
	})
}

// loopback answers with what it gets.
func loopback() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("ready", l.Addr().(*net.TCPAddr).Port)
	c, err := l.Accept()
	if err != nil {
		return err
	}
	_, err = io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c})
	return err
}

// measure runs f again and again, and reports the median and the fastest tenth: on a machine that
// others use too, the mean says more about them.
func measure(b *testing.B, f func()) {
	took := make([]time.Duration, 0, 1<<20)
	b.ReportAllocs()
	var before, after syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	for b.Loop() {
		begin := time.Now()
		f()
		if len(took) < cap(took) {
			took = append(took, time.Since(begin))
		}
	}
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	cpu := func(r *syscall.Rusage) int64 { return r.Utime.Nano() + r.Stime.Nano() }
	b.ReportMetric(float64(cpu(&after)-cpu(&before))/float64(b.N), "cpu-ns")
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/10]), "p10-ns")
	b.ReportMetric(float64(took[len(took)/2]), "p50-ns")
}

// benchCluster is a memory node in a process of its own, with a number of processors, and a compute node here.
func benchCluster(b *testing.B, procs int) *testCluster {
	c := newTestCluster(b)
	start(b, childSpec{Role: "serve", Coordinator: coordtest.Serve(b, c.Members.Now()), Size: 1 << 30, Procs: procs})
	b.Cleanup(c.Close)
	c.Join()
	return c
}

func BenchmarkDoFAA(b *testing.B) {
	p := peertest.Open(b, benchCluster(b, 1).Nodes[0])
	ops := []fabric.Op{fabric.FAA(fabric.At(0, 64), 1)}
	measure(b, func() {
		if err := p.Do(ops); err != nil {
			b.Fatal(err)
		}
	})
}

func BenchmarkRead4096(b *testing.B) {
	p := peertest.Open(b, benchCluster(b, 1).Nodes[0])
	ops := []fabric.Op{fabric.Read(fabric.At(0, 64), p.Alloc(4096))}
	measure(b, func() {
		if err := p.Do(ops); err != nil {
			b.Fatal(err)
		}
	})
}

// BenchmarkClients is one-sided operations of many clients of one compute node, on a memory node with one processor.
func BenchmarkClients(b *testing.B) {
	for _, clients := range []int{1, 2, 4, 8, 32, 256} {
		b.Run(fmt.Sprint(clients), func(b *testing.B) {
			n := benchCluster(b, 1).Nodes[0]
			var all sync.WaitGroup
			b.ReportAllocs()
			b.ResetTimer()
			for i := range clients {
				p := peertest.Open(b, n)
				all.Go(func() {
					ops := []fabric.Op{fabric.FAA(fabric.At(0, uint64(64*(1+i))), 1)}
					for range (b.N + clients - 1) / clients {
						if err := p.Do(ops); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
		})
	}
}

// BenchmarkChains is the same with chains of eight operations.
func BenchmarkChains(b *testing.B) {
	n := benchCluster(b, 1).Nodes[0]
	var all sync.WaitGroup
	const clients, length = 32, 8
	b.ResetTimer()
	for i := range clients {
		p := peertest.Open(b, n)
		all.Go(func() {
			ops := make([]fabric.Op, length)
			for k := range ops {
				ops[k] = fabric.FAA(fabric.At(0, uint64(64*(1+i))), 1)
			}
			for range (b.N + clients - 1) / clients {
				if err := p.Do(ops); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	b.ReportMetric(float64(length*b.N)/b.Elapsed().Seconds(), "ops/s")
}

func BenchmarkPingPong(b *testing.B) {
	c := newTestCluster(b)
	b.Cleanup(c.Close)
	c.Serve(0, 1<<20)
	p := peertest.Open(b, c.Join())
	e := start(b, childSpec{Role: "echo", Coordinator: coordtest.Serve(b, c.Members.Now())})
	m := &fabric.Message{Kind: fabric.MsgUser}
	measure(b, func() {
		if err := p.Send(e.id, m); err != nil {
			b.Fatal(err)
		}
		if _, err := p.Recv(p.Now() + patienceTime); err != nil {
			b.Fatal(err)
		}
	})
}

// BenchmarkLock is acquire and release of a free lock.
func BenchmarkLock(b *testing.B) {
	p := peertest.Open(b, benchCluster(b, 1).Nodes[0])
	k := cas.New(p, cas.Config{})
	var h lock.Hold
	r := lock.Request{Lock: fabric.At(0, 4096), Mode: lock.Exclusive, Deadline: fabric.Forever}
	measure(b, func() {
		if err := k.Acquire(&h, &r); err != nil {
			b.Fatal(err)
		}
		if err := k.Release(&h, nil); err != nil {
			b.Fatal(err)
		}
	})
}
