package shift_test

import (
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/shift"
	"github.com/declock/declock/lock"
)

// A writer and two readers, each alone: one operation to acquire, one to release.
func Example() {
	c := sim.New(sim.Config{NIC: sim.Ideal()})
	defer c.Close()
	a := fabric.At(c.AddMN(1<<20), 4096)
	n := c.AddCN()
	c.GoAgent(n, func(fabric.Port) { _ = shift.NewAgent(n, shift.Config{}).Run(nil) })
	c.Go(n, "client", func(p fabric.Port) {
		l := shift.New(p, n, shift.Config{})
		for _, m := range []lock.Mode{lock.Exclusive, lock.Shared, lock.Shared} {
			var h lock.Hold
			if err := l.Acquire(&h, &lock.Request{Lock: a, Mode: m}); err != nil {
				fmt.Println(err)
				return
			}
			if err := l.Release(&h, nil); err != nil {
				fmt.Println(err)
			}
			fmt.Println(m, "token", h.Token, "operations", p.Stats().Total())
		}
	})
	c.Run()
	// Output:
	// exclusive token 1 operations 2
	// shared token 1 operations 4
	// shared token 2 operations 6
}
