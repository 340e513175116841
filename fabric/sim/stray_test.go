package sim

import (
	"testing"

	"github.com/declock/declock/fabric"
)

// With Config.Stray messages keep their order between two clients, and overtake each other between two nodes; without,
// they keep it there too.
func TestStrayingMessagesKeepTheOrderOfTheirClients(t *testing.T) {
	const rounds = 200
	for _, stray := range []fabric.Time{0, 20 * fabric.Microsecond} {
		c := New(Config{Seed: 1, Stray: stray})
		from, to := c.AddCN(), c.AddCN()
		sent, overtaken := uint64(0), 0
		c.Go(to, "receiver", func(p fabric.Port) {
			var last [3]uint64 // by sender, and of all
			for range 2 * rounds {
				m, err := p.Recv(fabric.Forever)
				if err != nil {
					t.Error(err)
					return
				}
				if who := m.From.Index() - 1; m.Body[0] <= last[who] {
					t.Errorf("stray %d: message %d of %v comes after %d", stray, m.Body[0], m.From, last[who])
				} else {
					last[who] = m.Body[0]
				}
				if m.Body[0] < last[2] {
					overtaken++
				}
				last[2] = max(last[2], m.Body[0])
			}
		})
		for range 2 {
			c.Go(from, "sender", func(p fabric.Port) {
				for range rounds {
					sent++
					if err := p.Send(fabric.Client(to.ID(), 1), &fabric.Message{Kind: fabric.MsgUser, Body: [7]uint64{sent}}); err != nil {
						t.Error(err)
					}
					_ = p.Pause(p.Now() + 500)
				}
			})
		}
		if err := c.Run(); err != nil {
			t.Error(err)
		}
		if (overtaken > 0) != (stray > 0) {
			t.Errorf("stray %d: %d of %d messages were overtaken", stray, overtaken, 2*rounds)
		}
		c.Close()
	}
}
