package rmarw_test

import (
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/rmarw"
	"github.com/declock/declock/lock"
)

// A reader comes while the first of two writers holds the lock: it backs out, and gets the lock when both are done.
func Example() {
	c := sim.New(sim.Config{NIC: sim.Ideal()})
	defer c.Close()
	a := fabric.At(c.AddMN(1<<20), 4096)
	for i, mode := range []lock.Mode{lock.Exclusive, lock.Exclusive, lock.Shared} {
		n := c.AddCN()
		c.GoAgent(n, func(fabric.Port) { _ = rmarw.NewAgent(n, rmarw.Config{}).Run(nil) })
		c.Go(n, fmt.Sprint(i), func(p fabric.Port) {
			l := rmarw.New(p, rmarw.Config{})
			_ = p.Pause(fabric.Time(i) * 20 * fabric.Microsecond)
			var h lock.Hold
			if err := l.Acquire(&h, &lock.Request{Lock: a, Mode: mode}); err != nil {
				fmt.Println(err)
				return
			}
			fmt.Println(mode, "token", h.Token)
			_ = p.Pause(p.Now() + 50*fabric.Microsecond)
			if err := l.Release(&h, nil); err != nil {
				fmt.Println(err)
			}
		})
	}
	c.Run()
	// Output:
	// exclusive token 1
	// exclusive token 2
	// shared token 2
}
