package fabrictest

import (
	"testing"

	"github.com/declock/declock/fabric"
)

var costTests = []test{
	{name: "Do allocates nothing", needs: needCost, solo: costDo},
	{name: "Post and Wait allocate nothing", needs: needCost, solo: costPost},
	{name: "Send and Recv on one node allocate nothing", needs: needCost, run: func(e *env) { costMessages(e, 0) }},
	{name: "Send and Recv between nodes allocate nothing", cns: 2, needs: needCost, run: func(e *env) { costMessages(e, 1) }},
	{name: "Alloc and Free of one size allocate nothing", needs: needCost, solo: costAlloc},
}

// free checks that f allocates nothing. What the first runs set up is not counted.
func (c *client) free(what string, f func()) {
	c.t.Helper()
	for range 200 {
		f()
	}
	if n := testing.AllocsPerRun(200, f); n >= 1 {
		c.fatal("%s allocates %v times", what, n)
	}
}

func needCost(e *env) {
	if RaceEnabled {
		e.t.Skip("the race detector allocates")
	}
	if a, ok := e.cl.(Allocator); ok {
		e.t.Skip(a.Allocates())
	}
}

func costDo(c *client) {
	a := fabric.At(0, 64)
	buf := c.Alloc(256)
	ops := make([]fabric.Op, 4)
	c.free("Do", func() {
		ops[0], ops[1], ops[2], ops[3] = fabric.FAA(a, 1), fabric.Read(a, buf), fabric.Write(a, buf), fabric.CAS(a, 0, 1)
		c.must(c.Do(ops), "Do")
		c.must(c.Do(ops[:1]), "Do")
	})
}

func costPost(c *client) {
	a := fabric.At(0, 64)
	ops := make([]fabric.Op, 2)
	c.free("Post", func() {
		ops[0], ops[1] = fabric.FAA(a, 1), fabric.Store(a+8, 1)
		p, q := c.post(ops[:1]...), c.post(ops[1:]...)
		c.wait(p)
		c.wait(q)
	})
}

// costMessages sends messages from a client to one of a node, and back.
func costMessages(e *env, node int) {
	a, b := e.client(0), e.client(node)
	e.run(a, func(c *client) {
		m := &fabric.Message{Kind: fabric.MsgUser}
		c.free("Send and Recv", func() {
			c.must(c.Send(b.ID(), m), "Send")
			_, err := c.Recv(c.Now() + patience)
			c.must(err, "Recv")
		})
		m.Body[0] = 1
		c.must(c.Send(b.ID(), m), "Send")
	})
	e.run(b, func(c *client) {
		m := &fabric.Message{}
		for *m = c.recv(); m.Body[0] == 0; *m = c.recv() {
			c.must(c.Send(m.From, m), "Send")
		}
	})
}

func costAlloc(c *client) {
	c.free("Alloc and Free", func() { c.Free(c.Alloc(1000)) })
}
