package memory_test

import (
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/memory"
)

// whole is of a client that looks at all memory nodes.
func whole(*memory.Entry) bool { return true }

// The first part of what has been dropped goes last: not while another part is on a memory node that is not looked at, nor while one is published still, for then no client would know that it is not used.
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
	want(t, memory.FreeRetired(p, mns, whole, unused, nil), nil)
	retired("the second part is published", 1, 0)
	want(t, regions[1].Retire(p, &parts[1]), nil)
	want(t, memory.FreeRetired(p, mns[:1], other, unused, nil), nil)
	retired("by a client that does not read the second part's memory node", 1, 1)
	want(t, memory.FreeRetired(p, mns, other, unused, nil), nil)
	retired("by a client that has found all parts", 0, 0)
}
