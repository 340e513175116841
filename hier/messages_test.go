package hier_test

import (
	"testing"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lock"
)

// A tally counts the messages about locks between compute nodes.
type tally struct{ n int }

func (c *tally) Observe(e *sim.Event) {
	if e.Step == sim.StepSend && e.Client.CN() != e.To.CN() {
		c.n++
	}
}

// What clients that wait for long send does not grow with the square of their number.
func TestMessagesOfWaiters(t *testing.T) {
	const held = fabric.Second
	for _, c := range []struct {
		name  string
		reset bool
		nodes int
		most  int // a second and node
	}{
		{"a holder holds", false, 48, 300},
		{"a reset waits for a holder", true, 24, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			var sent tally
			r := newRig(t, 1, c.nodes, "declock", cql.Layout{CapacityBits: 7, VersionBits: 10}, unsynced, simulated(sim.Config{Observer: &sent}))
			var w witness
			r.client(0, "holder", func(k *hier.Locker) { r.hold(k, &w, 0, lock.Exclusive, 0, held) })
			for cn := 1; cn < c.nodes; cn++ {
				r.client(cn, name(cn, 0), func(k *hier.Locker) { r.hold(k, &w, 0, lock.Mode(cn%2), 10*us, 0) })
			}
			if c.reset {
				r.c.Go(r.nodes[1], "asks", func(p fabric.Port) {
					_ = p.Pause(100 * us)
					r.askReset(1, p, 0, cql.Corruption)
				})
			}
			r.run()
			if n := sent.n / c.nodes; n > c.most {
				t.Errorf("%d messages of each of %d nodes, want %d at most", n, c.nodes, c.most)
			} else {
				t.Log(n)
			}
		})
	}
}
