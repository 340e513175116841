package drtm_test

import (
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/drtm"
	"github.com/declock/declock/lock"
)

const ms = fabric.Millisecond

// wants adds a node whose client wants the lock exclusively at a time (0: never), and has it for a while. granted is the time of the grant, 0: there is none.
func wants(t *testing.T, c *sim.Cluster, l fabric.Addr, holders *int, at, holds fabric.Time) (n *sim.Node, granted *fabric.Time) {
	n, granted = c.AddCN(), new(fabric.Time)
	c.Go(n, "client", func(p fabric.Port) {
		d, h := drtm.New(p, n, drtm.Config{}), lock.Hold{}
		if at == 0 || p.Pause(at) != nil || d.Acquire(&h, &lock.Request{Lock: l, Mode: lock.Exclusive, Deadline: 40 * ms}) != nil {
			return
		}
		if *granted, *holders = p.Now(), *holders+1; *holders > 1 {
			t.Error("two hold the lock")
		}
		if p.Pause(p.Now()+holds) != nil {
			return // it has gone
		}
		*holders--
		if err := d.Release(&h, nil); err != nil {
			t.Error(err)
		}
	})
	return n, granted
}

// A node that holds the lock dies, and another joins in its number: others get the lock, and the new one, if it wants it; its hold is its own.
func TestNumberIsAnothers(t *testing.T) {
	for _, wish := range []fabric.Time{0, 7 * ms} {
		for seed := range uint64(10) {
			c := sim.New(sim.Config{NewsDelay: 300 * us, Seed: seed})
			l, holders := fabric.At(c.AddMN(1<<20), 4096), 0
			_, next := wants(t, c, l, &holders, 8*ms, ms)
			old, first := wants(t, c, l, &holders, us, fabric.Second)
			own := new(fabric.Time)
			c.At(5*ms, func() { holders--; _ = old.Fail() })
			c.At(6*ms, func() {
				var n *sim.Node
				if n, own = wants(t, c, l, &holders, wish, 5*ms); n.ID() != old.ID() {
					t.Errorf("%v is %v, and not in the number of %v", n, n.ID(), old.ID())
				}
			})
			if err := c.RunUntil(50 * ms); err != nil {
				t.Error(err)
			}
			if *first == 0 || *next == 0 || wish > 0 && (*own == 0 || *next < 12*ms) {
				t.Errorf("seed %d: granted at %d, %d and %d us", seed, *first/us, *own/us, *next/us)
			}
			_ = c.Close()
		}
	}
}
