package fabrictest

import "github.com/declock/declock/fabric"

var localTests = []test{
	{name: "DoLocal and Do see each other's effects", needs: needLocal, solo: localSees},
	{name: "DoLocal executes a chain in order, and names what fails", needs: needLocal, solo: localFails},
	{name: "DoLocal is counted apart", needs: needLocal, solo: localCounts},
	{name: "DoLocal reaches no memory that is not Near", mem: []uint64{defaultMem, defaultMem}, needs: needLocal, solo: localFar},
	{name: "FAAs of Do and DoLocal all count, by GlobalAtomics", cns: 2, needs: needLocal, run: localFAAs},
}

// needLocal skips what the Ports of the first node cannot do to memory node 0.
func needLocal(e *env) {
	if l := fabric.LocalOf(e.cl.Node(0).Agent()); l == nil || !l.Near(0) {
		e.t.Skip("no memory node is near")
	}
}

// local executes a chain by CPU, which must succeed.
func (c *client) local(ops ...fabric.Op) []fabric.Op {
	c.t.Helper()
	c.must(fabric.LocalOf(c.Port).DoLocal(ops), "DoLocal")
	return ops
}

func localSees(c *client) {
	a, buf := fabric.At(0, 64), c.Alloc(24)
	c.do(fabric.Store(a, 5))
	ops := c.local(fabric.Load(a), fabric.CAS(a, 5, 6), fabric.FAA(a, 10), fabric.Store(a+8, 7), fabric.Read(a, buf))
	if ops[0].Old != 5 || !ops[1].Swapped() || ops[2].Old != 6 || buf[0] != 16 || buf[8] != 7 {
		c.fatal("DoLocal: %v, read %v", ops, buf)
	}
	copy(buf, "by CPU")
	c.local(fabric.Write(a+16, buf[:8]))
	got := c.do(fabric.Load(a), fabric.Load(a+16))
	if got[0].Old != 16 || byte(got[1].Old) != 'b' {
		c.fatal("Do finds %#x, %#x", got[0].Old, got[1].Old)
	}
	c.must(fabric.LocalOf(c.Port).DoLocal(nil), "DoLocal of nothing")
}

func localFails(c *client) {
	a := fabric.At(0, 64)
	end := fabric.At(0, defaultMem)
	ops := []fabric.Op{fabric.Store(a, 1), fabric.Store(a, 2), fabric.Load(end), fabric.Store(a, 3)}
	err := fabric.LocalOf(c.Port).DoLocal(ops)
	c.fails(err, fabric.ErrOutOfBounds, "DoLocal beyond the end")
	if n := fabric.Executed(err, len(ops)); n != 2 {
		c.fatal("%d operations were executed, want 2", n)
	}
	if v := c.load(a); v != 2 {
		c.fatal("word is %d, want 2", v)
	}
	c.fails(fabric.LocalOf(c.Port).DoLocal([]fabric.Op{fabric.CAS(a+1, 0, 1)}), fabric.ErrMisaligned, "DoLocal of a CAS at an odd address")
}

func localCounts(c *client) {
	s := c.Port.Stats()
	before := *s
	c.local(fabric.Store(fabric.At(0, 64), 1), fabric.Load(fabric.At(0, 64)))
	if s.Local != before.Local+2 || s.Chains != before.Chains || s.Total() != before.Total() {
		c.fatal("counters %+v after two operations by CPU, from %+v", *s, before)
	}
}

func localFar(c *client) {
	if l := fabric.LocalOf(c.Port); !l.Near(1) {
		c.fails(l.DoLocal([]fabric.Op{fabric.Load(fabric.At(1, 0))}), fabric.ErrUnsupported, "DoLocal to a far memory node")
	}
}

func localFAAs(e *env) {
	const n = 500
	a := fabric.At(0, 64)
	if !e.cl.Node(0).Caps().GlobalAtomics {
		e.t.Skip("they need not")
	}
	e.run(e.client(0), func(c *client) {
		for range n {
			c.local(fabric.FAA(a, 1))
		}
	})
	e.run(e.client(1), func(c *client) {
		for range n {
			c.do(fabric.FAA(a, 1))
		}
	})
	e.cl.Wait()
	e.solo(func(c *client) {
		if v := c.load(a); v != 2*n {
			c.fatal("%d, want %d", v, 2*n)
		}
	})
}
