package btree

import (
	"bytes"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/cas"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/memory/handle"
)

// A compute node that has not heard of a new backup yet takes memory that another, which knows of it, has used and given back: it makes that zero at the primary and the backups that it knows. The new
// backup has zero locks all the same when it has been copied to.
func TestCopyOfMemoryMadeZeroElsewhere(t *testing.T) {
	x := newCopyWorldOf(t, 1, fabric.Microsecond)
	p, unaware := x.port(0), x.port(1)
	r := x.tree.h.Parts[0].Region
	until := x.world.c.Now() + 200*fabric.Millisecond
	x.world.c.Detach(sim.Endpoint{CN: x.cns[1].ID()}, until)
	to := x.add()
	wantErr(t, "pause", p.Pause(p.Now()+100*fabric.Microsecond), nil)
	for _, q := range []fabric.Port{p, unaware} {
		b, err := r.Backups(q)
		if wantErr(t, "backups", err, nil); (b.New() == to.Number) != (q == p) {
			t.Fatalf("the new backup of %v is %d", q.ID(), b.New())
		}
	}
	cfg := x.config()
	cfg.Name, cfg.NodeSize = "old", 512 // there are nodes where those of the next tree have locks
	c := x.client(0, x.open(0, cfg))
	for i := range 300 {
		wantErr(t, "put", c.Put(keyOf(i), bytes.Repeat([]byte{0xff}, 900)), nil)
	}
	wantErr(t, "drop", Trees.Drop(p, "old", x.mns, x.cns[0].View), nil)
	wantErr(t, "leave", c.Leave(), nil)
	cfg.Name, cfg.NodeSize = "new", x.config().NodeSize
	tree := x.open(1, cfg)
	d := x.client(1, tree)
	for i := range 300 {
		wantErr(t, "put", d.Put(keyOf(i), valueOf(i, 1)), nil)
	}
	e, _, err := r.Create(unaware, memory.Spec{Name: "locks", Kind: memory.KindLocks, Size: 16 << 10})
	wantErr(t, "locks", err, nil)
	if now := x.world.c.Now(); now >= until {
		t.Fatalf("it is %d, it hears of the backup at %d", now, until)
	}
	wantErr(t, "pause", p.Pause(until+fabric.Millisecond), nil)
	g := x.group()
	last := g.Replicas[len(g.Replicas)-1]
	nodes := func() (dirty int) { // locks that are not zero at the new backup
		t.Helper()
		pages, err := r.Pages(p)
		wantErr(t, "pages", err, nil)
		look := func(a fabric.Addr, size uint64) {
			b := make([]byte, size)
			if x.world.c.PeekBackup(a, last.ID, b); !bytes.Equal(b, make([]byte, size)) {
				dirty++
			}
		}
		part := tree.h.Parts[0]
		look(part.Base.Add(firstLeafOffset), tree.geo.lockSize)
		look(part.Base.Add(linesOffset), firstLeafOffset-linesOffset)
		pages.Runs(&part.Entry, func(x memory.Run) {
			for at := uint64(0); x.Tag == uint8(classNode)+1 && at+tree.stride <= x.Size; at += tree.stride {
				look(r.At(x.Off+at), tree.geo.lockSize)
			}
		})
		return dirty
	}
	locks := func() bool {
		b := make([]byte, e.Length)
		x.world.c.PeekBackup(e.Addr, last.ID, b)
		return bytes.Equal(b, make([]byte, e.Length))
	}
	if nodes() == 0 || locks() {
		t.Fatalf("%d locks of nodes are not zero at the new backup, others are: %v", nodes(), locks())
	}
	use := func(e *memory.Entry, f func(handle.Copied) error) error {
		if e.Name == "new" {
			return f(tree)
		}
		return f(x.tree)
	}
	wantErr(t, "copy", handle.CopyNumber(cas.New(p, cas.Config{Plain: true}), to, handle.CopyOptions{Use: use}), nil)
	if n := nodes(); n > 0 || !locks() {
		t.Errorf("%d locks of nodes are not zero at the new backup, others are: %v", n, locks())
	}
	x.synced(to)
}
