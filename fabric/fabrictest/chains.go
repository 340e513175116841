package fabrictest

import (
	"bytes"

	"github.com/declock/declock/fabric"
)

var chainTests = []test{
	{name: "a chain executes in order", solo: chainOrder},
	{name: "READs of a chain see its WRITEs and atomics", solo: chainData},
	{name: "MaxChain operations go, one more is ErrBadChain", solo: maxChain},
	{name: "an empty chain does nothing", solo: emptyChain},
	{name: "operations for two nodes are refused before any is executed",
		mem: []uint64{defaultMem, defaultMem}, solo: mixedChain},
	{name: "chains execute in the order in which they were posted, and can be waited for in any", solo: postOrder},
	{name: "Post waits for room where in-flight limits are reached", solo: manyInFlight},
	{name: "Ops and results belong to the caller after Wait", solo: resultsAfterWait},
	{name: "WRITE then FAA publishes: a client that sees the FAA sees the WRITE", cns: 2, run: publication},
	{name: "FAA then READ is not one operation: others may come between; READs are in order where the fabric says so", cns: 2, run: chainIsNotAtomic},
}

func chainOrder(c *client) {
	a := fabric.At(0, 64)
	ops := c.do(fabric.FAA(a, 5), fabric.Load(a), fabric.Store(a, 10), fabric.FAA(a, 1),
		fabric.CAS(a, 11, 20), fabric.CAS(a, 11, 30), fabric.Load(a), fabric.Store(a, 1), fabric.Load(a))
	for i, want := range []uint64{0, 5, 0, 10, 11, 20, 20, 0, 1} {
		if ops[i].Kind != fabric.OpWrite && ops[i].Old != want {
			c.fatal("operation %d (%v) returned %d, want %d", i, ops[i], ops[i].Old, want)
		}
	}
}

func chainData(c *client) {
	const size = 5000
	out, in := c.Alloc(size), c.Alloc(size)
	for round := range 50 {
		copy(out, pattern(size, byte(round)))
		clear(in)
		a := fabric.At(0, 8192)
		c.do(fabric.Write(a+3, out), fabric.FAA(a-8, 1), fabric.Read(a+3, in))
		if !bytes.Equal(in, out) {
			c.fatal("round %d: READ did not see the WRITE before it", round)
		}
		ops := c.do(fabric.FAA(a-8, 1), fabric.Read(a-8, in[:8]), fabric.Read(a+3, in[8:]))
		if in[0] != byte(2*round+2) {
			c.fatal("round %d: READ saw %d behind FAA that returned %d", round, in[0], ops[0].Old)
		}
	}
}

func maxChain(c *client) {
	a := fabric.At(0, 64)
	ops := make([]fabric.Op, fabric.MaxChain, fabric.MaxChain+1)
	for i := range ops {
		ops[i] = fabric.FAA(a, 1)
	}
	c.do(ops...)
	for i := range ops {
		if ops[i].Old != uint64(i) {
			c.fatal("operation %d returned %d", i, ops[i].Old)
		}
	}
	c.refused(fabric.ErrBadChain, -1, append(ops, fabric.FAA(a, 1))...)
	c.want(a, fabric.MaxChain)
}

func emptyChain(c *client) {
	before := *c.Stats()
	c.must(c.Do(nil), "Do(nil)")
	c.must(c.Do([]fabric.Op{}), "Do of no operations")
	c.wait(c.post())
	if *c.Stats() != before {
		c.fatal("empty chains were counted: %+v", *c.Stats())
	}
}

func mixedChain(c *client) {
	a, b := fabric.At(0, 64), fabric.At(1, 64)
	c.refused(fabric.ErrBadChain, 1, fabric.FAA(a, 1), fabric.FAA(b, 1))
	c.want(a, 0)
	c.want(b, 0)
}

func postOrder(c *client) {
	a := fabric.At(0, 64)
	const chains = 8
	var ops [chains][3]fabric.Op
	var pend [chains]fabric.Pending
	buf := c.Alloc(8 * chains)
	for round := range uint64(20) {
		for i := range ops {
			k := round*chains + uint64(i)
			ops[i] = [3]fabric.Op{fabric.FAA(a, 1), fabric.Store(a+8, k), fabric.Read(a+8, buf[8*i:8*i+8])}
			pend[i] = c.post(ops[i][:]...)
		}
		if got := c.load(a + 8); got != round*chains+chains-1 {
			c.fatal("Do behind Posts sees %d", got)
		}
		for n := range chains {
			i := n ^ int(round)%chains // in another order each time
			c.wait(pend[i])
			k := round*chains + uint64(i)
			if ops[i][0].Old != k || buf[8*i] != byte(k) {
				c.fatal("chain %d: FAA returned %d, READ %d", k, ops[i][0].Old, buf[8*i])
			}
		}
	}
}

func manyInFlight(c *client) {
	const chains = 500
	a := fabric.At(0, 64)
	ops := make([][4]fabric.Op, chains)
	pend := make([]fabric.Pending, chains)
	for i := range ops {
		ops[i] = [4]fabric.Op{fabric.FAA(a, 1), fabric.Load(a), fabric.Store(a+8, uint64(i)), fabric.Load(a + 8)}
		pend[i] = c.post(ops[i][:]...)
	}
	for i := range ops {
		c.wait(pend[i])
		o := &ops[i]
		if o[0].Old != uint64(i) || o[1].Old != uint64(i)+1 || o[3].Old != uint64(i) {
			c.fatal("chain %d returned %d, %d, %d", i, o[0].Old, o[1].Old, o[3].Old)
		}
	}
}

func resultsAfterWait(c *client) {
	a := fabric.At(0, 64)
	c.store(a, 77)
	ops := []fabric.Op{fabric.Load(a)}
	c.must(c.Do(ops), "Do")
	c.store(a, 78)
	c.pause(20 * fabric.Microsecond)
	if ops[0].Old != 77 {
		c.fatal("the result of a completed Load became %d", ops[0].Old)
	}
	ops[0] = fabric.Load(a) // the caller's again
	c.must(c.Do(ops), "Do")
	if ops[0].Old != 78 {
		c.fatal("a second Load returned %d", ops[0].Old)
	}
}

func publication(e *env) {
	const rounds, size = 300, 1000
	data, flag := fabric.At(0, 4096), fabric.At(0, 64)
	w, r := e.client(0), e.client(1)
	e.run(w, func(c *client) {
		buf := c.Alloc(size)
		for k := uint64(1); k <= rounds; k++ {
			copy(buf, pattern(size, byte(k)))
			c.do(fabric.Write(data, buf), fabric.FAA(flag, 1))
			c.until(flag+8, k) // the reader has checked
		}
	})
	e.run(r, func(c *client) {
		buf := c.Alloc(size)
		for k := uint64(1); k <= rounds; k++ {
			c.until(flag, k)
			c.do(fabric.Read(data, buf))
			if !bytes.Equal(buf, pattern(size, byte(k))) {
				c.fatal("round %d: the flag is there and the data is not", k)
			}
			c.store(flag+8, k)
		}
	})
}

func chainIsNotAtomic(e *env) {
	a := fabric.At(0, 64)
	for i := range 2 {
		e.run(e.client(i), func(c *client) {
			last := uint64(0)
			for range 300 {
				ops := c.do(fabric.FAA(a, 1), fabric.Load(a), fabric.Load(a))
				if ops[0].Old < last || ops[1].Old <= ops[0].Old || c.Caps().ReadsInOrder && ops[2].Old < ops[1].Old {
					c.fatal("a counter that only grows: %d, then %d, %d, %d", last, ops[0].Old, ops[1].Old, ops[2].Old)
				}
				last = max(ops[1].Old, ops[2].Old)
			}
		})
	}
}
