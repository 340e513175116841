package server

import (
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// A grant to the client that had the number before is none to this one, whose acquisition has the same number. (On shared memory and over TCP a server may get the request of a node before it looks at the view that has it.)
func TestGrantToAnotherIncarnation(t *testing.T) {
	l, h := Locker{Incarnation: 2}, lock.Hold{Lock: 64, Word: 1}
	for incarnation := range uint64(3) {
		m := fabric.Message{Kind: msgGranted, Body: [7]uint64{64, 1, 4: incarnation}}
		if got := l.answers(&m, &h); got != (incarnation == 2) {
			t.Errorf("a grant to incarnation %d is one to incarnation 2: %v", incarnation, got)
		}
	}
}
