package ram

import "testing"

func TestArenaForgetsWhatItGaveBack(t *testing.T) {
	var a Arena
	b := a.Alloc(4 * maxSlab)
	for i := range a.recent { // each place remembers the slab
		if !a.Owns(b[i*minSlab:][:1]) {
			t.Fatalf("at %d: not owned", i*minSlab)
		}
	}
	a.Free(b)
	for _, p := range a.free[Class(4*maxSlab)][:1] { // the place of what Alloc has taken
		if p != nil {
			t.Error("the garbage collector does not get what it gave back")
		}
	}
	for i := range a.recent {
		if a.Owns(b[i*minSlab:][:1]) {
			t.Errorf("place %d: owns what it gave back", i)
		}
	}
}
