package shm

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/declock/declock/fabric"
)

const testSize = 1 << 20

// testDir returns a directory for clusters on a memory file system.
func testDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp(DefaultDir, "test-declock-")
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() {
		left, _ := os.ReadDir(dir)
		for _, e := range left {
			files, _ := os.ReadDir(dir + "/" + e.Name())
			t.Errorf("left behind: %s %v", e.Name(), files)
		}
		os.RemoveAll(dir)
	})
	return dir
}

func serve(t testing.TB, o Options) *MemoryServer {
	t.Helper()
	if o.Size == 0 && !o.Keep {
		o.Size = testSize
	}
	s, err := Serve(o)
	if err != nil {
		t.Fatalf("Serve: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close of %v: %v", s.ID(), err)
		}
	})
	return s
}

func join(t testing.TB, o Options) *node {
	t.Helper()
	n, err := Join(context.Background(), o)
	if err != nil {
		t.Fatalf("Join: %v", err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Errorf("Close of %v: %v", n.ID(), err)
		}
	})
	return n.(*node)
}

func open(t testing.TB, n fabric.Node) fabric.Port {
	t.Helper()
	p, err := n.Open()
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return p
}

func TestOperations(t *testing.T) {
	o := Options{Name: "ops", Dir: testDir(t)}
	serve(t, o)
	n := join(t, o)
	p := open(t, n)
	ops := []fabric.Op{fabric.FAA(fabric.At(0, 8), 5), fabric.FAA(fabric.At(0, 8), 7), fabric.CAS(fabric.At(0, 8), 12, 100), fabric.Load(fabric.At(0, 8))}
	if err := p.Do(ops); err != nil {
		t.Fatal(err)
	}
	if ops[0].Old != 0 || ops[1].Old != 5 || ops[2].Old != 12 || ops[3].Old != 100 {
		t.Fatalf("got %d %d %d %d", ops[0].Old, ops[1].Old, ops[2].Old, ops[3].Old)
	}
	buf := p.Alloc(100)
	for i := range buf {
		buf[i] = byte(i)
	}
	out := p.Alloc(100)
	if err := p.Do([]fabric.Op{fabric.Write(fabric.At(0, 1001), buf), fabric.Read(fabric.At(0, 1001), out)}); err != nil {
		t.Fatal(err)
	}
	if string(out) != string(buf) {
		t.Fatalf("read %v", out)
	}
	err := p.Do([]fabric.Op{fabric.Store(fabric.At(0, 0), 1), fabric.Load(fabric.At(0, testSize))})
	var ce *fabric.ChainError
	if !errors.Is(err, fabric.ErrOutOfBounds) || !errors.As(err, &ce) || ce.Index != 1 {
		t.Fatalf("got %v", err)
	}
}

func TestMessagesBetweenNodes(t *testing.T) {
	o := Options{Name: "msg", Dir: testDir(t)}
	serve(t, o)
	a, b := join(t, o), join(t, o)
	pa, pb := open(t, a), open(t, b)
	const count = 10000
	go func() {
		for i := range count {
			if err := pa.Send(pb.ID(), &fabric.Message{Kind: fabric.MsgUser, Body: [7]uint64{uint64(i)}}); err != nil {
				t.Errorf("Send: %v", err)
			}
		}
	}()
	for i := range count {
		m, err := pb.Recv(pb.Now() + 5*fabric.Second)
		if err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
		if m.Body[0] != uint64(i) || m.From != pa.ID() || m.Kind != fabric.MsgUser {
			t.Fatalf("message %d: %+v", i, m)
		}
	}
}
