package fabrictest

import (
	"bytes"

	"github.com/declock/declock/fabric"
)

var messageTests = []test{
	{name: "a message arrives whole, with its true sender", cns: 2, run: messageWhole},
	{name: "Send copies the message", cns: 2, run: sendCopies},
	{name: "messages reach the agent and come from it", cns: 2, run: messageAgent},
	{name: "a client may send to itself", solo: messageSelf},
	{name: "messages are FIFO per pair of clients, under load, and all arrive", cns: 3, run: messageFIFO},
	{name: "Send never blocks and loses nothing, however many messages are under way", cns: 2, run: messageFlood},
	{name: "a message to a client that does not exist is dropped", cns: 2, run: messageAbsent},
	{name: "a message to a node that does not exist: ErrNodeDown", solo: messageNoNode},
	{name: "a message comes after the effects of operations completed before it", cns: 2, run: func(e *env) { messageAfterEffects(e, 1) }},
	{name: "a message comes after operations of the same node too", run: func(e *env) { messageAfterEffects(e, 0) }},
}

func messageWhole(e *env) {
	senders := []*client{e.client(0), e.client(0), e.client(1)}
	r := e.client(0)
	body := [7]uint64{1, ^uint64(0), 1 << 63, 0, 0x0123456789abcdef, 5, 6}
	for i, s := range senders {
		e.run(s, func(c *client) {
			m := fabric.Message{From: 12345, Kind: fabric.MsgUser + fabric.MsgKind(i), Body: body}
			m.Body[3] = uint64(i)
			c.must(c.Send(r.ID(), &m), "Send")
		})
	}
	e.run(r, func(c *client) {
		var got [3]bool
		for range senders {
			m := c.recv()
			i := m.Kind - fabric.MsgUser
			want := body
			want[3] = uint64(i)
			if int(i) >= len(got) || got[i] || m.Body != want || m.From != senders[i].ID() {
				c.fatal("message %+v", m)
			}
			got[i] = true
		}
		c.quiet(fabric.Millisecond)
	})
}

func sendCopies(e *env) {
	s, local, remote := e.client(0), e.client(0), e.client(1)
	e.run(s, func(c *client) {
		m := fabric.Message{Kind: fabric.MsgUser}
		for i := range uint64(100) {
			for _, to := range []*client{local, remote} {
				m.Body[0] = i
				c.must(c.Send(to.ID(), &m), "Send")
				m.Body[0] = 99999
			}
		}
	})
	for _, r := range []*client{local, remote} {
		e.run(r, func(c *client) {
			for i := range uint64(100) {
				c.gets(i)
			}
		})
	}
}

func messageAgent(e *env) {
	local, remote, agent, other := e.client(0), e.client(1), e.agent(0), e.agent(1)
	if agent.ID() != fabric.AgentOf(e.cl.Node(0).ID()) || !agent.ID().IsAgent() {
		e.t.Fatalf("the agent's ID is %v", agent.ID())
	}
	for _, s := range []*client{local, remote, other} {
		e.run(s, func(c *client) {
			c.send(agent.ID(), 10)
			if m := c.recv(); m.Body[0] != 11 || m.From != agent.ID() {
				c.fatal("the agent's answer is %+v", m)
			}
		})
	}
	e.run(agent, func(c *client) {
		for range 3 {
			m := c.recv()
			c.send(m.From, m.Body[0]+1)
		}
	})
}

func messageSelf(c *client) {
	for i := range uint64(50) {
		c.send(c.ID(), i)
		c.send(c.ID(), i+1)
		for k := range uint64(2) {
			if m := c.recv(); m.Body[0] != i+k || m.From != c.ID() {
				c.fatal("message to myself is %+v, want %d", m, i+k)
			}
		}
	}
}

func messageFIFO(e *env) {
	const each = 500
	r := e.client(0)
	senders := e.crowd(3, 8, func(c *client, k int) {
		for i := range uint64(each) {
			c.send(r.ID(), i, ^i)
			if k%2 == 0 && i%10 == 9 {
				c.pause(5 * fabric.Microsecond)
			}
		}
	})
	e.run(r, func(c *client) {
		next := map[fabric.ClientID]uint64{}
		for range each * senders {
			m := c.recv()
			if m.Body[0] != next[m.From] || m.Body[1] != ^m.Body[0] {
				c.fatal("message %d from %v, want %d", m.Body[0], m.From, next[m.From])
			}
			next[m.From]++
		}
		c.quiet(fabric.Millisecond)
	})
}

// messageFlood: both send all that they have before either receives, so that
// a Send which waited for room would wait for ever.
func messageFlood(e *env) {
	const each = 20_000
	pair := []*client{e.client(0), e.client(1)}
	for i, s := range pair {
		e.run(s, func(c *client) {
			to := pair[1-i].ID()
			for k := range uint64(each) {
				c.send(to, k)
			}
			c.store(fabric.At(0, uint64(64+8*i)), 1)
			c.until(fabric.At(0, uint64(64+8*(1-i))), 1)
			for k := range uint64(each) {
				c.gets(k)
			}
		})
	}
}

func messageAbsent(e *env) {
	s, r := e.client(0), e.client(1)
	gone := e.client(1)
	goneID := gone.ID()
	if err := gone.Close(); err != nil {
		e.t.Fatal(err)
	}
	e.run(s, func(c *client) {
		for _, to := range []fabric.ClientID{fabric.Client(e.cl.Node(1).ID(), fabric.MaxClientIndex),
			fabric.Client(e.cl.Node(0).ID(), fabric.MaxClientIndex), goneID} {
			c.send(to, 1)
		}
		c.send(r.ID(), 2)
	})
	e.run(r, func(c *client) {
		c.gets(2)
		c.quiet(fabric.Millisecond)
	})
}

func messageNoNode(c *client) {
	for _, cn := range []fabric.CNID{0, fabric.MaxCN} {
		c.fails(c.Send(fabric.Client(cn, 1), &fabric.Message{Kind: fabric.MsgUser}), fabric.ErrNodeDown, "Send to a client of %v", cn)
	}
	c.send(c.ID(), 1)
	c.recv()
}

func messageAfterEffects(e *env, node int) {
	const rounds, size = 300, 512
	w, r := e.client(0), e.client(node)
	data := fabric.At(0, 8192)
	e.run(w, func(c *client) {
		buf := c.Alloc(size)
		for k := uint64(1); k <= rounds; k++ {
			for i := range buf {
				buf[i] = byte(k)
			}
			c.do(fabric.Write(data, buf))
			c.do(fabric.FAA(data-8, 1))
			c.send(r.ID(), k)
			c.recv()
		}
	})
	e.run(r, func(c *client) {
		buf := c.Alloc(size)
		for k := uint64(1); k <= rounds; k++ {
			m := c.recv()
			ops := c.do(fabric.Load(data-8), fabric.Read(data, buf))
			if m.Body[0] != k || ops[0].Old != k {
				c.fatal("message %d, counter %d, want %d", m.Body[0], ops[0].Old, k)
			}
			if bytes.Count(buf, []byte{byte(k)}) != size {
				c.fatal("round %d: READ returned % x", k, buf)
			}
			c.send(m.From, k)
		}
	})
}
