package objstore

import (
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/cas"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory/handle"
)

// walkAll has a client walk until there is nothing to do, or others do not answer a round, and reports whether it has walked.
func walkAll(t *testing.T, c *Client, view func() fabric.View) (walked bool) {
	t.Helper()
	before := c.Stats().Walks
	for range 1000 {
		busy, err := c.ReclaimStep(view)
		if wantErr(t, "step", err, nil); !busy {
			return c.Stats().Walks > before
		}
		_ = c.port.Pause(c.port.Now() + 20*fabric.Millisecond)
	}
	t.Fatal("the walk does not end")
	return false
}

// script changes one bucket, with overflow blocks, in all ways.
func (w *world) script(c *Client) {
	c.SetNow(10)
	for i := range 3 {
		_ = c.Set(keyOf(i), make([]byte, 20), Options{TTL: 50})
	}
	_ = c.Touch(keyOf(2), 1000)
	_ = c.Delete(keyOf(1))
	for i := range 14 {
		_ = c.Set(keyOf(i), make([]byte, 20), Options{TTL: 50})
	}
	_ = c.Set(keyOf(1), make([]byte, 300), Options{TTL: 50})
	_ = c.Touch(keyOf(2), 1000)
	_ = c.Delete(keyOf(3))
	_ = c.Append(keyOf(12), b("more"))
	_ = c.Delete(keyOf(13))
	_ = c.Set(b("new"), b("v"), Options{})
}

// A compute node crashes at each operation of a script. Another walks, and the backups are what the primary is: what was written to them only does not show later.
func TestWalkAfterACrashEverywhere(t *testing.T) {
	repaired, step := uint64(0), 1
	if testing.Short() {
		step = 5
	}
	for _, copies := range []int{2, 3} {
		for k, hit := 0, true; hit; k += step {
			w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 1<<20, 2, copies)
			cfg := w.config()
			cfg.Objects = 1
			s := w.open(0, cfg)
			second, first := w.client(0, s), w.client(1, w.open(1, cfg))
			if !walkAll(t, second, w.cns[0].View) || walkAll(t, first, w.cns[1].View) {
				t.Fatal("not the first compute node alone has walked")
			}
			left := k
			w.c.SetObserver(observer(func(e *sim.Event) {
				if e.Step == sim.StepEffect {
					if left--; left == -1 {
						w.c.At(w.c.Now(), func() { w.c.Kill(w.cns[1]) })
					}
				}
			}))
			w.c.Go(w.cns[1], "script", func(fabric.Port) { w.script(first) })
			wantErr(t, "run", w.c.RunUntil(w.c.Now()+fabric.Second), nil)
			w.c.SetObserver(nil)
			if hit = left < 0; !hit {
				break
			}
			clearLocks(w, s)
			if !walkAll(t, second, w.cns[0].View) {
				t.Fatalf("%d copies, effect %d: no walk", copies, k)
			}
			second.SetNow(10)
			r, err := second.Check(CheckOptions{Backups: true})
			if wantErr(t, "check", err, nil); !r.Sound() {
				t.Fatalf("%d copies, effect %d: %v", copies, k, r)
			}
			if walkAll(t, second, w.cns[0].View) {
				t.Fatal("a second walk")
			}
			repaired += second.Stats().Repaired
			w.c.Close()
		}
	}
	if repaired < 10 {
		t.Errorf("%d buckets repaired: that is too few", repaired)
	}
}

// A backup that does not answer while a compute node walks may come back as it is: it is compared then.
func TestWalkMissesABackup(t *testing.T) {
	w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 1<<20, 2, 2)
	cfg := w.config()
	cfg.Objects = 1
	s := w.open(0, cfg)
	second, first := w.client(0, s), w.client(1, w.open(1, cfg))
	k := work{look: look{head: true}}
	wantErr(t, "begin", first.beginChange(&k, b("key")), nil)
	ch, err := first.alloc(k.n, classFor(200))
	wantErr(t, "alloc", err, nil)
	wantErr(t, "lookup", first.lookup(&k, lock.Exclusive), nil)
	_, err = first.mirrorChange(&k, nil, slotChange{k.vacant, uint64(makeSlot(k.fp, ch, 200, 1))})
	wantErr(t, "mirror", err, nil)
	w.c.Kill(w.cns[1])
	w.c.KillMN(1)
	wantErr(t, "run", w.c.RunUntil(w.c.Now()+fabric.Second), nil)
	clearLocks(w, s)
	for range 3 {
		if walkAll(t, second, w.cns[0].View) {
			t.Fatal("a walk without the backup is done")
		}
	}
	w.c.RestartServer(1)
	wantErr(t, "run", w.c.RunUntil(w.c.Now()+2*handle.WalkLookNs), nil)
	if !walkAll(t, second, w.cns[0].View) {
		t.Fatal("no walk")
	}
	r, err := second.Check(CheckOptions{Backups: true})
	if wantErr(t, "check", err, nil); !r.Sound() || second.Stats().Repaired != 1 {
		t.Errorf("%d repaired: %v", second.Stats().Repaired, r)
	}
}

// A change that fails at the primary leaves the backups different: its compute node repairs the bucket by itself, though none has gone.
func TestFailedChangeIsRepaired(t *testing.T) {
	w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 1<<20, 1, 2)
	l := &robbed{Locker: cas.New(w.port(0), cas.Config{})}
	c, err := w.open(0, w.config()).Client(l)
	wantErr(t, "client", err, nil)
	sound := func() bool {
		r, err := c.Check(CheckOptions{Backups: true})
		wantErr(t, "check", err, nil)
		return r.Sound()
	}
	walkAll(t, c, w.cns[0].View)
	l.rob = func(change *fabric.Op) {
		change.Cmp, l.rob = 1, nil // so it fails
	}
	if err := c.Set(b("k"), b("1"), Options{}); err == nil || sound() {
		t.Fatalf("set: %v; the backup is what the primary is", err)
	}
	if walkAll(t, c, w.cns[0].View) || !sound() {
		t.Error("it is not repaired without a walk")
	}
}

type observer func(e *sim.Event)

// Observe implements sim.Observer.
func (f observer) Observe(e *sim.Event) { f(e) }

// A walk compares overflow blocks, too: what a crashed compute node has changed there at the backups only does not show later.
func TestWalkComparesOverflowBlocks(t *testing.T) {
	w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 1<<20, 2, 3)
	cfg := w.config()
	cfg.Objects = 1
	s := w.open(0, cfg)
	second, first := w.client(0, s), w.client(1, w.open(1, cfg))
	k := work{}
	for i := 0; k.depth == 0; i++ {
		wantErr(t, "set", first.Set(keyOf(i), b("v"), Options{}), nil)
		k = work{look: look{head: true}}
		wantErr(t, "begin", first.beginChange(&k, keyOf(i)), nil)
		wantErr(t, "lookup", first.lookup(&k, lock.Exclusive), nil)
		if k.depth == 0 {
			wantErr(t, "unlock", first.unlock(nil), nil)
			first.endChange()
		}
	}
	_, err := first.mirrorChange(&k, nil, slotChange{k.slot, 0})
	wantErr(t, "mirror", err, nil)
	w.c.Kill(w.cns[1])
	wantErr(t, "run", w.c.RunUntil(w.c.Now()+fabric.Second), nil)
	clearLocks(w, s)
	if !walkAll(t, second, w.cns[0].View) {
		t.Fatal("no walk")
	}
	r, err := second.Check(CheckOptions{Backups: true})
	if wantErr(t, "check", err, nil); !r.Sound() || second.Stats().Repaired != 1 {
		t.Errorf("%d repaired: %v", second.Stats().Repaired, r)
	}
}
