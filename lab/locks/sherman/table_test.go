package sherman

import "testing"

// A bound that a token has no room for is the largest that it has room for.
func TestLargestBound(t *testing.T) {
	for _, bound := range []uint32{maxBound, maxBound + 1, 1 << 20} {
		if got := NewTable(bound).bound; got != maxBound {
			t.Errorf("bound %d has become %d, want %d", bound, got, maxBound)
		}
	}
}
