package explore

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/declock/declock/fabric"
)

// A link is cut at every point, also never: what was sent over it arrives up to there, in order, and nothing after. Messages over other links arrive.
func TestLinkIsCutAtEveryPoint(t *testing.T) {
	for _, both := range []bool{false, true} {
		for _, slow := range []bool{false, true} {
			ends := map[string]bool{}
			r := Explore(Config{Actions: 1, NoEager: slow, FairPolls: true}, func(c *Cluster) {
				c.AddMN(4096)
				a, b, other := c.AddCN(), c.AddCN(), c.AddCN()
				id, back := fabric.Client(b.ID(), 1), fabric.Client(a.ID(), 1)
				got := ""
				c.HashWith(func() uint64 { return hashBytes([]byte(got)) })
				send := func(p fabric.Port, to fabric.ClientID, kind fabric.MsgKind) {
					if err := p.Send(to, &fabric.Message{Kind: kind}); err != nil {
						panic(err)
					}
				}
				c.Go(a, "sends", func(p fabric.Port) {
					send(p, id, fabric.MsgUser+1)
					send(p, id, fabric.MsgUser+2)
					if _, err := p.Recv(fabric.Millisecond); err == nil {
						got += "a"
					}
				})
				c.Go(b, "receives", func(p fabric.Port) {
					send(p, back, fabric.MsgUser)
					for {
						m, err := p.Recv(fabric.Millisecond)
						if err != nil {
							return
						}
						got += fmt.Sprint(m.Kind - fabric.MsgUser)
					}
				})
				c.Go(other, "sends, too", func(p fabric.Port) { send(p, id, fabric.MsgUser+3) })
				c.SometimeCut(a, b, both, nil)
				c.AtEnd(func() error {
					text := []byte(got)
					slices.Sort(text)
					ends[string(text)] = true
					return nil
				})
			})
			want := []string{"123a", "13a", "3a"}
			if both {
				want = []string{"123", "123a", "13", "13a", "3", "3a"}
			}
			if all := slices.Sorted(maps.Keys(ends)); !r.Exhaustive || !slices.Equal(all, want) {
				t.Errorf("both ways %v, each step a choice %v: ends with %v, want %v: %v", both, slow, all, want, r)
			}
		}
	}
}
