package memory_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/memory"
)

// A replicated is a cluster with one memory-node number that has copies.
type replicated struct {
	t     *testing.T
	c     *sim.Cluster
	mn    fabric.MemID
	nodes []*sim.Node
	r     *memory.Region

	names map[string]bool // that have been created, and not been retired
	left  int             // effects until something happens
	then  func()
}

// Observe implements sim.Observer.
func (w *replicated) Observe(e *sim.Event) {
	if e.Step != sim.StepEffect || w.then == nil {
		return
	}
	if w.left--; w.left < 0 {
		w.c.At(w.c.Now(), w.then)
		w.then = nil
	}
}

func newReplicated(t *testing.T, factor int) *replicated {
	return newReplicatedIn(t, factor, sim.Config{Seed: 1})
}

func newReplicatedIn(t *testing.T, factor int, cfg sim.Config) *replicated {
	w := &replicated{t: t, names: map[string]bool{}}
	cfg.Observer = w
	w.c = sim.New(cfg)
	t.Cleanup(func() { w.c.Close() })
	w.mn = w.c.AddReplicatedMN(size, factor)
	for range factor - 1 {
		w.c.AddBackup(w.mn, w.c.AddMN(4096))
	}
	w.nodes = []*sim.Node{w.c.AddCN(), w.c.AddCN()}
	p := open(t, w.nodes[0])
	prm := params
	prm.Factor = uint8(factor)
	want(t, memory.Format(p, w.mn, prm), nil)
	var err error
	if w.r, err = memory.Open(p, w.mn); err != nil || !w.r.Replicated() || w.r.Version() != 5 {
		t.Fatal(w.r, err)
	}
	return w
}

// attach has a Port go on where the number is served now.
func (w *replicated) attach(p fabric.Port, n *sim.Node) {
	for p.Reattach(w.mn, n.MemoryEpoch(w.mn)) != nil {
		if p.Pause(p.Now()+10*fabric.Microsecond) != nil {
			return
		}
	}
}

// script creates, grows, shrinks, retires and frees. What fails is begun again where the number is served then.
func (w *replicated) script(p fabric.Port, n *sim.Node) {
	var creating memory.Creating
	again := func(what string, f func() error) {
		for try := 0; ; try++ {
			err := f()
			if err == nil {
				return
			}
			if try > 5 || errors.Is(err, memory.ErrCorrupt) {
				w.t.Errorf("%s: %v", what, err)
				return
			}
			w.attach(p, n)
		}
	}
	var a memory.Entry
	create := func(name string, size uint64) (e memory.Entry) {
		again("create "+name, func() (err error) {
			e, _, err = w.r.Create(p, memory.Spec{Name: name, Kind: memory.KindMemory, Size: size, Creating: &creating, Retry: p})
			return err
		})
		w.names[name] = true
		return e
	}
	a = create("a", 3000)
	var run memory.Run
	again("grow", func() (err error) { run, err = w.r.Grow(p, &a, memory.Growth{Size: 5000}); return err })
	create("b", 2000)
	again("shrink", func() error {
		if err := w.r.Shrink(p, &a, run); !errors.Is(err, memory.ErrRun) {
			return err
		}
		return nil
	})
	b := create("c", 1000)
	again("write", func() error {
		buf := p.Alloc(64)
		defer p.Free(buf)
		copy(buf, "not zero")
		ops := []fabric.Op{fabric.Write(b.Addr, buf)}
		backups, err := w.r.Backups(p)
		if err == nil {
			err = backups.Write(ops, 0)
		}
		return errors.Join(err, p.Do(ops))
	})
	delete(w.names, "c")
	again("retire", func() error {
		if err := w.r.Retire(p, &b); !errors.Is(err, memory.ErrRemoved) {
			return err
		}
		return nil
	})
	again("free", func() error { return w.r.Free(p, &b) })
	create("d", 2000)
}

// check looks at the region as it is served now: all that was created is there, and its pages are sound.
func (w *replicated) check(p fabric.Port, n *sim.Node, what string) {
	w.attach(p, n)
	list, err := w.r.List(p)
	if err != nil {
		w.t.Errorf("%s: %v", what, err)
	}
	pages, err := w.r.Pages(p)
	if err != nil {
		w.t.Errorf("%s: %v", what, err)
		return
	}
	for i := range list {
		e := &list[i]
		if pages.Owned(e) < e.Length {
			w.t.Errorf("%s: %q has %d bytes of %d", what, e.Name, pages.Owned(e), e.Length)
		}
	}
	for name := range w.names {
		if _, err := w.r.Lookup(p, name, memory.KindMemory); err != nil {
			w.t.Errorf("%s: lookup %q: %v", what, name, err)
		}
	}
}

// compare compares the backups with the primary, but for the word that a backup may have of a change that is done.
func (w *replicated) compare(what string) {
	own := make([]byte, size)
	w.c.Peek(fabric.At(w.mn, 0), own)
	own[memory.ChangeOffset+7] &^= 0x80
	w.c.Backups(w.mn, func(host fabric.MemID, peek func(uint64, []byte)) {
		b := make([]byte, size)
		peek(0, b)
		b[memory.ChangeOffset+7] &^= 0x80
		for i := 0; i < size; i += 8 {
			if !bytes.Equal(own[i:i+8], b[i:i+8]) {
				w.t.Errorf("%s: %v has %x at %#x, the primary %x", what, host, b[i:i+8], i, own[i:i+8])
				return
			}
		}
	})
}

// The backups of a region are what the primary is.
func TestMirror(t *testing.T) {
	for _, factor := range []int{2, 3} {
		w := newReplicated(t, factor)
		w.c.Go(w.nodes[0], "script", func(p fabric.Port) { w.script(p, w.nodes[0]); w.check(p, w.nodes[0], "script") })
		if err := w.c.Run(); err != nil {
			t.Fatal(err)
		}
		w.compare(fmt.Sprintf("%d replicas", factor))
	}
}

// A memory node ends at each operation of a script: the primary, or a backup. All goes on, and all that was made is there; then the primary ends, and it is still there.
func TestMirrorFailsEverywhere(t *testing.T) {
	for _, factor := range []int{2, 3} {
		for victim := range factor {
			for k := 0; ; k += 1 + k/40 {
				w := newReplicated(t, factor)
				what := fmt.Sprintf("%d replicas, %d ends at effect %d", factor, victim, k)
				w.left, w.then = k, func() { w.c.KillMN(fabric.MemID(victim)) }
				hit := false
				w.c.Go(w.nodes[0], "script", func(p fabric.Port) {
					w.script(p, w.nodes[0])
					hit, w.then = w.then == nil, nil
					w.check(p, w.nodes[0], what)
				})
				if err := w.c.Run(); err != nil {
					t.Fatal(what, err)
				}
				w.compare(what)
				if g := w.c.Group(w.mn); len(g.Replicas) > 1 && !t.Failed() {
					w.promoted(what)
				}
				if !hit || t.Failed() {
					break
				}
			}
		}
	}
}

// An again is a Port that goes on by itself where the number is served next, as a client's path does. After some chains a backup is promoted.
type again struct {
	fabric.Port
	w    *replicated
	n    *sim.Node
	left *int
}

// Under implements fabric.Under.
func (p again) Under() fabric.Port { return p.Port }

// Do implements fabric.Port.
func (p again) Do(ops []fabric.Op) error {
	err := p.Port.Do(ops)
	for errors.Is(err, fabric.ErrStaleEpoch) || errors.Is(err, fabric.ErrNodeDown) {
		p.w.attach(p.Port, p.n)
		err = p.Port.Do(ops)
	}
	p.after()
	return err
}

// Wait implements fabric.Port.
func (p again) Wait(x fabric.Pending) error {
	err := p.Port.Wait(x)
	p.after()
	return err
}

func (p again) after() {
	if *p.left--; *p.left == -1 {
		want(p.w.t, p.w.c.Promote(p.w.mn), nil)
	}
}

// A backup is promoted after each chain of a script whose Port attaches to it by itself: a change of pages of which the primary says that it is done has been done there.
func TestChangeOverAPromotionEverywhere(t *testing.T) {
	for factor := 2; factor <= 3; factor++ {
		for k, left := 0, -1; left < 0 && !t.Failed(); k++ {
			w := newReplicated(t, factor)
			w.c.SetObserver(observer(func(e *sim.Event) {
				if e.Step == sim.StepEffect && e.Op.Kind == fabric.OpCAS && e.Op.Addr == w.r.Stamp() && e.Old>>63 == 1 && e.New == e.Old&^(1<<63) {
					w.changed(k, e.New)
				}
			}))
			left = k
			w.c.Go(w.nodes[0], "script", func(p fabric.Port) {
				w.script(again{p, w, w.nodes[0], &left}, w.nodes[0])
			})
			if err := w.c.Run(); err != nil {
				t.Fatal(k, err)
			}
		}
	}
}

// changed judges that the pages of a change that is done have the owner that it gives them.
func (w *replicated) changed(k int, change uint64) {
	for i := range change >> 14 & 0x3fff {
		page := change&0x3fff + i
		word := w.c.PeekWord(w.r.At(w.r.TableOffset() + 8*page))
		if word>>24&0xfff != change>>28&0xfff {
			w.t.Errorf("promoted after chain %d: change %#x is done, and page %d is %#x", k, change, page, word)
		}
	}
}

// promoted has another node look, after a promotion.
func (w *replicated) promoted(what string) {
	if err := w.c.Promote(w.mn); err != nil {
		return // the backup has ended, and has missed nothing
	}
	what += ", promoted"
	w.c.Go(w.nodes[1], "look", func(p fabric.Port) { w.check(p, w.nodes[1], what) })
	if err := w.c.Run(); err != nil {
		w.t.Fatal(what, err)
	}
}

// A compute node crashes at each operation of a script, and then the primary ends: another goes on with what the backup has. It finds what was made, and frees what was begun.
func TestMirrorWriterCrashesEverywhere(t *testing.T) {
	for _, factor := range []int{2, 3} {
		for k, hit := 0, true; hit; k += 1 + k/40 {
			w := newReplicated(t, factor)
			what := fmt.Sprintf("%d replicas, the writer crashes at effect %d", factor, k)
			w.left, w.then = k, func() { w.c.Kill(w.nodes[0]) }
			w.c.Go(w.nodes[0], "script", func(p fabric.Port) { w.script(p, w.nodes[0]) })
			if err := w.c.Run(); err != nil {
				t.Fatal(what, err)
			}
			hit = w.then == nil
			for w.then = nil; len(w.c.Group(w.mn).Replicas) > 1; {
				if err := w.c.Promote(w.mn); err != nil {
					t.Fatal(what, err)
				}
				w.c.Go(w.nodes[1], "other", func(p fabric.Port) {
					w.check(p, w.nodes[1], what)
					dead := func() fabric.CNSet { var s fabric.CNSet; s.Add(1); return s }
					_, _, err := w.r.Create(p, memory.Spec{Name: "a", Kind: memory.KindMemory, Size: 3000, DeadNow: dead})
					if err != nil {
						t.Errorf("%s: create: %v", what, err)
					}
					w.check(p, w.nodes[1], what+", made anew")
				})
				if err := w.c.Run(); err != nil {
					t.Fatal(what, err)
				}
			}
			if t.Failed() {
				return
			}
		}
	}
}

// The last backup is written first: so the first, which is the one that is promoted, never has what another lacks.
func TestLastBackupFirst(t *testing.T) {
	w := newReplicated(t, 3)
	var hosts []fabric.MemID
	w.c.SetObserver(observer(func(e *sim.Event) {
		if e.Step == sim.StepEffect && e.Op.Kind == fabric.OpWrite {
			hosts = append(hosts, e.Mem)
		}
	}))
	w.c.Go(w.nodes[0], "writer", func(p fabric.Port) {
		b, err := w.r.Backups(p)
		if err == nil {
			err = b.Write([]fabric.Op{fabric.Store(fabric.At(w.mn, size-8), 1)}, 0)
		}
		if err != nil {
			t.Error(err)
		}
	})
	if err := w.c.Run(); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(hosts, []fabric.MemID{2, 1}) {
		t.Errorf("written on %v", hosts)
	}
}

// A client is interrupted while its chain to a backup is under way, does not wait, and what follows is another's: the chain, which lands later, comes to nothing (rule 3).
func TestInterruptedWriteToABackup(t *testing.T) {
	w := newReplicatedIn(t, 2, sim.Config{Seed: 1, Grace: fabric.Microsecond, NewsDelay: 20 * fabric.Microsecond})
	at, holder := fabric.At(w.mn, size-8), 1
	write := func(p fabric.Port, v uint64) error {
		b, err := w.r.Backups(p)
		if err == nil {
			err = b.Write([]fabric.Op{fabric.Store(at, v)}, 0)
		}
		return err
	}
	w.c.Go(w.nodes[0], "first", func(p fabric.Port) {
		w.c.Delay(sim.OfCN(1), sim.OfMN(1), 100*fabric.Microsecond, w.c.Now()+fabric.Millisecond)
		w.c.At(w.c.Now()+5*fabric.Microsecond, p.Interrupt)
		_ = write(p, 1)
		if w.c.FaultStats()[sim.LeftBehind] != 1 {
			t.Error("no chain was left behind")
		}
		holder = 2
	})
	w.c.Go(w.nodes[1], "second", func(p fabric.Port) {
		for holder != 2 {
			want(t, p.Pause(p.Now()+fabric.Microsecond), nil)
		}
		want(t, write(p, 2), nil)
		want(t, p.Do([]fabric.Op{fabric.Store(at, 2)}), nil)
	})
	if err := w.c.RunUntil(fabric.Second); err != nil {
		t.Fatal(err)
	}
	w.compare("at the end")
}

// A client is interrupted while a backup is read: nothing of that can be late, and the backup is none the worse for it.
func TestInterruptedReadOfABackup(t *testing.T) {
	w := newReplicatedIn(t, 2, sim.Config{Seed: 1, Grace: fabric.Microsecond})
	w.c.Go(w.nodes[0], "reader", func(p fabric.Port) {
		w.c.Delay(sim.OfCN(1), sim.OfMN(1), 100*fabric.Microsecond, w.c.Now()+fabric.Millisecond)
		w.c.At(w.c.Now()+5*fabric.Microsecond, p.Interrupt)
		want(t, w.r.Level(p, w.r.Stamp(), 1), fabric.ErrInterrupted)
	})
	if err := w.c.Run(); err != nil {
		t.Fatal(err)
	}
	if n := len(w.c.Group(w.mn).Replicas); n != 2 {
		t.Errorf("%d replicas", n)
	}
}

type observer func(e *sim.Event)

// Observe implements sim.Observer.
func (f observer) Observe(e *sim.Event) { f(e) }

// What was written to backups is at all that there are as long as the same primary serves, and there is no new one. A promoted one may have no backups, and lack what its successor has been given since.
func TestCovers(t *testing.T) {
	w := newReplicated(t, 3)
	p := open(t, w.nodes[0])
	backups := func() memory.Backups {
		b, err := w.r.Backups(p)
		want(t, err, nil)
		return b
	}
	before := backups()
	if now := backups(); !before.Covers(&now) {
		t.Error("nothing has changed")
	}
	want(t, w.c.Promote(w.mn), nil)
	w.attach(p, w.nodes[0])
	if now := backups(); before.Covers(&now) {
		t.Error("another primary serves")
	}
	before = backups()
	w.c.AddBackup(w.mn, w.c.AddMN(4096))
	if now := backups(); before.Covers(&now) {
		t.Error("there is a new backup")
	}
}
