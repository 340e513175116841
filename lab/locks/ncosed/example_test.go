package ncosed_test

import (
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/ncosed"
	"github.com/declock/declock/lock"
)

// A reader and a writer queue at a writer, in this order: the reader is granted by it, the next writer by the home.
func Example() {
	c := sim.New(sim.Config{NIC: sim.Ideal()})
	defer c.Close()
	a := fabric.At(c.AddMN(1<<20), 4096)
	for i, mode := range []lock.Mode{lock.Exclusive, lock.Shared, lock.Exclusive} {
		n := c.AddCN()
		c.GoAgent(n, func(fabric.Port) { _ = ncosed.NewAgent(n, ncosed.HomeOf(n), ncosed.Config{}).Run(nil) })
		c.Go(n, fmt.Sprint(i), func(p fabric.Port) {
			l := ncosed.New(p, ncosed.HomeOf(n), ncosed.Config{})
			_ = p.Pause(fabric.Time(i) * 10 * fabric.Microsecond)
			var h lock.Hold
			if err := l.Acquire(&h, &lock.Request{Lock: a, Mode: mode}); err != nil {
				fmt.Println(err)
				return
			}
			fmt.Println("client", i, mode, "messages", p.Stats().Sent+p.Stats().SentLocal)
			_ = p.Pause(p.Now() + 50*fabric.Microsecond)
			if err := l.Release(&h, nil); err != nil {
				fmt.Println(err)
			}
		})
	}
	c.Run()
	// Output:
	// client 0 exclusive messages 0
	// client 1 shared messages 1
	// client 2 exclusive messages 1
}
