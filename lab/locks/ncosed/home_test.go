package ncosed

import (
	"testing"

	"github.com/declock/declock/fabric"
)

// The agents of so many compute nodes are homes, each of the locks of a part of the memory nodes; without Homes the first is that of all.
func TestHomes(t *testing.T) {
	for homes, want := range map[int][]fabric.CNID{0: {3, 3, 3, 3}, 1: {3, 3, 3, 3}, 2: {3, 4, 3, 4}, 16: {3, 4, 5, 6}} {
		p := mailer{first: fabric.AgentOf(3), homes: homes}
		for mn, node := range want {
			if got := p.home(fabric.At(fabric.MemID(mn), 4096)); got != fabric.AgentOf(node) {
				t.Errorf("%d homes: %v is that of a lock of memory node %d, want %v", homes, got, mn, fabric.AgentOf(node))
			}
		}
	}
}
