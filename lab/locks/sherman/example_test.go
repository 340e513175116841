package sherman_test

import (
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/cas"
	"github.com/declock/declock/lab/locks/sherman"
	"github.com/declock/declock/lock"
)

// Two clients of one compute node: the lock goes from one to the other without an operation on the memory node.
func Example() {
	c := sim.New(sim.Config{NIC: sim.Ideal()})
	defer c.Close()
	a := fabric.At(c.AddMN(1<<20), 4096)
	n := c.AddCN()
	table := sherman.NewTable(sherman.DefaultBound)
	for i := range 2 {
		c.Go(n, fmt.Sprint(i), func(p fabric.Port) {
			l := sherman.New(table, cas.New(p, cas.Config{Plain: true}))
			_ = p.Pause(fabric.Time(i) * fabric.Microsecond)
			var h lock.Hold
			if err := l.Acquire(&h, &lock.Request{Lock: a, Mode: lock.Exclusive}); err != nil {
				fmt.Println(err)
				return
			}
			_ = p.Pause(p.Now() + 10*fabric.Microsecond)
			if err := l.Release(&h, nil); err != nil {
				fmt.Println(err)
			}
			fmt.Println("client", i, "operations", p.Stats().Total())
		})
	}
	c.Run()
	// Output:
	// client 0 operations 1
	// client 1 operations 1
}
