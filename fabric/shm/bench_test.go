package shm

import (
	"testing"

	"github.com/declock/declock/fabric"
)

func benchPort(b *testing.B) fabric.Port {
	o := Options{Name: "bench", Dir: testDir(b)}
	serve(b, o)
	return open(b, join(b, o))
}

func BenchmarkDoFAA(b *testing.B) {
	p := benchPort(b)
	ops := []fabric.Op{fabric.FAA(fabric.At(0, 64), 1)}
	b.ReportAllocs()
	for b.Loop() {
		if err := p.Do(ops); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkChainFAARead64(b *testing.B) {
	p := benchPort(b)
	ops := []fabric.Op{fabric.FAA(fabric.At(0, 64), 1), fabric.Read(fabric.At(0, 128), p.Alloc(64))}
	b.ReportAllocs()
	for b.Loop() {
		if err := p.Do(ops); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRead414(b *testing.B) {
	p := benchPort(b)
	ops := []fabric.Op{fabric.Read(fabric.At(0, 128), p.Alloc(414))}
	b.ReportAllocs()
	for b.Loop() {
		if err := p.Do(ops); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWrite414(b *testing.B) {
	p := benchPort(b)
	ops := []fabric.Op{fabric.Write(fabric.At(0, 128), p.Alloc(414))}
	b.ReportAllocs()
	for b.Loop() {
		if err := p.Do(ops); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNow(b *testing.B) {
	p := benchPort(b)
	for b.Loop() {
		p.Now()
	}
}

// pingPong is one hand-over there and one back per round.
func pingPong(b *testing.B, p, q fabric.Port) {
	done := make(chan error, 1)
	go func() { done <- echo(q) }()
	m := fabric.Message{Kind: fabric.MsgUser}
	b.ReportAllocs()
	for b.Loop() {
		if err := p.Send(q.ID(), &m); err != nil {
			b.Fatal(err)
		}
		if _, err := p.Recv(p.Now() + fabric.Second); err != nil {
			b.Fatal(err)
		}
	}
	m.Kind++
	if err := p.Send(q.ID(), &m); err != nil {
		b.Fatal(err)
	}
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}

// echo answers messages until one of another kind comes.
func echo(q fabric.Port) error {
	var m fabric.Message // once: an interface's method makes it escape
	for {
		var err error
		if m, err = q.Recv(q.Now() + 10*fabric.Second); err != nil {
			return err
		}
		if m.Kind != fabric.MsgUser {
			return nil
		}
		if err := q.Send(m.From, &m); err != nil {
			return err
		}
	}
}

func BenchmarkLocalPingPong(b *testing.B) {
	o := Options{Name: "bench", Dir: testDir(b)}
	serve(b, o)
	n := join(b, o)
	pingPong(b, open(b, n), open(b, n))
}

func BenchmarkTwoNodesPingPong(b *testing.B) {
	o := Options{Name: "bench", Dir: testDir(b)}
	serve(b, o)
	pingPong(b, open(b, join(b, o)), open(b, join(b, o)))
}
