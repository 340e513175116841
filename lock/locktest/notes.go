package locktest

import (
	"encoding/binary"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// Notes say what the data is, and what is left to the next holder is done before anybody who left it
// goes on: under writers who wait for long and for short, readers, and holders who change nothing. A mechanism without
// notes passes, too.
func testNotes(e *env) {
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
				Reads: []fabric.Op{fabric.Read(e.dataAt(0), c.buf)}, Note: text}
			if c.Rand()%3 == 0 {
				r.Deadline = c.Now() + fabric.Time(c.Rand()%50_000)
			}
			if err := c.Acquire(&h, &r); err != nil {
				c.want(err, lock.ErrTimeout, "acquire")
				continue
			}
			c.readNote(&r)
			if r.Noted > 0 {
				c.add(e.flag(11), 1)
			}
			if r.Owed > 0 {
				c.add(e.flag(12), 1)
			}
			v := c.checkData()
			var before []fabric.Op
			if c.Rand()%4 != 0 || r.Owed != 0 {
				if r.Owed == 0 || c.Rand()%2 == 0 {
					v++
					c.add(e.flag(10), 1)
				}
				c.fillData(v)
				before = append(before, fabric.Write(e.dataAt(0), image[:copy(image, c.buf)]))
				h.Owing = c.Rand() % 2
			}
			if h.Note = c.buf; c.Rand()%4 == 0 {
				h.Note = nil
			}
			c.release(&h, before...)
			h.Note, h.Owing = nil, 0
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
			return // who meets whom is not known
		}
		if notes, owed := c.load(e.flag(11)), c.load(e.flag(12)); e.m.Notes && notes == 0 || e.m.Owing && owed == 0 {
			c.fatal("%d notes, %d with something left to do", notes, owed)
		}
	})
}

// readNote puts a note that came with the lock into buf. It must be what memory holds, unless that is owed.
func (c *client) readNote(r *lock.Request) {
	c.t.Helper()
	if r.Noted == 0 {
		if r.Owed != 0 {
			c.fatal("owed %d, without a note", r.Owed)
		}
		return
	}
	if r.Noted != dataSize {
		c.fatal("a note of %d bytes, want %d", r.Noted, dataSize)
	}
	copy(c.buf, r.Note)
	v, now := binary.LittleEndian.Uint64(c.buf), c.load(c.e.dataAt(0))
	if r.Owed == 0 && v != now || v < now {
		c.fatal("the note says %d, memory %d, owed %d", v, now, r.Owed)
	}
}
