package btree

import (
	"bytes"
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
)

// With fewer copies in sync than a number is to have, no tree is changed there: a change waits until there are enough, or fails. What was refused may be done later, and leaks nothing.
func TestMinInSync(t *testing.T) {
	w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 4<<20, 1, 2)
	mn, spare := w.mns[0], w.c.AddMN(4096)
	w.c.Require(mn, 2)
	c := w.client(0, w.open(0, w.config()))
	for i := range 100 {
		wantErr(t, "put", c.Put(keyOf(i), bytes.Repeat([]byte("v"), i)), nil)
	}
	cfg := w.config()
	cfg.Name = "empty"
	empty := w.client(0, w.open(0, cfg))
	w.c.KillMN(w.c.Group(mn).Replicas[1].ID)
	wantErr(t, "a put that the backup has missed", c.Put(keyOf(1), []byte("x")), fabric.ErrTooFewCopies)
	c.unsettle(ptr(c.t.root.Load()))
	wantErr(t, "settle", c.settleAll(), nil) // that is done without the minimum, and nothing else is
	used := func() int {
		r, err := c.Check(CheckOptions{})
		if wantErr(t, "check", err, nil); !r.Clean() || r.Keys != 100 {
			t.Error(r)
		}
		return int(c.stats.Leaked)
	}
	before := used()
	load := func() error { return empty.BulkLoad(pairsTo(loadedPairs), BulkOptions{}) }
	for what, change := range map[string]func() error{
		"put":    func() error { return c.Put(keyOf(1), []byte("y")) },
		"large":  func() error { return c.Put(keyOf(2), make([]byte, 5000)) },
		"new":    func() error { return c.Put(keyOf(200), make([]byte, 100)) },
		"load":   load,
		"delete": func() error { return c.Delete(keyOf(3)) },
	} {
		if err := change(); !errors.Is(err, fabric.ErrTooFewCopies) || errors.Is(err, fabric.ErrUnknownOutcome) {
			t.Errorf("%s with one copy: %v", what, err)
		}
	}
	for i := range 100 {
		if v, err := c.Get(keyOf(i)); err != nil || len(v) != i {
			t.Errorf("get of key %d: %d bytes, %v", i, len(v), err)
		}
	}
	if now := used(); now > before {
		t.Errorf("changes that were refused have leaked %d slots", now-before)
	}
	w.c.At(c.port.Now()+fabric.Second, func() { w.c.AddBackup(mn, spare) })
	wantErr(t, "put", c.Put(keyOf(1), []byte("z")), nil)
	wantErr(t, "settle", c.settleAll(), nil)
	wantErr(t, "load", load(), nil)
}
