package reclaim

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/declock/declock/fabric"
)

// A leader of before, who was stopped, writes a batch late, over that of the present round. What it overwrites is not found in this
// round, and so records of crashed nodes stay until another has found it; also if a member has the block of which the late one writes.
func TestALeaderOfBeforeWritesLate(t *testing.T) {
	for _, had := range []bool{false, true} {
		w := newWorld(t, 3)
		w.kill(2, 0)
		leader := w.mine[0]
		for w.tend(1, 0); leader.m.lead == nil || len(leader.m.lead.batch) == 0; w.tend(1, 1, 0) {
		}
		old := Block{Off64: w.mine[2].free[1]}
		if had {
			old.Off64 = w.mine[1].free[0]
		}
		late := makeCandidate(old, leader.m.lead.word.mark()-5<<stepBits)
		i := slices.IndexFunc(leader.m.lead.batch, func(p Block) bool { return p.Off64 == w.mine[2].free[0] })
		w.c.Poke(w.base.Add(Offset+batchAt+8*uint64(i)), binary.LittleEndian.AppendUint64(nil, uint64(late)))
		w.tend(20, 1, 0)
		if err := leader.port.Pause(leader.port.Now() + 5*fabric.Second); err != nil {
			t.Fatal(err)
		}
		w.tend(40, 1, 0)
		w.wantFound("a late batch", 2)
	}
}
