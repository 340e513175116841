package locktest

import (
	"encoding/binary"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// Handoffs say what the data is, and what is deferred to the next holder is done before a holder that deferred it
// goes on: under writers that wait for long and for short, readers, and holders that change nothing. A mechanism without
// handoffs passes, too.
func testHandoffs(e *env) {
	rounds := 60
	if _, virtual := e.cl.(*simCluster); !virtual {
		rounds = e.rounds(rounds)
	}
	clients := e.clients(4)
	e.run(clients, func(i int, c *client) {
		var h lock.Hold
		text := make([]byte, dataSize)
		image := c.Alloc(dataSize)
		for k := range rounds {
			if (i+k)%7 == 0 {
				c.acquire(&h, 0, lock.Shared, fabric.Read(e.dataAt(0), c.buf))
				c.checkData()
				c.release(&h)
				continue
			}
			r := lock.Request{Lock: e.lockAt(0), Mode: lock.Exclusive, Deadline: c.Now() + e.patience,
				Reads: []fabric.Op{fabric.Read(e.dataAt(0), c.buf)}, Handoff: text}
			if c.Rand()%3 == 0 {
				r.Deadline = c.Now() + fabric.Time(c.Rand()%50_000)
			}
			if err := c.Acquire(&h, &r); err != nil {
				c.want(err, lock.ErrTimeout, "acquire")
				continue
			}
			c.readHandoff(&r)
			if r.HandoffLen > 0 {
				c.add(e.flag(11), 1)
			}
			if r.Deferred > 0 {
				c.add(e.flag(12), 1)
			}
			v := c.checkData()
			var before []fabric.Op
			if c.Rand()%4 != 0 || r.Deferred != 0 {
				if r.Deferred == 0 || c.Rand()%2 == 0 {
					v++
					c.add(e.flag(10), 1)
				}
				c.fillData(v)
				before = append(before, fabric.Write(e.dataAt(0), image[:copy(image, c.buf)]))
				h.Deferred = c.Rand() % 2
			}
			if h.Handoff = c.buf; c.Rand()%4 == 0 {
				h.Handoff = nil
			}
			c.release(&h, before...)
			h.Handoff, h.Deferred = nil, 0
			if now := c.load(e.dataAt(0)); now < v {
				c.fatal("%d is acknowledged, and memory has %d", v, now)
			}
		}
		c.add(e.flag(0), 1)
		c.until(e.flag(0), uint64(len(clients)))
		c.acquire(&h, 0, lock.Shared, fabric.Read(e.dataAt(0), c.buf))
		if v, want := c.checkData(), c.load(e.flag(10)); v != want {
			c.fatal("data is %d after %d updates", v, want)
		}
		c.release(&h)
		if _, ok := e.cl.(*simCluster); !ok {
			return // the order is not known
		}
		if handoffs, deferred := c.load(e.flag(11)), c.load(e.flag(12)); e.m.Handoffs && handoffs == 0 || e.m.Deferred && deferred == 0 {
			c.fatal("%d handoffs, %d with something left to do", handoffs, deferred)
		}
	})
}

// readHandoff puts a handoff that came with the lock into buf. It must be what memory holds, unless the WRITE is deferred.
func (c *client) readHandoff(r *lock.Request) {
	c.t.Helper()
	if r.HandoffLen == 0 {
		if r.Deferred != 0 {
			c.fatal("deferred %d, without a handoff", r.Deferred)
		}
		return
	}
	if r.HandoffLen != dataSize {
		c.fatal("a handoff of %d bytes, want %d", r.HandoffLen, dataSize)
	}
	copy(c.buf, r.Handoff)
	v, now := binary.LittleEndian.Uint64(c.buf), c.load(c.e.dataAt(0))
	if r.Deferred == 0 && v != now || v < now {
		c.fatal("the handoff says %d, memory %d, deferred %d", v, now, r.Deferred)
	}
}
