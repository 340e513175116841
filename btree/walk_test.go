package btree

import (
	"errors"
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/cas"
	"github.com/declock/declock/lock"
)

type observer func(e *sim.Event)

func (f observer) Observe(e *sim.Event) { f(e) }

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

// script changes a tree of tiny nodes in all ways: appends, splits, a new root, large values, dead nodes that are unlinked.
func script(c *Client) {
	for i := range 8 {
		_ = c.Put(fmt.Appendf(nil, "%02d", i), valueOf(i, 1))
	}
	_ = c.Put([]byte("03"), make([]byte, 100))
	for i := range 5 {
		_ = c.Delete(fmt.Appendf(nil, "%02d", i+2))
	}
	_ = c.Put([]byte("03"), make([]byte, 200))
	_ = c.Put([]byte("03"), []byte("small"))
}

// A compute node crashes at each operation of a script. Another walks, and the backups are what the primary is; or a backup is promoted before that, and the tree is one of which the other
// does the rest.
func TestWalkAfterACrashEverywhere(t *testing.T) {
	settled, step := uint64(0), 1
	if testing.Short() {
		step = 7
	}
	for _, mns := range []int{1, 2} {
		for _, promoted := range []bool{false, true} {
			for k, hit := 0, true; hit; k += step {
				w := newReplicated(t, sim.Config{NIC: sim.Ideal(), Seed: uint64(k)}, mns, 1<<20, 2, 2)
				second, first := w.client(0, w.open(0, w.tiny())), w.client(1, w.open(1, w.tiny()))
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
				w.c.Go(w.cns[1], "script", func(fabric.Port) { script(first) })
				wantErr(t, "run", w.c.RunUntil(w.c.Now()+fabric.Second), nil)
				w.c.SetObserver(nil)
				if hit = left < 0; !hit {
					break
				}
				what := fmt.Sprintf("%d memory nodes, promoted %t, effect %d", mns, promoted, k)
				if promoted {
					for _, mn := range w.mns {
						wantErr(t, "promote", w.c.Promote(mn), nil)
					}
					second = w.client(0, w.open(0, w.tiny()))
				} else {
					clearAllLocks(w, second)
					if !walkAll(t, second, w.cns[0].View) {
						t.Fatalf("%s: no walk", what)
					}
					r, err := second.Check(CheckOptions{Backups: true})
					if wantErr(t, what, err, nil); !r.Sound() {
						t.Fatalf("%s: %v", what, r)
					}
					settled += second.Stats().Settled
				}
				have := all(t, second, Range{})
				r, err := second.Check(CheckOptions{Repair: true})
				if wantErr(t, what, err, nil); !r.Clean() {
					t.Fatalf("%s: %v", what, r)
				}
				if now := all(t, second, Range{}); fmt.Sprint(now) != fmt.Sprint(have) {
					t.Fatalf("%s: %q, there was %q", what, now, have)
				}
				for i := range 8 {
					wantErr(t, what, second.Put(fmt.Appendf(nil, "%02d", i), valueOf(i, 2)), nil)
				}
			}
		}
	}
	if settled < 10 {
		t.Errorf("%d nodes were settled", settled)
	}
}

// clearAllLocks frees the locks of all slots.
func clearAllLocks(w *world, c *Client) {
	clearLocks(w, c)
	var m slotMap
	wantErr(w.t, "slots", m.load(&checker{c: c, r: &Report{}}), nil)
	for i := range c.t.h.Parts {
		wantErr(w.t, "runs", m.slots.EachRun(i, func(cl uint8, from, to uint64) error {
			for ; class(cl) == classNode && from < to; from += c.t.slotSize(classNode) / slotUnit {
				w.c.Poke(c.t.lockAddr(makePtr(i, from, 0)), make([]byte, 8))
			}
			return nil
		}), nil)
	}
}

// A change that fails at the primary leaves the backups different: its compute node settles the node by itself, though none has gone.
func TestFailedChangeIsSettled(t *testing.T) {
	w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 1<<20, 1, 2)
	l := &robbed{Locker: cas.New(w.port(0), cas.Config{Plain: true})}
	c, err := w.open(0, w.config()).Client(l)
	wantErr(t, "client", err, nil)
	walkAll(t, c, w.cns[0].View)
	l.err = fabric.ErrUnknownOutcome
	wantErr(t, "put", c.Put([]byte("k"), []byte("v")), fabric.ErrUnknownOutcome)
	if r, err := c.Check(CheckOptions{Backups: true}); err != nil || r.Sound() {
		t.Fatalf("the backup is what the primary is: %v", err)
	}
	if walkAll(t, c, w.cns[0].View) {
		t.Error("a walk, though none has gone")
	}
	r, err := c.Check(CheckOptions{Backups: true})
	if wantErr(t, "check", err, nil); !r.Sound() || c.Stats().Settled != 1 {
		t.Errorf("%d settled: %v", c.Stats().Settled, r)
	}
}

// A robbed is a Locker of which a release that is to change something fails once, and changes nothing.
type robbed struct {
	*cas.Locker
	err  error
	then func() // happens before it fails
}

func (l *robbed) Release(h *lock.Hold, before []fabric.Op) error {
	err, then := l.err, l.then
	if len(before) == 0 || err == nil {
		return l.Locker.Release(h, before)
	}
	l.err, l.then = nil, nil
	if then != nil {
		then()
	}
	return errors.Join(err, l.Locker.Release(h, nil))
}

// An interrupted is a Port that is interrupted at the so many-th chain to a backup from now on, once; 0: at none.
type interrupted struct {
	*sim.Port
	left int
}

func (p *interrupted) PostBackup(g *fabric.Replicas, i int, ops []fabric.Op) (fabric.Pending, error) {
	if p.left--; p.left == 0 {
		return 0, fabric.ErrInterrupted
	}
	return p.Port.PostBackup(g, i, ops)
}

// A put that needs a run of pages is interrupted at each of its chains to the backup, which then may not know of the run, or of its class: its compute node settles that by itself, and
// answers no round before.
func TestInterruptedRunIsSettled(t *testing.T) {
	behind := 0
	for k := 1; ; k++ {
		w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 1<<20, 1, 2)
		p := &interrupted{Port: w.port(0).(*sim.Port)}
		c := clientOn(t, w.open(0, w.config()), p)
		walkAll(t, c, w.cns[0].View)
		p.left = k
		if err := c.Put(keyOf(1), large(1)); err == nil {
			break
		}
		r, err := c.Check(CheckOptions{Backups: true})
		if wantErr(t, "check", err, nil); !r.Sound() {
			if behind++; len(c.t.unsettled.list) == 0 && c.settled() {
				t.Errorf("chain %d: it takes part in rounds: %v", k, r)
			}
		}
		walkAll(t, c, w.cns[0].View)
		if r, err = c.Check(CheckOptions{Backups: true}); err != nil || !r.Sound() {
			t.Errorf("chain %d: %v, %v", k, err, r)
		}
	}
	if behind < 2 {
		t.Errorf("a backup was behind after %d of the chains", behind)
	}
}
