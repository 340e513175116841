package slab

import (
	"sync"
	"sync/atomic"
	"testing"
)

// That there was no room for a small run at a stamp is not said of another stamp, at which there was none for a large one, while clients of the compute node note both.
func TestNoRoomIsOfItsStamp(t *testing.T) {
	const small, large = 1 << 10, 1 << 20
	var n noRoom
	var over atomic.Bool
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for stamp := uint64(2); !over.Load(); {
				if last := n.last.Load(); last != nil {
					stamp = last.stamp &^ 1
				}
				if n.has(stamp, small) || n.has(stamp+2, small) {
					t.Error("a small run is refused at a stamp at which there was no room for a large one")
					return
				}
			}
		})
	}
	for stamp := uint64(1); stamp < 200_000; stamp++ {
		if stamp%2 == 1 {
			n.note(stamp, small)
		} else {
			n.note(stamp, large)
		}
	}
	over.Store(true)
	readers.Wait()
	if n.note(9, large); !n.has(9, large) || n.has(9, small) || n.has(8, large) {
		t.Error("what is noted is not there")
	}
	if n.note(9, small); !n.has(9, small) {
		t.Error("a smaller size does not take the place of a larger one")
	}
	if n.note(9, large); !n.has(9, small) {
		t.Error("a larger size takes the place of a smaller one")
	}
}
