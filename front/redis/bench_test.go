package redis

import (
	"fmt"
	"strings"
	"testing"

	"github.com/declock/declock"
)

// BenchmarkServe is what a request costs the server without the network: values of 100 bytes, of 10,000 keys.
func BenchmarkServe(b *testing.B) {
	s, err := New(Options{})
	if err != nil {
		b.Fatal(err)
	}
	if err := s.Attach(openCluster(b), declock.StoreConfig{Objects: 20_000}); err != nil {
		b.Fatal(err)
	}
	defer s.Detach()
	value := strings.Repeat("x", 100)
	for _, kind := range []string{"SET", "GET"} {
		var requests [][]byte
		for i := range 10_000 {
			words := []string{kind, fmt.Sprintf("key:%012d", i*997%10_000), value}
			requests = append(requests, []byte(request(words[:map[string]int{"SET": 3, "GET": 2}[kind]]...)))
		}
		e := &endless{}
		c := newConn(s, e)
		c.in = make([]byte, idleBuffer)
		b.Run(kind, func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				e.requests, e.left = requests[i%len(requests)], 1
				for range 2 { // reads, and serves
					if err := c.next(); err != nil {
						b.Fatal(err)
					}
				}
				_ = c.flush()
			}
		})
	}
}
