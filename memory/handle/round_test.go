package handle

import (
	"testing"

	"github.com/declock/declock/fabric"
)

// A round is asked for after each walk and each promotion, once.
func TestRoundIsSought(t *testing.T) {
	var x walked
	v, backups := fabric.View{Lost: 1}, []uint32{2}
	if x.due(v, backups, []uint32{1}) {
		t.Error("a round without a walk")
	}
	x.finished(round{true, v, backups}, true)
	for i, want := range []bool{true, false} {
		if x.due(v, backups, []uint32{1}) != want {
			t.Errorf("after a walk, look %d: not %v", i, want)
		}
	}
	if !x.due(v, backups, []uint32{2}) || x.due(v, backups, []uint32{2}) {
		t.Error("not once after a promotion")
	}
	if x.finished(round{true, v, backups}, false); x.due(v, backups, []uint32{3}) {
		t.Error("a round after a walk that was another compute node's to do")
	}
	x.finished(round{true, v, backups}, true)
	if v.Lost++; x.due(v, backups, []uint32{3}) {
		t.Error("a round before the walk after a crash")
	}
}
