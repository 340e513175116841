package fabrictest

import (
	"testing"

	"github.com/declock/declock/fabric"
)

var costTests = []test{
	{name: "Do allocates nothing", run: costDo},
	{name: "Post and Wait allocate nothing", run: costPost},
	{name: "Send and Recv on one node allocate nothing", run: costLocal},
	{name: "Send and Recv between nodes allocate nothing", cns: 2, run: costRemote},
	{name: "Alloc and Free of one size allocate nothing", run: costAlloc},
}

// free checks that f, run by c, allocates nothing. What the first runs set up is not counted.
func (e *env) free(c *client, what string, f func()) {
	e.t.Helper()
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

func costDo(e *env) {
	needCost(e)
	e.solo(func(c *client) {
		a := fabric.At(0, 64)
		buf := c.Alloc(256)
		ops := make([]fabric.Op, 4)
		e.free(c, "Do", func() {
			ops[0], ops[1], ops[2], ops[3] = fabric.FAA(a, 1), fabric.Read(a, buf), fabric.Write(a, buf), fabric.CAS(a, 0, 1)
			c.must(c.Do(ops), "Do")
			c.must(c.Do(ops[:1]), "Do")
		})
	})
}

func costPost(e *env) {
	needCost(e)
	e.solo(func(c *client) {
		a := fabric.At(0, 64)
		ops := make([]fabric.Op, 2)
		e.free(c, "Post", func() {
			ops[0], ops[1] = fabric.FAA(a, 1), fabric.Store(a+8, 1)
			p, err := c.Post(ops[:1])
			c.must(err, "Post")
			q, err := c.Post(ops[1:])
			c.must(err, "Post")
			c.must(c.Wait(p), "Wait")
			c.must(c.Wait(q), "Wait")
		})
	})
}

func costLocal(e *env) {
	needCost(e)
	e.solo(func(c *client) {
		m := &fabric.Message{Kind: fabric.MsgUser}
		e.free(c, "Send and Recv", func() {
			c.must(c.Send(c.ID(), m), "Send")
			_, err := c.Recv(c.Now() + patience)
			c.must(err, "Recv")
		})
	})
}

func costRemote(e *env) {
	needCost(e)
	a, b := e.client(0), e.client(1)
	e.run(a, func(c *client) {
		m := &fabric.Message{Kind: fabric.MsgUser}
		e.free(c, "Send and Recv", func() {
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

func costAlloc(e *env) {
	needCost(e)
	e.solo(func(c *client) {
		e.free(c, "Alloc and Free", func() { c.Free(c.Alloc(1000)) })
	})
}
