package drtm

import "testing"

// A writer is another than the node that has its number now only if both are known: words of before have no incarnation, nor has a fabric that knows none. A word holds the low bits of one.
func TestWordOfAnother(t *testing.T) {
	const high = 1 << 60 // no word has it
	for _, x := range []struct {
		had, now uint64
		want     bool
	}{{0, 0, false}, {0, 7, false}, {7, 0, false}, {7, 7, false}, {7, 8, true}, {high + 7, high + 7, false}, {high + 7, high + 8, true}} {
		if got := writerWord(3, x.had).ofAnother(x.now); got != x.want {
			t.Errorf("word of incarnation %#x, now %#x: %v", x.had, x.now, got)
		}
	}
}
