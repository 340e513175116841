package slab

import (
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/memory/reclaim"
)

// A world is a region with a store's memory that has three classes, of 64, 128 and 192 bytes.
type world struct {
	t  *testing.T
	c  *sim.Cluster
	r  *memory.Region
	e  memory.Entry
	cn []*sim.Node
}

const (
	size  = 64 << 10
	lines = 0x3000 // of the entry's memory
)

func newWorld(t *testing.T, cns int) *world {
	w := &world{t: t, c: sim.New(sim.Config{NIC: sim.Ideal(), Late: sim.LateDrop})}
	t.Cleanup(func() { w.c.Close() })
	mn := w.c.AddMN(size)
	for range cns {
		w.cn = append(w.cn, w.c.AddCN())
	}
	p := w.port(0)
	w.want(memory.Format(p, mn, memory.Params{Size: size, CapacityLog2: 3, VersionBits: 16}))
	var err error
	w.r, err = memory.Open(p, mn)
	w.want(err)
	w.e, _, err = w.r.Create(p, memory.Spec{Name: "s", Kind: memory.KindStore, Size: 0x4000, Align: 4096})
	w.want(err)
	return w
}

func (w *world) want(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) port(cn int) fabric.Port {
	p, err := w.cn[cn].Open()
	w.want(err)
	return p
}

// A hand is a compute node's heap, and its one client.
type hand struct {
	*Heap
	Worker
}

func (w *world) hand(cn int, limit uint64) *hand {
	p := w.port(cn)
	m := new(reclaim.Member)
	w.want(m.Join(p, w.e.Addr, nil))
	h := &hand{Heap: New(Config{
		Region: w.r, Entry: &w.e, Lines: w.e.Addr.Add(lines), Classes: 3, Limit: limit,
		Size:  func(class uint8) uint64 { return 64 * (uint64(class) + 1) },
		Bound: func(uint8) int { return 4 },
	})}
	h.Open(p, m, p.Do)
	return h
}

// get gets a block, from wherever there is one.
func (h *hand) get(class uint8) (uint64, error) {
	if item, ok := h.Pop(class); ok {
		return item, nil
	}
	item, stamp, err := h.Take(&h.Worker, class)
	if err != nil || item != 0 {
		return item, err
	}
	return h.Grow(&h.Worker, class, stamp)
}

func (h *hand) put(class uint8, item uint64) error {
	var batch [Batch]uint64
	n := h.Push(&h.Worker, class, item, &batch)
	return h.Give(&h.Worker, class, batch[:n])
}

func (h *hand) drain(class uint8) error {
	var batch [Batch]uint64
	for {
		n := h.Drain(class, &batch)
		if n == 0 {
			return nil
		}
		if err := h.Give(&h.Worker, class, batch[:n]); err != nil {
			return err
		}
	}
}

// Between the READ of free bits and the CAS that takes some, another takes them: a block is never had twice.
func TestTwoTakeAtOnce(t *testing.T) {
	for k := range 12 {
		w := newWorld(t, 2)
		a, b := w.hand(0, 1<<10), w.hand(1, 1<<10)
		item, err := a.get(0)
		w.want(err)
		w.want(a.put(0, item))
		w.want(a.drain(0))
		had := map[uint64]int{}
		grab := func(h *hand, n int) {
			for range n {
				item, err := h.get(0)
				if errors.Is(err, memory.ErrNoSpace) {
					return
				}
				w.want(err)
				if had[item]++; had[item] > 1 {
					t.Fatalf("stopped at chain %d: block %#x is had twice", k, item)
				}
			}
		}
		do := a.Do
		left := k
		a.Do = func(ops []fabric.Op) error {
			if left == 0 {
				grab(b, 5)
			}
			left--
			return do(ops)
		}
		grab(a, 16)
		grab(b, 16)
		if len(had) != 16 {
			t.Fatalf("stopped at chain %d: %d blocks of 16", k, len(had))
		}
	}
}

// A compute node dies at every operation while it takes memory, gives it back, and gives it to another class. What it had is found, and all
// memory can be had again.
func TestCrashEverywhere(t *testing.T) {
	errCrash := errors.New("crash")
	for k := 0; ; k++ {
		w := newWorld(t, 2)
		a, b := w.hand(0, 4<<10), w.hand(1, 4<<10)
		left := k
		port := a.Port
		crash := func(ops []fabric.Op) error {
			for i := range ops {
				if left == 0 {
					w.c.Kill(w.cn[0])
				}
				if left--; left < 0 {
					return errCrash
				}
				if err := port.Do(ops[i : i+1]); err != nil {
					return err
				}
			}
			return nil
		}
		a.Do, a.Port = crash, crashingPort{port, crash}
		err := func() error {
			for class := range uint8(3) {
				var items []uint64
				for {
					item, err := a.get(class)
					if errors.Is(err, memory.ErrNoSpace) {
						break
					}
					if err != nil {
						return err
					}
					items = append(items, item)
				}
				for i, item := range items {
					if i == len(items)/2 && class == 1 {
						return errCrash // with some in hand
					}
					if err := a.put(class, item); err != nil {
						return err
					}
				}
				for {
					ok, err := a.Collect(&a.Worker, class+1, nil, nil)
					if err != nil {
						return err
					}
					if !ok {
						break
					}
				}
			}
			return nil
		}()
		if !errors.Is(err, errCrash) {
			t.Fatalf("crash at operation %d: %v", k, err)
		}
		done := left >= 0
		w.c.Kill(w.cn[0])
		w.want(b.Port.Pause(b.Port.Now() + fabric.Second))
		o := &owner{h: b, view: w.cn[1].View}
		w.want(b.Member.Reclaim(o))
		for class := range uint8(3) {
			n := uint64(0)
			for {
				_, err := b.get(class)
				if errors.Is(err, memory.ErrNoSpace) {
					ok, err := b.Collect(&b.Worker, class, nil, nil)
					w.want(err)
					if ok {
						continue
					}
					break
				}
				w.want(err)
				n++
			}
			o.all(func(item uint64) { w.want(b.put(class, item)) }, class)
			if size := 64 * (uint64(class) + 1); n != 4*(1<<10/size) {
				t.Fatalf("crash at operation %d: %d blocks of %d B after it", k, n, size)
			}
		}
		w.c.Close()
		if done {
			if t.Logf("%d operations", k); k < 100 {
				t.Error("that is too few")
			}
			return
		}
	}
}

// A crashingPort is one whose chains crash.
type crashingPort struct {
	fabric.Port
	do func(ops []fabric.Op) error
}

func (p crashingPort) Do(ops []fabric.Op) error { return p.do(ops) }

// An owner sweeps a heap of which nothing is in use.
type owner struct {
	h    *hand
	view func() fabric.View
}

func (o *owner) Port() fabric.Port        { return o.h.Port }
func (o *owner) Do(ops []fabric.Op) error { return o.h.Do(ops) }
func (o *owner) View() fabric.View        { return o.view() }
func (o *owner) Held(add func(part int, from, to uint64)) {
	o.h.EachHeld(func(from, to uint64) { add(0, from, to) })
}

func (o *owner) Mark() (*reclaim.Map, error) {
	m := new(reclaim.Map)
	if err := o.h.AddRuns(&o.h.Worker, m); err != nil {
		return nil, err
	}
	return m, o.h.Mark(&o.h.Worker, m)
}

func (o *owner) Release(list []reclaim.Block) error { return o.h.Release(&o.h.Worker, list) }

// all calls f for every block of a class that there is.
func (o *owner) all(f func(item uint64), class uint8) {
	p, err := o.h.cfg.Region.Pages(o.h.Port)
	if err != nil {
		return
	}
	p.Runs(o.h.cfg.Entry, func(x memory.Run) {
		if x.Tag != class+1 {
			return
		}
		step := o.h.cfg.Size(class) / unit
		for n := range x.Size / unit / step {
			f(x.Off/unit + n*step)
		}
	})
}

func (o *owner) Lead(bool) (bool, error) { return true, nil }

func (o *owner) Settled() bool { return true }
