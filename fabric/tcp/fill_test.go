package tcp

import (
	"errors"
	"testing"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peertest"
)

// Memory that may not be used any more is not filled, and of memory of which that comes to be meanwhile the outcome is unknown.
func TestFillWithoutLeave(t *testing.T) {
	c := newLocalCluster(t, 1)
	defer c.Close()
	n := c.Nodes[0]
	p := peertest.Open(t, n).(*port)
	peertest.Await(t, "memory is lent", func() bool { return p.Fills(0) })
	l, a, calls := localOf(n, 0), fabric.At(0, 64), 0
	fill := func(meanwhile func()) (int, error) {
		return p.Fill(a, 4, func(dst []byte) int {
			calls++
			meanwhile()
			return copy(dst, "fill")
		})
	}
	if got, err := fill(func() {}); got != 4 || err != nil {
		t.Fatal(got, err)
	}
	until := l.control.until().Load()
	if got, err := fill(func() { l.control.until().Store(0) }); got != 4 || !errors.Is(err, fabric.ErrUnknownOutcome) || calls != 2 {
		t.Errorf("another may serve the number meanwhile: %d, %v, %d calls", got, err, calls)
	}
	l.control.until().Store(0)
	if got, err := fill(func() {}); got != 0 || !errors.Is(err, fabric.ErrUnsupported) || calls != 2 {
		t.Errorf("another may serve the number: %d, %v, %d calls", got, err, calls)
	}
	l.control.until().Store(until)
	l.control.revoked().Store(1)
	if got, err := fill(func() {}); got != 0 || !errors.Is(err, fabric.ErrUnsupported) || calls != 2 {
		t.Errorf("the leave was taken back: %d, %v, %d calls", got, err, calls)
	}
	remoteOf(n, 0).short.lose(nil)
	if got, err := fill(func() {}); p.Fills(0) || got != 0 || !errors.Is(err, fabric.ErrUnsupported) || calls != 2 {
		t.Errorf("the leave has ended: %d, %v, %d calls", got, err, calls)
	}
	if got := peertest.Do(t, p, fabric.Load(a))[0].Old; got != 'f'|'i'<<8|'l'<<16|'l'<<24 {
		t.Errorf("memory is %#x", got)
	}
}

// A memory node that shuts a compute node out waits until nothing of it fills its memory.
func TestFillIsAwaited(t *testing.T) {
	c := newLocalCluster(t, 2)
	defer c.Close()
	p := peertest.Open(t, c.Nodes[1]).(*port)
	peertest.Await(t, "memory is lent", func() bool { return p.Fills(0) })
	_, _ = p.Fill(fabric.At(0, 64), 4, func([]byte) int {
		c.shutOut(1)
		if time.Sleep(50 * time.Millisecond); c.isShutOut(1) {
			t.Error("the memory node has acknowledged while its memory is filled")
		}
		return 0
	})
	peertest.Await(t, "it is shut out", func() bool { return c.isShutOut(1) })
	calls := 0
	if _, err := p.Fill(fabric.At(0, 64), 4, func([]byte) int { calls++; return 0 }); err == nil || calls != 0 {
		t.Errorf("shut out: %v, %d calls", err, calls)
	}
}
