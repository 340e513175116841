package fabrictest

import (
	"github.com/declock/declock/fabric"
)

var abandonTests = []test{
	{name: "Abandon gives a new ID and leaves the old inbox to the agent, in order", cns: 2, run: abandonOrder},
	{name: "the new ID works at once", cns: 2, run: abandonNewID},
	{name: "no message is lost or turned around when Abandon meets a flood", cns: 2, run: abandonFlood},
	{name: "retired IDs can be used again: Abandon and Retire go on for ever", run: abandonRetire},
	{name: "closed IDs can be used again: Open and Close go on for ever", run: openClose},
}

func abandonOrder(e *env) {
	c0, s, agent := e.client(0), e.client(1), e.agent(0)
	old := c0.ID()
	gone := fabric.At(0, 64)
	e.run(s, func(c *client) {
		for i := range uint64(10) {
			c.send(old, i)
		}
		c.send(c0.ID()) // now ten are there
		c.until(gone, 1)
		for i := uint64(10); i < 20; i++ {
			c.send(old, i)
		}
	})
	e.run(c0, func(c *client) {
		// Take one, leave nine and the word that they are there.
		c.gets(0)
		c.pause(5 * fabric.Millisecond)
		c.must(c.Abandon(), "Abandon")
		if c.ID() == old || c.ID().CN() != old.CN() || c.ID().IsAgent() {
			c.fatal("the ID after Abandon is %v, before %v", c.ID(), old)
		}
		c.store(gone, 1)
		c.quiet(2 * fabric.Millisecond)
	})
	e.run(agent, func(c *client) {
		for i := uint64(1); i < 20; i++ {
			m := c.recv()
			if i == 10 {
				m = c.recv() // the one without a number
			}
			if m.Body[0] != i || m.From != s.ID() {
				c.fatal("the agent got %+v, want %d", m, i)
			}
		}
		e.cl.Node(0).Retire(old)
	})
}

func abandonNewID(e *env) {
	c0, s := e.client(0), e.client(1)
	e.run(c0, func(c *client) {
		for i := range uint64(20) {
			c.must(c.Abandon(), "Abandon")
			c.send(s.ID(), i)
			if m := c.recv(); m.Body[0] != i+1 || m.From != s.ID() {
				c.fatal("answer to my new ID: %+v", m)
			}
			c.do(fabric.FAA(fabric.At(0, 64), 1))
		}
	})
	e.run(s, func(c *client) {
		seen := map[fabric.ClientID]bool{}
		for range 20 {
			m := c.recv()
			if seen[m.From] {
				c.fatal("%v came twice, and is not retired", m.From)
			}
			seen[m.From] = true
			c.send(m.From, m.Body[0]+1)
		}
	})
}

// abandonFlood: what the client got and what the agent got are together what was sent, in order.
func abandonFlood(e *env) {
	const each, take = 2000, 137
	c0, agent := e.client(0), e.agent(0)
	old := c0.ID()
	senders := []*client{e.client(0), e.client(1)}
	for _, s := range senders {
		e.run(s, func(c *client) {
			for i := range uint64(each) {
				c.send(old, i)
			}
		})
	}
	next := map[fabric.ClientID]uint64{}
	handed := fabric.At(0, 64)
	check := func(c *client, m fabric.Message) {
		if m.Body[0] != next[m.From] {
			c.fatal("message %d from %v, want %d", m.Body[0], m.From, next[m.From])
		}
		next[m.From]++
	}
	e.run(c0, func(c *client) {
		for range take {
			check(c, c.recv())
		}
		c.must(c.Abandon(), "Abandon")
		c.send(agent.ID(), ^uint64(0))
		c.store(handed, 1)
	})
	e.run(agent, func(c *client) {
		c.until(handed, 1) // next is ours from now on
		delete(next, c0.ID())
		for left := each*len(senders) - take; left > 0; left-- {
			m := c.recv()
			for m.Body[0] == ^uint64(0) {
				m = c.recv()
			}
			check(c, m)
		}
	})
}

func abandonRetire(e *env) {
	agent := e.agent(0)
	const rounds = fabric.MaxClientIndex + 500
	e.run(e.client(0), func(c *client) {
		for range rounds {
			old := c.ID()
			c.must(c.Abandon(), "Abandon")
			c.send(old, uint64(old)) // goes to the agent, which retires it
			c.recv()
		}
	})
	e.run(agent, func(c *client) {
		for range rounds {
			m := c.recv()
			e.cl.Node(0).Retire(fabric.ClientID(m.Body[0]))
			c.send(m.From, 1)
		}
	})
}

func openClose(e *env) {
	for i := range fabric.MaxClientIndex + 100 {
		p, err := e.cl.Node(0).Open()
		if err != nil {
			e.t.Fatalf("Open %d: %v", i, err)
		}
		if err := p.Close(); err != nil {
			e.t.Fatalf("Close %d: %v", i, err)
		}
	}
}
