package stats

import "testing"

type inner struct{ N [2]uint64 }

type words3 struct {
	A     uint64
	Inner inner
}

type outer struct {
	A     uint64
	Inner inner
	Time  int64
}

// Every counter is added and subtracted, at whatever depth; what is no counter stays.
func TestAddAndSubtract(t *testing.T) {
	a, b := outer{1, inner{[2]uint64{2, 3}}, 4}, outer{10, inner{[2]uint64{20, 30}}, 40}
	sum := a
	if Add(&sum, &b); sum != (outer{11, inner{[2]uint64{22, 33}}, 4}) {
		t.Errorf("sum %+v", sum)
	}
	if Subtract(&sum, &b); sum != a {
		t.Errorf("difference %+v, want %+v", sum, a)
	}
}

// What has counters of 64 bits only is added word by word.
func TestAddWords(t *testing.T) {
	a, b := words3{1, inner{[2]uint64{2, 1<<64 - 1}}}, words3{10, inner{[2]uint64{20, 2}}}
	if words(&a) == nil || words(&outer{}) != nil {
		t.Errorf("%T is words: %v, %T: %v", a, words(&a) != nil, outer{}, words(&outer{}) != nil)
	}
	if Add(&a, &b); a != (words3{11, inner{[2]uint64{22, 1}}}) {
		t.Errorf("sum %+v", a)
	}
}
