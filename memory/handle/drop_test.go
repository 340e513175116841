package handle

import (
	"testing"

	"github.com/declock/declock/memory/reclaim"
)

type flag bool

func (f *flag) Busy() bool { return bool(*f) }

// A store is not let go while a client is at an operation, whether or not it takes blocks.
func TestIdle(t *testing.T) {
	var g letting
	m, mine, theirs := new(reclaim.Member), flag(true), new(flag)
	g.add(m)
	own, other := &reclaim.User{Use: &mine}, &reclaim.User{Use: theirs}
	m.Add(own)
	m.Add(other)
	own.Enter()
	if !g.idle(own) {
		t.Error("the node that asks is counted")
	}
	for _, x := range []struct{ begin, end func() }{{func() { *theirs = true }, func() { *theirs = false }}, {other.Enter, other.Exit}} {
		x.begin()
		if g.idle(own) {
			t.Error("idle while an operation is under way")
		}
		x.end()
		if !g.idle(own) {
			t.Error("not idle after it")
		}
	}
}
