package server_test

import (
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/server"
	"github.com/declock/declock/lock"
)

// Three clients queue at the server, whose worker takes 10 us for a request.
func Example() {
	c := sim.New(sim.Config{NIC: sim.Ideal()})
	defer c.Close()
	cfg := server.Config{Kind: server.Queue, ServiceNs: 10 * fabric.Microsecond}
	a := fabric.At(c.AddMN(1<<20), 4096)
	for i := range 3 {
		n := c.AddCN()
		c.GoAgent(n, func(fabric.Port) { _ = server.NewAgent(n, cfg).Run(nil) })
		c.Go(n, fmt.Sprint(i), func(p fabric.Port) {
			l := server.New(p, server.ServerOf(n), cfg)
			_ = p.Pause(fabric.Time(i) * fabric.Microsecond)
			var h lock.Hold
			if err := l.Acquire(&h, &lock.Request{Lock: a, Mode: lock.Exclusive}); err != nil {
				fmt.Println(err)
				return
			}
			fmt.Println("client", i, "token", h.Token, "after", p.Now()/fabric.Microsecond/10*10, "us, operations", p.Stats().Total())
			_ = p.Pause(p.Now() + 100*fabric.Microsecond)
			if err := l.Release(&h, nil); err != nil {
				fmt.Println(err)
			}
		})
	}
	c.Run()
	// Output:
	// client 0 token 1 after 10 us, operations 0
	// client 1 token 2 after 120 us, operations 0
	// client 2 token 3 after 230 us, operations 0
}
