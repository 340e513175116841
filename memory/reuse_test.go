package memory_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/memory"
)

// always takes whatever is offered.
func always(*memory.Entry) (bool, error) { return true, nil }

// Retired memory of the same kind and size is published under another name, as it is, if the maker wants that.
func TestReuse(t *testing.T) {
	_, r, p := formatted(t)
	s := memory.Spec{Name: "a", Kind: memory.KindLocks, Size: 5000, Align: 64, Info: memory.Info{1}}
	a, _, err := r.Create(p, s)
	want(t, err, nil)
	want(t, p.Do([]fabric.Op{fabric.Store(a.Addr, 7)}), nil)
	want(t, r.Retire(p, &a), nil)
	used, err := r.Used(p)
	want(t, err, nil)
	for _, other := range []memory.Spec{
		{Name: "small", Kind: memory.KindLocks, Size: 4000, Reuse: always},
		{Name: "store", Kind: memory.KindStore, Size: 5000, Reuse: always},
		{Name: "new", Kind: memory.KindLocks, Size: 5000},
		{Name: "held", Kind: memory.KindLocks, Size: 5000, Reuse: func(*memory.Entry) (bool, error) { return false, nil }},
	} {
		if e, created, err := r.Create(p, other); err != nil || !created || e.Addr == a.Addr {
			t.Errorf("%s is at %v: %v, %v", other.Name, e.Addr, created, err)
		}
		want(t, remove(p, r, other.Name, other.Kind), nil)
	}
	s = memory.Spec{Name: "b", Kind: memory.KindLocks, Size: 5000, Align: 64, Info: memory.Info{2}, Reuse: always}
	b, created, err := r.Create(p, s)
	if err != nil || !created || b.Addr != a.Addr || b.Name != "b" || b.Info != s.Info {
		t.Fatalf("%+v, %v, %v", b, created, err)
	}
	if e, err := r.Lookup(p, "b", memory.KindLocks); err != nil || e.Addr != a.Addr {
		t.Errorf("%+v, %v", e, err)
	}
	ops := []fabric.Op{fabric.Load(b.Addr)}
	if want(t, p.Do(ops), nil); ops[0].Old != 7 {
		t.Errorf("the memory has changed: %d", ops[0].Old)
	}
	if now, err := r.Used(p); err != nil || now != used {
		t.Errorf("%d bytes are used, %d before: %v", now, used, err)
	}
	want(t, remove(p, r, "b", memory.KindLocks), nil)
}

// A compute node crashes at any operation while it takes retired memory: the name can be made, and the memory is retired again or has the name; no client gives it back.
func TestReuseCrashesEverywhere(t *testing.T) {
	for k, reached := 0, true; reached; k++ {
		_, r, p := formatted(t)
		s := memory.Spec{Name: "a", Kind: memory.KindLocks, Size: 5000}
		a, _, err := r.Create(p, s)
		want(t, err, nil)
		want(t, p.Do([]fabric.Op{fabric.Store(a.Addr, 7)}), nil)
		want(t, r.Retire(p, &a), nil)
		used, err := r.Used(p)
		want(t, err, nil)
		dying := &stepPort{Port: p, k: k, between: func() bool { return false }}
		s.Name, s.Reuse = "b", always
		_, _, err = r.Create(dying, s)
		if reached = dying.reached; reached && !errors.Is(err, errDead) {
			t.Fatal(err)
		}
		var dead fabric.CNSet
		dead.Add(p.ID().CN())
		s.DeadNow = func() fabric.CNSet { return dead }
		b, _, err := r.Create(p, s)
		if err != nil || b.Addr != a.Addr {
			t.Fatalf("crash at operation %d: at %v, was at %v: %v", k, b.Addr, a.Addr, err)
		}
		ops := []fabric.Op{fabric.Load(b.Addr)}
		if want(t, p.Do(ops), nil); ops[0].Old != 7 {
			t.Fatalf("crash at operation %d: the memory has changed: %d", k, ops[0].Old)
		}
		if now, err := r.Used(p); err != nil || now != used {
			t.Fatalf("crash at operation %d: %d bytes are used, %d before: %v", k, now, used, err)
		}
		if k > 100 {
			t.Fatal("it has no end")
		}
	}
}

// Several make names at once, of which some are dropped meanwhile: each name is made once, and no two have the same memory.
func TestReuseRace(t *testing.T) {
	for seed := range uint64(30) {
		c, mn, nodes := cluster(t, seed, 4)
		p := open(t, nodes[0])
		want(t, memory.Format(p, mn, params), nil)
		r, err := memory.Open(p, mn)
		want(t, err, nil)
		for i := range 3 {
			e, _, err := r.Create(p, memory.Spec{Name: fmt.Sprint("old", i), Kind: memory.KindLocks, Size: 64})
			want(t, err, nil)
			want(t, r.Retire(p, &e), nil)
		}
		makers, addrs := map[string]int{}, map[string]fabric.Addr{}
		for i := range 12 {
			c.Go(nodes[i%4], fmt.Sprint(i), func(p fabric.Port) {
				p.Pause(p.Now() + fabric.Time(p.Rand()%10_000))
				for _, name := range []string{"a", "b"} {
					e, created, err := r.Create(p, memory.Spec{Name: name, Kind: memory.KindLocks, Size: 64, Reuse: always})
					want(t, err, nil)
					if created {
						makers[name]++
					}
					if a := addrs[name]; a != 0 && a != e.Addr {
						t.Errorf("seed %d: %q is at %v and at %v", seed, name, a, e.Addr)
					}
					addrs[name] = e.Addr
				}
			})
		}
		want(t, c.Run(), nil)
		if makers["a"] != 1 || makers["b"] != 1 || addrs["a"] == addrs["b"] {
			t.Fatalf("seed %d: created %v at %v", seed, makers, addrs)
		}
		c.Close()
	}
}

// Memory that Kept says is kept is all there, at each step of giving it back. If the compute node that gives it back crashes there, the next one that looks for such memory gives back the rest.
func TestKeptWhileItIsGivenBack(t *testing.T) {
	for _, crashed := range []bool{false, true} {
		for k := 0; ; k++ {
			_, r, p := formatted(t)
			before, err := r.Used(p)
			want(t, err, nil)
			e, _, err := r.Create(p, memory.Spec{Name: "s", Kind: memory.KindStore, Size: 4096})
			want(t, err, nil)
			want(t, r.Retire(p, &e), nil)
			step := &stepPort{Port: p, k: k, between: func() bool {
				pages, err := r.Pages(p)
				want(t, err, nil)
				if err := r.Kept(p, &e); err == nil && pages.Owned(&e) < e.Length {
					t.Errorf("before operation %d it is kept, and has %d bytes", k, pages.Owned(&e))
				}
				return !crashed
			}}
			if err := r.Free(step, &e); !step.reached {
				want(t, err, nil)
				break
			}
			unused := func(*memory.Entry) (bool, error) { return false, nil }
			want(t, memory.FreeRetired(p, []fabric.MemID{r.Memory()}, whole, unused, nil), nil)
			if used, err := r.Used(p); err != nil || used != before {
				t.Fatalf("operation %d, crashed %v: %d bytes are used, %d before: %v", k, crashed, used, before, err)
			}
		}
	}
}

// Memory of what has been dropped is not given back while a compute node holds it that lives: nor by another that has looked before whether it is used, nor at a backup that is promoted.
func TestHold(t *testing.T) {
	w := newReplicated(t, 2)
	p, other := open(t, w.nodes[0]), open(t, w.nodes[1])
	e, _, err := w.r.Create(p, memory.Spec{Name: "s", Kind: memory.KindStore, Size: 4096, Info: memory.Info{1 << 48}})
	want(t, err, nil)
	want(t, w.r.Retire(p, &e), nil)
	before, err := w.r.Retired(other)
	want(t, err, nil)
	want(t, w.r.Hold(p, &before[0], nil), nil)
	want(t, w.r.Free(other, &before[0]), memory.ErrHeld)
	want(t, w.r.Hold(other, &before[0], nil), memory.ErrHeld)
	free := func(what string, there int, live bool) {
		t.Helper()
		unused := func(*memory.Entry) (bool, error) { return false, nil }
		want(t, memory.FreeRetired(other, []fabric.MemID{w.mn}, whole, unused, func(fabric.CNID) bool { return live }), nil)
		if list, err := w.r.Retired(other); err != nil || len(list) != there {
			t.Fatalf("%s: %d are retired, want %d: %v", what, len(list), there, err)
		}
	}
	free("held", 1, true)
	want(t, w.c.Promote(w.mn), nil)
	w.attach(p, w.nodes[0])
	w.attach(other, w.nodes[1])
	free("held, and promoted", 1, true)
	want(t, w.r.Release(p, &e), nil)
	want(t, w.r.Free(other, &before[0]), memory.ErrHeld) // it was held since
	want(t, w.r.Hold(p, &e, nil), nil)
	var dead fabric.CNSet
	dead.Add(w.nodes[0].ID())
	want(t, w.r.Hold(other, &e, func() fabric.CNSet { return dead }), nil)
	want(t, w.r.Hold(p, &e, nil), memory.ErrHeld)
	free("held by one that is dead", 0, false)
	want(t, w.r.Hold(p, &e, nil), memory.ErrRemoved)
}
