package btree

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/cas"
)

// A change of a tree is interrupted at each of its chains to backups, so that one of them has what the other and the primary have not: a new root, say. Its compute node settles that by itself,
// though none has gone.
func TestInterruptedChangeIsSettled(t *testing.T) {
	roots := 0
	for k := 1; ; k++ {
		w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 1<<20, 1, 3)
		p := &interrupted{Port: w.port(0).(*sim.Port)}
		c := clientOn(t, w.open(0, w.tiny()), p)
		for i := range 3 {
			wantErr(t, "put", c.Put(fmt.Appendf(nil, "%02d", i), make([]byte, 16)), nil)
		}
		walkAll(t, c, w.cns[0].View)
		root := func(at fabric.MemID) []byte {
			word, a := make([]byte, 8), c.t.h.Parts[0].Base.Add(rootOffset)
			if w.c.Peek(a, word); at > 0 {
				w.c.PeekBackup(a, at, word)
			}
			return word
		}
		p.left = k
		_ = c.Put([]byte("03"), make([]byte, 16)) // which splits the only leaf
		hit := p.left <= 0
		p.left = 0
		if !bytes.Equal(root(0), root(1)) || !bytes.Equal(root(0), root(2)) {
			roots++
		}
		if walkAll(t, c, w.cns[0].View) {
			t.Errorf("chain %d: a walk, though none has gone", k)
		}
		r, err := c.Check(CheckOptions{Backups: true})
		if wantErr(t, "check", err, nil); !r.Sound() {
			t.Errorf("chain %d: not settled: %v", k, r)
		}
		if w.c.Close(); !hit {
			break
		}
	}
	if roots == 0 {
		t.Error("the backups never have different roots")
	}
}

// A put of a large value fails at the primary, and the backups have it: the value is not free, for they lead to it.
func TestFailedPutFreesNothing(t *testing.T) {
	w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 1<<20, 1, 2)
	l := &robbed{Locker: cas.New(w.port(0), cas.Config{Plain: true})}
	c, err := w.open(0, w.config()).Client(l)
	wantErr(t, "client", err, nil)
	wantErr(t, "put", c.Put(keyOf(1), large(1)), nil)
	l.err = fabric.ErrUnknownOutcome
	wantErr(t, "put", c.Put(keyOf(2), large(2)), fabric.ErrUnknownOutcome)
	named := decodeOutOfLine(c.own[recordHeader+len(keyOf(2)):][:outOfLineSize])
	if named.size != len(large(2)) {
		t.Fatalf("%+v is not what was put", named)
	}
	for range 20 {
		p, err := c.alloc(0, classFor(named.size))
		if wantErr(t, "alloc", err, nil); p.off64() == named.at.off64() {
			t.Fatalf("slot %v is free, and the backup leads to it", p)
		}
	}
}

// What settles the root settles the word that leads to it, too: a new root may have come to a backup only.
func TestRootIsSettled(t *testing.T) {
	w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 1<<20, 1, 2)
	c := w.client(0, w.open(0, w.config()))
	wantErr(t, "put", c.Put(keyOf(1), large(1)), nil)
	root, err := c.loadRoot()
	wantErr(t, "root", err, nil)
	b, err := c.backups(0)
	wantErr(t, "backups", err, nil)
	wantErr(t, "write", b.Write([]fabric.Op{fabric.Store(c.t.h.Parts[0].Base.Add(rootOffset), uint64(root.next()))}, 0), nil)
	c.unsettle(root)
	wantErr(t, "settle", c.settleAll(), nil)
	r, err := c.Check(CheckOptions{Backups: true})
	if wantErr(t, "check", err, nil); !r.Sound() {
		t.Error(r)
	}
}

// A refusing is a Port that refuses to change the word that leads to the root, once.
type refusing struct {
	*sim.Port
	root fabric.Addr
}

func (p *refusing) Do(ops []fabric.Op) error {
	if op := &ops[len(ops)-1]; op.Kind == fabric.OpCAS && op.Addr == p.root {
		p.root = 0
		return fabric.ErrNodeDown
	}
	return p.Port.Do(ops)
}

// A new root is at the backup, and the primary refuses it: the root is not free, for the backup leads to it, and its compute node settles that by itself.
func TestRootThatThePrimaryRefuses(t *testing.T) {
	w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 1<<20, 1, 2)
	p := &refusing{Port: w.port(0).(*sim.Port)}
	c := clientOn(t, w.open(0, w.tiny()), p)
	a := c.t.h.Parts[0].Base.Add(rootOffset)
	root := func(at fabric.MemID) ptr {
		word := make([]byte, 8)
		if w.c.Peek(a, word); at > 0 {
			w.c.PeekBackup(a, at, word)
		}
		return ptr(get64(word, 0))
	}
	walkAll(t, c, w.cns[0].View)
	p.root = a
	for i := 0; i < 9 && p.root != 0; i++ {
		wantErr(t, "put", c.Put(fmt.Appendf(nil, "%02d", i), make([]byte, 16)), nil)
	}
	named := root(1)
	if p.root != 0 || named == root(0) {
		t.Fatalf("the backup leads to %v, the primary to %v", named, root(0))
	}
	for range 20 {
		slot, err := c.alloc(0, classNode)
		if wantErr(t, "alloc", err, nil); slot.off64() == named.off64() {
			t.Fatalf("slot %v is free, and the backup leads to it", slot)
		}
	}
	if walkAll(t, c, w.cns[0].View) {
		t.Error("a walk, though none has gone")
	}
	r, err := c.Check(CheckOptions{Backups: true})
	if wantErr(t, "check", err, nil); !r.Sound() {
		t.Errorf("not settled: %v", r)
	}
}
