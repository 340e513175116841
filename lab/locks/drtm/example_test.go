package drtm_test

import (
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/drtm"
	"github.com/declock/declock/lock"
)

// A reader is done after 10 us; the writer waits until the lease has expired, all the same.
func Example() {
	c := sim.New(sim.Config{NIC: sim.Ideal()})
	defer c.Close()
	a := fabric.At(c.AddMN(1<<20), 4096)
	for mode := lock.Shared; mode <= lock.Exclusive; mode++ {
		n := c.AddCN()
		c.Go(n, mode.String(), func(p fabric.Port) {
			l := drtm.New(p, n, drtm.Config{})
			_ = p.Pause(fabric.Time(mode) * fabric.Microsecond)
			var h lock.Hold
			if err := l.Acquire(&h, &lock.Request{Lock: a, Mode: mode}); err != nil {
				fmt.Println(err)
				return
			}
			granted := p.Now()
			_ = p.Pause(granted + 10*fabric.Microsecond)
			if err := l.Release(&h, nil); err != nil {
				fmt.Println(err)
			}
			fmt.Println(mode, "granted at", granted/(10*fabric.Microsecond)*10, "us, token", h.Token)
		})
	}
	c.Run()
	// Output:
	// shared granted at 0 us, token 0
	// exclusive granted at 1050 us, token 2
}
