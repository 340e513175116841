package memory_test

import (
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/memory"
)

// whole is of a client that looks at all memory nodes.
func whole(*memory.Entry) bool { return true }

// The first part of what has been dropped goes last: not while another part is on a memory node that is not looked at, for then no client would know that it is not used.
func TestFirstPartGoesLast(t *testing.T) {
	c, mn, nodes := cluster(t, 1, 1)
	mns := []fabric.MemID{mn, c.AddMN(size)}
	p := open(t, nodes[0])
	var parts [2]memory.Entry
	var regions [2]*memory.Region
	for i, mn := range mns {
		want(t, memory.Format(p, mn, params), nil)
		r, err := memory.Open(p, mn)
		want(t, err, nil)
		regions[i] = r
		info := memory.Info{uint64(i)<<40 | uint64(len(parts))<<48, 5: 77}
		parts[i], _, err = r.Create(p, memory.Spec{Name: "s", Kind: memory.KindStore, Size: 4096, Info: info})
		want(t, err, nil)
	}
	unused := func(*memory.Entry) (bool, error) { return false, nil }
	other := func(*memory.Entry) bool { return false }
	retired := func(when string, wants ...int) {
		t.Helper()
		for i, r := range regions {
			list, err := r.Retired(p)
			want(t, err, nil)
			if len(list) != wants[i] {
				t.Fatalf("%s: part %d has %d retired entries, want %d", when, i, len(list), wants[i])
			}
		}
	}
	want(t, regions[0].Retire(p, &parts[0]), nil)
	want(t, regions[1].Retire(p, &parts[1]), nil)
	want(t, memory.FreeRetired(p, mns[:1], other, unused, nil), nil)
	retired("by a client that does not read the second part's memory node", 1, 1)
	want(t, memory.FreeRetired(p, mns, other, unused, nil), nil)
	retired("by a client that has found all parts", 0, 0)
}

// A drop that was cut short is done by the next that gives memory back. While one more part is made by a compute node that does not know, the first part stays.
func TestDropIsDoneByAnother(t *testing.T) {
	c, mn, nodes := cluster(t, 1, 1)
	mns := []fabric.MemID{mn, c.AddMN(size)}
	p := open(t, nodes[0])
	var regions [2]*memory.Region
	make := func(i int) memory.Entry {
		info := memory.Info{uint64(i)<<40 | uint64(len(regions))<<48, 5: 77}
		e, created, err := regions[i].Create(p, memory.Spec{Name: "s", Kind: memory.KindStore, Size: 4096, Info: info})
		if want(t, err, nil); !created {
			t.Fatal("it is there")
		}
		return e
	}
	for i, mn := range mns {
		want(t, memory.Format(p, mn, params), nil)
		r, err := memory.Open(p, mn)
		want(t, err, nil)
		regions[i] = r
	}
	for _, retired := range []int{0, 1} {
		both := []memory.Entry{make(0), make(1)}
		want(t, regions[retired].Retire(p, &both[retired]), nil)
		left := func(when string, published, kept int) {
			t.Helper()
			for _, r := range regions {
				list, err := r.List(p)
				want(t, err, nil)
				published -= len(list)
				list, err = r.Retired(p)
				want(t, err, nil)
				kept -= len(list)
			}
			if published != 0 || kept != 0 {
				t.Fatalf("part %d was retired, %s: %d parts more are published than there should be, and %d retired", retired, when, -published, -kept)
			}
		}
		unused := func(*memory.Entry) (bool, error) { return false, nil }
		live := func(fabric.CNID) bool { return true }
		other := 1 - retired
		late := &lateMaker{Port: p, then: func() { make(other) }}
		want(t, memory.FreeRetired(late, mns, whole, unused, live), nil)
		left("and the other made again", 1, 2)
		want(t, memory.FreeRetired(p, mns, whole, unused, live), nil)
		left("and the other, too", 0, 0)
	}
}

// A lateMaker is a Port that does something after its first CAS.
type lateMaker struct {
	fabric.Port
	then func()
}

func (p *lateMaker) Do(ops []fabric.Op) error {
	err := p.Port.Do(ops)
	if then := p.then; then != nil && ops[0].Kind == fabric.OpCAS {
		p.then = nil
		then()
	}
	return err
}

// A Drop that stands still while another does it, and the name is given to another store, leaves that alone.
func TestDropLeavesAnotherAlone(t *testing.T) {
	c, mn, nodes := cluster(t, 1, 1)
	mns := []fabric.MemID{mn, c.AddMN(size)}
	p := open(t, nodes[0])
	var regions [2]*memory.Region
	for i, mn := range mns {
		want(t, memory.Format(p, mn, params), nil)
		r, err := memory.Open(p, mn)
		want(t, err, nil)
		regions[i] = r
	}
	made := func(id uint64) (parts [2]memory.Entry) {
		for i, r := range regions {
			info := memory.Info{uint64(i)<<40 | uint64(len(regions))<<48, 5: id}
			e, _, err := r.Create(p, memory.Spec{Name: "s", Kind: memory.KindStore, Size: 4096, Info: info})
			want(t, err, nil)
			parts[i] = e
		}
		return parts
	}
	first := made(1)
	late := &lateMaker{Port: p, then: func() {
		want(t, regions[1].Retire(p, &first[1]), nil)
		made(2)
	}}
	want(t, memory.Drop(late, mns, "s", memory.KindStore), nil)
	for i, r := range regions {
		e, err := r.Lookup(p, "s", memory.KindStore)
		if want(t, err, nil); e.Info[5] != 2 {
			t.Errorf("part %d is of %d", i, e.Info[5])
		}
	}
}
