package background

import (
	"testing"
	"time"
)

// A call that does not end keeps a caller only for its bound, which gets the result before; the next caller waits for the same call.
func TestLookIsBounded(t *testing.T) {
	var l Look[int]
	if got, ended := l.Get(time.Minute, func() int { return 1 }); got != 1 || !ended {
		t.Errorf("%d, ended %v", got, ended)
	}
	goOn := make(chan struct{})
	if got, ended := l.Get(time.Millisecond, func() int { <-goOn; return 2 }); got != 1 || ended {
		t.Errorf("meanwhile %d, ended %v", got, ended)
	}
	close(goOn)
	l.Wait()
	if got, ended := l.Get(time.Minute, func() int { return 3 }); got != 3 || !ended {
		t.Errorf("%d, ended %v", got, ended)
	}
}
