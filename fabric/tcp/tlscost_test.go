package tcp

import (
	"fmt"
	"sync"
	"syscall"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peer"
	"github.com/declock/declock/fabric/internal/peertest"
	"github.com/declock/declock/internal/secure/securetest"
)

// BenchmarkTLS is chains of a set, a WRITE of 480 bytes and a CAS, of 1 and of 32 clients, without TLS and with it, and the processor time that client and memory node take for each.
func BenchmarkTLS(b *testing.B) {
	a := securetest.New(b)
	for _, clients := range []int{1, 32} {
		for _, secure := range []bool{false, true} {
			b.Run(fmt.Sprintf("%d/%v", clients, secure), func(b *testing.B) {
				c := newTestCluster(b)
				b.Cleanup(c.Close)
				if secure {
					c.change = withTLS(a.Config("all", peer.NameMN, peer.NameCN))
				}
				c.Serve(0, 1<<20)
				n := c.Join()
				var all sync.WaitGroup
				var before, after syscall.Rusage
				_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
				b.ResetTimer()
				for i := range clients {
					p := peertest.Open(b, n)
					all.Go(func() {
						at := fabric.At(0, uint64(4096*(1+i)))
						ops := []fabric.Op{fabric.Write(at.Add(64), p.Alloc(480)), fabric.CAS(at, 0, 0)}
						for range (b.N + clients - 1) / clients {
							if err := p.Do(ops); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				all.Wait()
				_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
				us := func(u *syscall.Rusage) float64 { return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e3 }
				b.ReportMetric((us(&after)-us(&before))/float64(b.N), "cpu-us/op")
			})
		}
	}
}
