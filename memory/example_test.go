package memory_test

import (
	"fmt"

	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/memory"
)

// A compute node formats a memory node, and two find the same memory by name.
func Example() {
	c := sim.New(sim.Config{})
	defer c.Close()
	mn := c.AddMN(1 << 20)
	for range 2 {
		p, _ := c.AddCN().Open()
		if err := memory.Format(p, mn, memory.Params{Size: 1 << 20, CapacityLog2: 3, VersionBits: 16}); err != nil {
			fmt.Println(err)
			return
		}
		r, err := memory.Open(p, mn)
		if err != nil {
			fmt.Println(err)
			return
		}
		e, created, err := r.Create(p, memory.Spec{Name: "counters", Kind: memory.KindMemory, Size: 4096})
		fmt.Println(e.Name, e.Addr, created, err)
	}
	// Output:
	// counters mn0+0x6800 true <nil>
	// counters mn0+0x6800 false <nil>
}
