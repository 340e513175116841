package mcs

import (
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lock"
)

// An agent takes over the tickets that clients of its node abandon, not those of others; and forgets
// messages to tickets that are not abandoned.
func TestAgentAndStrayMessages(t *testing.T) {
	c := sim.New(sim.Config{NIC: sim.Ideal()})
	defer c.Close()
	a := fabric.At(c.AddMN(1<<20), 4096)
	home, away := c.AddCN(), c.AddCN()
	agent := NewAgent(home, Config{})
	c.GoAgent(home, func(fabric.Port) {
		if err := agent.Run(func(err error) { t.Error(err) }); err != nil {
			t.Error(err)
		}
	})
	var holder fabric.ClientID
	c.Go(home, "holder", func(p fabric.Port) {
		l := New(p, Config{})
		var h lock.Hold
		if err := l.Acquire(&h, &lock.Request{Lock: a, Mode: lock.Exclusive}); err != nil {
			t.Error(err)
		}
		holder = p.ID()
		_ = p.Pause(2 * earlyNs)
		if err := l.Release(&h, nil); err != nil {
			t.Error(err)
		}
	})
	c.Go(away, "stray", func(p fabric.Port) {
		_ = p.Pause(100 * fabric.Microsecond)
		m := fabric.Message{Kind: msgAbandoned, Body: [7]uint64{uint64(a), uint64(holder), 0, 1, 0, 1}}
		_ = p.Send(fabric.AgentOf(home.ID()), &m)
		for i := range uint64(100) {
			m := fabric.Message{Kind: msgSuccessor, Body: [7]uint64{uint64(a) + 64*i, uint64(holder)}}
			_ = p.Send(fabric.AgentOf(home.ID()), &m)
			m.Body[1] = uint64(p.ID()) // a client of another node
			_ = p.Send(fabric.AgentOf(home.ID()), &m)
		}
		_ = p.Pause(fabric.Millisecond)
		if Tail(c.PeekWord(a)) != holder {
			t.Errorf("a stranger has freed a lock: %#x", c.PeekWord(a))
		}
		if n := len(agent.Tickets); n != 100 {
			t.Errorf("%d tickets after 100 messages to a client of the node", n)
		}
		_ = p.Pause(earlyNs + fabric.Second)
		if n := len(agent.Tickets); n != 0 {
			t.Errorf("%d tickets are kept for ever", n)
		}
	})
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
}
