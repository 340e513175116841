package explore

import (
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
)

// One client sends to an agent, and later to an ID that was abandoned to that agent: another pair, whose message may overtake
// the first. Sleep sets must not take the two deliveries for one.
func TestMessagesToAbandonedIDsOvertake(t *testing.T) {
	for _, sleep := range []bool{false, true} {
		for _, states := range []bool{false, true} {
			seen, r := outcomes(t, Config{Sleep: sleep, NoStates: !states}, func(c *Cluster, end func(func() string)) {
				mn := c.AddMN(64)
				n1, n2, n3 := c.AddCN(), c.AddCN(), c.AddCN()
				p, _ := n1.Open()
				left := p.ID()
				_ = p.Abandon()
				order := ""
				c.GoAgent(n1, func(p fabric.Port) {
					for {
						m, err := p.Recv(fabric.Forever)
						if err != nil {
							return
						}
						order += fmt.Sprint(m.Body[0])
					}
				})
				c.Go(n2, "x", func(p fabric.Port) {
					p.Send(fabric.AgentOf(n1.ID()), &fabric.Message{Kind: 100, Body: [7]uint64{1}})
					p.Recv(fabric.Forever)
					p.Send(left, &fabric.Message{Kind: 100, Body: [7]uint64{2}})
				})
				c.Go(n3, "y", func(p fabric.Port) {
					p.Do([]fabric.Op{fabric.Store(fabric.At(mn, 0), 1)})
					p.Send(fabric.Client(n2.ID(), 1), &fabric.Message{Kind: 100})
				})
				c.HashWith(func() uint64 { return hashBytes([]byte(order)) })
				end(func() string { return order })
			})
			if len(seen) != 2 {
				t.Errorf("sleep %v, states %v: only %v; %v", sleep, states, seen, r)
			}
		}
	}
}
