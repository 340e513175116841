package tcp

import (
	"testing"

	"github.com/declock/declock/fabric/fabrictest"
	"github.com/declock/declock/fabric/internal/ram"
)

// Several lanes and workers, on a CPU without 16-byte atomics.
func TestConformanceLanes(t *testing.T) {
	if testing.Short() {
		t.Skip("TestConformance with one lane has been run")
	}
	defer func(has bool) { ram.HasAtomic16 = has }(ram.HasAtomic16)
	ram.HasAtomic16 = false
	fabrictest.Run(t, harness{change: func(o *Options) { o.Lanes, o.Workers = 3, 3 }})
}
