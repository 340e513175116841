package shm

import (
	"errors"
	"os"
	"testing"

	"github.com/declock/declock/fabric"
)

// Fill calls nobody when the memory node has ended, the node was fenced or the port was closed, and says so when that comes to be while it fills.
func TestFillWithoutMemory(t *testing.T) {
	for what, x := range map[string]struct {
		end     func(o Options, s *MemoryServer, n *node)
		between error
	}{
		"memory node": {func(_ Options, s *MemoryServer, _ *node) { s.Close() }, fabric.ErrUnknownOutcome},
		"fenced": {func(o Options, _ *MemoryServer, n *node) {
			if err := os.Remove(n.c.cnPath(n.id)); err != nil {
				t.Fatal(err)
			}
			join(t, o)
		}, fabric.ErrFenced},
	} {
		o := Options{Name: "x", Dir: testDir(t)}
		s := serve(t, o)
		n := join(t, o)
		p := open(t, n).(*port)
		calls := 0
		got, err := p.Fill(fabric.At(0, 64), 8, func(dst []byte) int {
			calls++
			x.end(o, s, n)
			return copy(dst, "12345678")
		})
		if got != 8 || !errors.Is(err, x.between) {
			t.Errorf("%s ends while it fills: %d bytes, %v; want %v", what, got, err, x.between)
		}
		did := p.Do([]fabric.Op{fabric.Store(fabric.At(0, 64), 1)})
		got, err = p.Fill(fabric.At(0, 64), 8, func([]byte) int { calls++; return 8 })
		if calls != 1 || got != 0 || did == nil || err == nil || fabric.Executed(err, 1) != 0 {
			t.Errorf("%s has ended: %d calls, %d bytes, %v; Do: %v", what, calls, got, err, did)
		}
	}
}
