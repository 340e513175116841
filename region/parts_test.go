package region_test

import (
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/region"
)

// Parts are found in their order; one that is there twice is not taken for two.
func TestParts(t *testing.T) {
	c, first, nodes := cluster(t, 1, 1)
	p := open(t, nodes[0])
	mns := []fabric.MemID{first, c.AddMN(memory), c.AddMN(memory)}
	create := func(name string, mn fabric.MemID, part uint64) {
		r, err := region.Open(p, mn)
		want(t, err, nil)
		_, _, err = r.Create(p, region.Spec{Name: name, Kind: region.KindTree, Size: 64, Align: 64, Info: region.Info{part}})
		want(t, err, nil)
	}
	find := func(name string) ([]fabric.MemID, error) {
		return region.Parts(p, mns, name, region.KindTree, func(e *region.Entry) (i, n int, err error) { return int(e.Info[0]), 2, nil })
	}
	for _, mn := range mns {
		want(t, region.Format(p, mn, params), nil)
	}
	create("whole", mns[2], 0)
	create("whole", mns[1], 1)
	if got, err := find("whole"); err != nil || len(got) != 2 || got[0] != mns[2] || got[1] != mns[1] {
		t.Errorf("whole: %v, %v", got, err)
	}
	create("twice", mns[1], 0)
	create("twice", mns[2], 0)
	got, err := find("twice")
	if want(t, err, region.ErrParts); got != nil {
		t.Errorf("twice: %v", got)
	}
}
