package memory_test

import (
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/memory"
)

// Parts are found in their order; one that is there twice is not taken for two.
func TestParts(t *testing.T) {
	c, first, nodes := cluster(t, 1, 1)
	p := open(t, nodes[0])
	mns := []fabric.MemID{first, c.AddMN(size), c.AddMN(size)}
	create := func(name string, mn fabric.MemID, part uint64) {
		r, err := memory.Open(p, mn)
		want(t, err, nil)
		_, _, err = r.Create(p, memory.Spec{Name: name, Kind: memory.KindTree, Size: 64, Align: 64, Info: memory.Info{part}})
		want(t, err, nil)
	}
	find := func(name string) ([]fabric.MemID, error) {
		return memory.Parts(p, mns, name, memory.KindTree, func(e *memory.Entry) (i, n int, err error) { return int(e.Info[0]), 2, nil })
	}
	for _, mn := range mns {
		want(t, memory.Format(p, mn, params), nil)
	}
	create("whole", mns[2], 0)
	create("whole", mns[1], 1)
	if got, err := find("whole"); err != nil || len(got) != 2 || got[0] != mns[2] || got[1] != mns[1] {
		t.Errorf("whole: %v, %v", got, err)
	}
	create("twice", mns[1], 0)
	create("twice", mns[2], 0)
	got, err := find("twice")
	if want(t, err, memory.ErrParts); got != nil {
		t.Errorf("twice: %v", got)
	}
}

// With one memory node down, the part that is not found is there; but not if another node could have had it.
func TestPartsWithANodeDown(t *testing.T) {
	c, first, nodes := cluster(t, 1, 1)
	p := open(t, nodes[0])
	mns := []fabric.MemID{first, c.AddMN(size), c.AddMN(size), c.AddMN(size)}
	for i, mn := range mns {
		q := params
		q.Generation = uint32(i / 3) // the last had another memory before
		want(t, memory.Format(p, mn, q), nil)
	}
	for i, mn := range []fabric.MemID{mns[1], mns[0]} {
		r, err := memory.Open(p, mn)
		want(t, err, nil)
		_, _, err = r.Create(p, memory.Spec{Name: "x", Kind: memory.KindTree, Size: 64, Align: 64, Info: memory.Info{uint64(i)}})
		want(t, err, nil)
	}
	find := func(among ...fabric.MemID) ([]fabric.MemID, error) {
		return memory.Parts(p, among, "x", memory.KindTree, func(e *memory.Entry) (i, n int, err error) { return int(e.Info[0]), 2, nil })
	}
	c.KillMN(mns[0])
	got, err := find(mns[:3]...)
	if want(t, err, nil); len(got) != 2 || got[0] != mns[1] || got[1] != mns[0] {
		t.Errorf("one is down: %v", got)
	}
	_, err = find(mns...)
	want(t, err, fabric.ErrNodeDown)
	c.KillMN(mns[2])
	_, err = find(mns[:3]...)
	want(t, err, fabric.ErrNodeDown)
}
