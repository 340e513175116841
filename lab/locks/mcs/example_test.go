package mcs_test

import (
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/mcs"
	"github.com/declock/declock/lock"
)

// Two clients queue; the first hands the lock to the second by a message.
func Example() {
	c := sim.New(sim.Config{NIC: sim.Ideal()})
	defer c.Close()
	a := fabric.At(c.AddMN(1<<20), 4096)
	for i := range 2 {
		n := c.AddCN()
		c.GoAgent(n, func(fabric.Port) { _ = mcs.NewAgent(n, mcs.Config{}).Run(nil) })
		c.Go(n, fmt.Sprint(i), func(p fabric.Port) {
			l := mcs.New(p, mcs.Config{})
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
			fmt.Println("client", i, "token", h.Token, "operations", p.Stats().Total(), "messages", p.Stats().Sent)
		})
	}
	c.Run()
	// Output:
	// client 0 token 1 operations 2 messages 1
	// client 1 token 2 operations 4 messages 1
}
