package shm

import (
	"encoding/binary"
	"errors"
	"os"
	"testing"

	"github.com/declock/declock/fabric"
)

// Gather reads what chains read, however many READs there are.
func TestGather(t *testing.T) {
	o := Options{Name: "x", Dir: testDir(t)}
	serve(t, o)
	p := open(t, join(t, o))
	const n = 10 * fabric.MaxChain
	for i := range uint64(n) {
		if err := p.Do([]fabric.Op{fabric.Store(fabric.At(0, 64*i), i+1), fabric.Store(fabric.At(0, 64*i+8), i+2)}); err != nil {
			t.Fatal(err)
		}
	}
	before := *p.Stats()
	var ops []fabric.Op
	buf := p.Alloc(16 * n)
	for i := range uint64(n) {
		ops = append(ops, fabric.Read(fabric.At(0, 64*i), buf[16*i:][:16]), fabric.Load(fabric.At(0, 64*i+8)))
	}
	if err := p.(fabric.Gatherer).Gather(ops); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(n) {
		if a, b := binary.LittleEndian.Uint64(buf[16*i:]), ops[2*i+1].Old; a != i+1 || b != i+2 {
			t.Errorf("READs %d returned %d and %d", i, a, b)
		}
	}
	if s := p.Stats(); s.Ops[fabric.OpRead]-before.Ops[fabric.OpRead] != 2*n || s.ReadBytes-before.ReadBytes != 24*n {
		t.Errorf("counted %+v, before %+v", s, before)
	}
	if err := p.(fabric.Gatherer).Gather(nil); err != nil {
		t.Errorf("nothing: %v", err)
	}
}

// What Gather refuses it does not do in part.
func TestGatherRefuses(t *testing.T) {
	o := Options{Name: "x", Dir: testDir(t)}
	serve(t, o)
	p := open(t, join(t, o))
	if err := p.Do([]fabric.Op{fabric.Store(fabric.At(0, 64), 7)}); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []struct {
		op  fabric.Op
		err error
	}{
		{fabric.Store(fabric.At(0, 128), 1), fabric.ErrBadChain},
		{fabric.FAA(fabric.At(0, 128), 1), fabric.ErrBadChain},
		{fabric.Load(fabric.At(0, 65)), fabric.ErrMisaligned},
		{fabric.Load(fabric.At(1, 64)), fabric.ErrBadChain},
		{fabric.Read(fabric.At(0, 64), make([]byte, 8)), fabric.ErrBadBuffer},
		{fabric.Load(fabric.At(0, testSize)), fabric.ErrOutOfBounds},
		{fabric.Read(fabric.At(0, testSize-8), p.Alloc(16)), fabric.ErrOutOfBounds},
	} {
		ops := []fabric.Op{fabric.Load(fabric.At(0, 64)), bad.op}
		err := p.(fabric.Gatherer).Gather(ops)
		var e *fabric.ChainError
		if !errors.Is(err, bad.err) || !errors.As(err, &e) || e.Index != 1 {
			t.Errorf("%v: %v, want %v", bad.op, err, bad.err)
		}
		if ops[0].Old != 0 {
			t.Errorf("%v: the READ before it was executed", bad.op)
		}
	}
}

// Gather fails as a chain does when the memory node has ended, the node was fenced or the port was closed.
func TestGatherWithoutMemory(t *testing.T) {
	for what, end := range map[string]func(o Options, s *MemoryServer, n *node){
		"memory node": func(_ Options, s *MemoryServer, _ *node) { s.Close() },
		"fenced": func(o Options, _ *MemoryServer, n *node) {
			if err := os.Remove(n.c.cnPath(n.id)); err != nil {
				t.Fatal(err)
			}
			join(t, o)
		},
		"closed": func(_ Options, _ *MemoryServer, n *node) { n.Close() },
	} {
		o := Options{Name: "x", Dir: testDir(t)}
		s := serve(t, o)
		n := join(t, o)
		p := open(t, n)
		ops := []fabric.Op{fabric.Load(fabric.At(0, 64))}
		if err := p.(fabric.Gatherer).Gather(ops); err != nil {
			t.Fatalf("%s: %v before", what, err)
		}
		end(o, s, n)
		did, gathered := p.Do(ops), p.(fabric.Gatherer).Gather(ops)
		if did == nil || gathered == nil || did.Error() != gathered.Error() {
			t.Errorf("%s: Do: %v; Gather: %v", what, did, gathered)
		}
	}
}
