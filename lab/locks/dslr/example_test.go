package dslr_test

import (
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/dslr"
	"github.com/declock/declock/lock"
)

// Two clients draw tickets; the second polls until the first has left.
func Example() {
	c := sim.New(sim.Config{NIC: sim.Ideal()})
	defer c.Close()
	a := fabric.At(c.AddMN(1<<20), 4096)
	for i := range 2 {
		c.Go(c.AddCN(), fmt.Sprint(i), func(p fabric.Port) {
			l := dslr.New(p, dslr.Config{})
			_ = p.Pause(fabric.Time(i) * fabric.Microsecond)
			var h lock.Hold
			if err := l.Acquire(&h, &lock.Request{Lock: a, Mode: lock.Exclusive}); err != nil {
				fmt.Println(err)
				return
			}
			fmt.Println("client", i, "token", h.Token)
			if err := l.Release(&h, nil); err != nil {
				fmt.Println(err)
			}
		})
	}
	c.Run()
	fmt.Println(dslr.Counters(c.PeekWord(a)))
	// Output:
	// client 0 token 1
	// client 1 token 3
	// 2 0 2 0
}
