package sim_test

import (
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
)

// Two clients on two compute nodes count on one word, and one tells the other.
func Example() {
	c := sim.New(sim.Config{Seed: 1, NIC: sim.Ideal()})
	defer c.Close()
	mn := c.AddMN(1 << 20)
	counter := fabric.At(mn, 64)

	var waiter fabric.ClientID
	c.Go(c.AddCN(), "waiter", func(p fabric.Port) {
		waiter = p.ID()
		m, err := p.Recv(fabric.Forever)
		fmt.Println(m.From, "says", m.Body[0], err, "at", p.Now(), "ns")
	})
	c.Go(c.AddCN(), "counter", func(p fabric.Port) {
		ops := []fabric.Op{fabric.FAA(counter, 41), fabric.FAA(counter, 1), fabric.Load(counter)}
		if err := p.Do(ops); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("counted to", ops[2].Old, "at", p.Now(), "ns")
		p.Send(waiter, &fabric.Message{Kind: fabric.MsgUser, Body: [7]uint64{ops[2].Old}})
	})
	if err := c.Run(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// counted to 42 at 2051 ns
	// cn2/1 says 42 <nil> at 3701 ns
}
