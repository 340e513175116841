package explore

import (
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
)

// Of clients that differ by their names only, exploration tries one order of first steps; what goes wrong in
// any is found all the same, up to names.
func TestInOrderDividesSchedules(t *testing.T) {
	word := fabric.At(0, 64)
	program := func(ordered, sameNode, broken bool) func(*Cluster) {
		return func(c *Cluster) {
			c.AddMN(4096)
			var tasks []*sim.Task
			inside := 0
			n := c.AddCN()
			for i := range 3 {
				if i > 0 && !sameNode {
					n = c.AddCN()
				}
				tasks = append(tasks, c.Go(n, fmt.Sprint(i), func(p fabric.Port) {
					op := []fabric.Op{fabric.FAA(word, 1)}
					p.Do(op)
					if ticket := op[0].Old; ticket == 0 || broken && ticket == 2 {
						inside++
						p.Do([]fabric.Op{fabric.Store(word+8, ticket)})
						if inside > 1 {
							c.Fail(fmt.Errorf("%d inside", inside))
						}
						inside--
					}
				}))
			}
			if ordered {
				c.InOrder(tasks...)
			}
		}
	}
	for _, sameNode := range []bool{false, true} {
		all := Explore(Config{NoStates: true}, program(false, sameNode, false))
		some := Explore(Config{NoStates: true}, program(true, sameNode, false))
		if !all.Exhaustive || !some.Exhaustive || some.Schedules*3 > all.Schedules {
			t.Errorf("one node %v: %d schedules, in order %d", sameNode, all.Schedules, some.Schedules)
		}
		if r := Explore(Config{NoStates: true}, program(true, sameNode, true)); r.Failure == nil {
			t.Errorf("one node %v: the bug is not found", sameNode)
		}
	}
}
