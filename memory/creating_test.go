package memory_test

import (
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/memory"
)

// A compute node fails, at every operation, while it creates an entry, and cannot free its claim. Its next creation of anything takes the memory
// back, and so does another compute node's when the first has crashed; no node does before.
func TestNextCreationTakesHalfMadeEntriesBack(t *testing.T) {
	for _, crashed := range []bool{false, true} {
		for k := 0; ; k++ {
			c, mn, nodes := cluster(t, 1, 2)
			p := open(t, nodes[0])
			want(t, memory.Format(p, mn, params), nil)
			r, err := memory.Open(p, mn)
			want(t, err, nil)
			before, err := r.Used(p)
			want(t, err, nil)
			var here, there memory.Creating
			half := memory.Spec{Name: "half", Kind: memory.KindStore, Size: 40000, Creating: &here}
			failing := &stepPort{Port: p, k: k, between: func() bool { return false }}
			_, made, err := r.Create(failing, half)
			if failing.reached && !errors.Is(err, errDead) {
				t.Fatal(err)
			}
			if !failing.reached {
				want(t, err, nil)
				break
			}
			if _, err := r.Lookup(p, "half", memory.KindStore); err == nil {
				continue // its last operation was all that failed
			}
			other := memory.Spec{Name: "other", Kind: memory.KindStore, Creating: &here}
			if crashed {
				p = open(t, nodes[1])
				other.Creating, other.DeadNow = &there, func() fabric.CNSet { return nodes[1].View().Dead() }
				claims, err := r.Claims(p)
				want(t, err, nil)
				_, _, err = r.Create(p, memory.Spec{Name: "early", Kind: memory.KindStore, Creating: &there, DeadNow: other.DeadNow})
				want(t, err, nil)
				if now, err := r.Claims(p); err != nil || len(now) != len(claims) {
					t.Fatalf("operation %d: claims %v of a compute node that lives, and then %v: %v", k, claims, now, err)
				}
				c.Kill(nodes[0])
				want(t, p.Pause(p.Now()+fabric.Second), nil)
			}
			_, created, err := r.Create(p, other)
			want(t, err, nil)
			if used, err := r.Used(p); err != nil || used != before || !created || made {
				t.Fatalf("operation %d, crashed %v: %d bytes are used, %d before: %v", k, crashed, used, before, err)
			}
			if list, err := r.Claims(p); err != nil || len(list) != 0 {
				t.Fatalf("operation %d, crashed %v: claims %v, %v", k, crashed, list, err)
			}
		}
	}
}

// A claim of this compute node by whom it is being made still is no other's to free.
func TestCreationUnderWayIsNotAbandoned(t *testing.T) {
	_, r, p := formatted(t)
	var ours memory.Creating
	spec := func(name string, init func(*memory.Entry) error) memory.Spec {
		return memory.Spec{Name: name, Kind: memory.KindStore, Size: 5000, Creating: &ours, Init: init, Deadline: p.Now() + fabric.Microsecond}
	}
	_, created, err := r.Create(p, spec("a", func(*memory.Entry) error {
		_, _, err := r.Create(p, spec("a", nil))
		want(t, err, memory.ErrHalfCreated)
		_, _, err = r.Create(p, spec("b", nil))
		return err
	}))
	want(t, err, nil)
	if list, err := r.List(p); err != nil || !created || len(list) != 2 {
		t.Fatal(list, err)
	}
}

// A refusing Port refuses one chain, as one of which nothing was executed.
type refusing struct {
	fabric.Port
	k int
}

func (p *refusing) Do(ops []fabric.Op) error {
	if p.k--; p.k == -1 {
		return &fabric.ChainError{Op: ops[0], Err: fabric.ErrNodeDown}
	}
	return p.Port.Do(ops)
}

// A chain is refused, or a compute node reaches the memory node no more, while it creates an entry, from new memory and from retired memory. Another compute node
// creates that name then, while the first lives: at once, or when the first has freed what it left.
func TestOthersCreateWhatALivingNodeLeftHalfMade(t *testing.T) {
	for _, retired := range []bool{false, true} {
		for _, gone := range []bool{false, true} {
			for k, done := 0, false; !done; k++ {
				_, mn, nodes := cluster(t, 1, 2)
				p, q := open(t, nodes[0]), open(t, nodes[1])
				want(t, memory.Format(p, mn, params), nil)
				r, err := memory.Open(p, mn)
				want(t, err, nil)
				var here, there memory.Creating
				spec := func(c *memory.Creating) memory.Spec {
					return memory.Spec{Name: "half", Kind: memory.KindLocks, Size: 40000, Creating: c, Reuse: always, Deadline: q.Now() + fabric.Millisecond}
				}
				if retired {
					s := spec(&here)
					s.Name = "old"
					e, _, err := r.Create(p, s)
					want(t, err, nil)
					want(t, r.Retire(p, &e), nil)
				}
				before, err := r.Used(p)
				want(t, err, nil)
				if gone {
					failing := &stepPort{Port: p, k: k, between: func() bool { return false }}
					_, _, err = r.Create(failing, spec(&here))
					if done = !failing.reached; !done {
						want(t, err, errDead)
						want(t, r.FreeLeft(p, &here), nil)
					}
				} else {
					failing := &refusing{p, k}
					_, _, err = r.Create(failing, spec(&here))
					if done = failing.k >= 0; !done && err != nil { // a chain that has no effect may be tried again
						want(t, err, fabric.ErrNodeDown)
					}
				}
				if list, lerr := r.Retired(q); lerr != nil || retired && err != nil && len(list) != 1 {
					t.Fatalf("gone %v, %d: %d retired entries, want the one of before, whose memory may be in use: %v", gone, k, len(list), lerr)
				}
				if here.Left(mn) {
					t.Fatalf("retired %v, gone %v, %d: it has left something", retired, gone, k)
				}
				if _, _, err := r.Create(q, spec(&there)); err != nil {
					t.Fatalf("retired %v, gone %v, %d: %v", retired, gone, k, err)
				}
				want(t, remove(q, r, "half", memory.KindLocks), nil)
				if now, err := r.Used(q); err != nil || now > before {
					t.Fatalf("retired %v, gone %v, %d: %d bytes are used, %d before: %v", retired, gone, k, now, before, err)
				}
			}
		}
	}
}

// What a failed call has left stays while another call of the compute node makes the same name.
func TestFreeLeftWhileItIsBeingMade(t *testing.T) {
	_, r, p := formatted(t)
	var ours memory.Creating
	s := memory.Spec{Name: "a", Kind: memory.KindStore, Size: 5000, Creating: &ours}
	failing := &stepPort{Port: p, k: 3, between: func() bool { return false }}
	_, _, err := r.Create(failing, s)
	want(t, err, errDead)
	if !ours.Left(r.Memory()) {
		t.Fatal("it has left nothing")
	}
	want(t, r.FreeLeft(&refusing{p, 0}, &ours), fabric.ErrNodeDown)
	if !ours.Left(r.Memory()) {
		t.Error("what could not be freed is not tried again")
	}
	s.Init = func(*memory.Entry) error {
		if ours.Left(r.Memory()) {
			t.Error("it says that it has left what is being made")
		}
		return r.FreeLeft(p, &ours)
	}
	_, created, err := r.Create(p, s)
	want(t, err, nil)
	want(t, r.FreeLeft(p, &ours), nil)
	if list, err := r.List(p); err != nil || !created || len(list) != 1 || ours.Left(r.Memory()) {
		t.Fatal(list, err)
	}
}

// A compute node that joins frees what the one that had its number before was about to make: nobody else can.
func TestFreeAbandoned(t *testing.T) {
	_, mn, nodes := cluster(t, 1, 1)
	p := open(t, nodes[0])
	want(t, memory.Format(p, mn, params), nil)
	r, err := memory.Open(p, mn)
	want(t, err, nil)
	var before, now memory.Creating
	failing := &stepPort{Port: p, k: 3, between: func() bool { return false }}
	_, _, err = r.Create(failing, memory.Spec{Name: "half", Kind: memory.KindStore, Size: 40000, Creating: &before})
	if claims, lerr := r.Claims(p); err == nil || lerr != nil || len(claims) != 1 {
		t.Fatalf("claims %v: %v, %v", claims, err, lerr)
	}
	want(t, r.FreeAbandoned(p, nil, &now), nil)
	if claims, err := r.Claims(p); err != nil || len(claims) != 0 {
		t.Fatalf("claims %v: %v", claims, err)
	}
}
