package stats

import "testing"

type inner struct{ N [2]uint64 }

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
