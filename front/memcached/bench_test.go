package memcached

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
	const keys = 10_000
	value := strings.Repeat("x", 100)
	set := func(key int) []byte { return fmt.Appendf(nil, "set bench%d 0 0 %d\r\n%s\r\n", key, len(value), value) }
	many := func(first int) []byte {
		text := []byte("get")
		for i := range 100 {
			text = fmt.Appendf(text, " bench%d", (first+i*997)%keys)
		}
		return append(text, "\r\n"...)
	}
	e := &endless{}
	c := newConn(s, e)
	c.in, c.admitted = make([]byte, idleBuffer), true
	serve := func(b testing.TB, request []byte) {
		e.requests, e.left = request, 1
		if err := c.next(); err != nil {
			b.Fatal(err)
		}
		_ = c.flush()
	}
	for key := range keys {
		serve(b, set(key))
	}
	for _, kind := range []struct {
		name    string
		request func(i int) []byte
	}{
		{"get", func(i int) []byte { return fmt.Appendf(nil, "get bench%d\r\n", i*997%keys) }},
		{"get100", many},
		{"set", func(i int) []byte { return set(i * 997 % keys) }},
	} {
		requests := make([][]byte, 1000)
		for i := range requests {
			requests[i] = kind.request(i * 7)
		}
		b.Run(kind.name, func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				serve(b, requests[i%len(requests)])
			}
		})
	}
}
