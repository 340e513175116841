package cas_test

import (
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/cas"
	"github.com/declock/declock/lock"
)

// A client adds to a word under a lock: one round trip to lock and read, one
// to write and unlock.
func Example() {
	c := sim.New(sim.Config{})
	defer c.Close()
	mn := c.AddMN(1 << 20)
	lockAddr, data := fabric.At(mn, 4096), fabric.At(mn, 8192)

	c.Go(c.AddCN(), "client", func(p fabric.Port) {
		l := cas.New(p, cas.Config{})
		var h lock.Hold
		reads := []fabric.Op{fabric.Load(data)}
		if err := l.Acquire(&h, &lock.Request{Lock: lockAddr, Mode: lock.Exclusive, Reads: reads}); err != nil {
			fmt.Println(err)
			return
		}
		if err := l.Release(&h, []fabric.Op{fabric.Store(data, reads[0].Old+5)}); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("token", h.Token, "chains", p.Stats().Chains)
	})
	c.Run()
	fmt.Println("data", c.PeekWord(data))
	// Output:
	// token 1 chains 2
	// data 5
}
