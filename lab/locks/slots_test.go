package locks_test

import (
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks"
	"github.com/declock/declock/lock"
)

// All clients of a compute node hold 15 locks each at once, as in TPC-C, however many clients there are: FissLock has slots for them.
func TestFissSlots(t *testing.T) {
	const each = 15
	for _, clients := range []int{12, 13, 18, 40, 51, 52, 150} {
		m, err := locks.Lookup("fiss")
		if err != nil {
			t.Fatal(err)
		}
		sys, err := m.New(locks.Config{CNs: 1, Clients: clients})
		if err != nil {
			t.Fatal(err)
		}
		c := sim.New(sim.Config{})
		mn := c.AddMN(1 << 20)
		program, err := sys.Program()
		if err != nil {
			t.Fatalf("%d clients: %v", clients, err)
		}
		c.AddSwitch(program, sim.SwitchModel{Pass: 400, Packet: 1})
		n := c.AddCN()
		joined, err := sys.Join(n)
		if err != nil {
			t.Fatal(err)
		}
		c.GoAgent(n, func(fabric.Port) { _ = joined.Run(func(error) {}) })
		have := 0
		for k := range clients {
			c.Go(n, "client", func(p fabric.Port) {
				l, hold := joined.Locker(p), [each]lock.Hold{}
				for i := range hold {
					r := lock.Request{Lock: fabric.At(mn, uint64(4096+64*(k*each+i))), Mode: lock.Exclusive, Deadline: 5 * fabric.Millisecond}
					if l.Acquire(&hold[i], &r) != nil {
						return
					}
					have++
				}
				_ = p.Pause(fabric.Forever)
			})
		}
		if err := c.RunUntil(6 * fabric.Millisecond); err != nil {
			t.Error(err)
		}
		if c.Close(); have != clients*each {
			t.Errorf("%d clients hold %d locks of %d", clients, have, clients*each)
		}
	}
}
