package locktest

import (
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// Update locks: the holder reads beside the readers from before, keeps out all that come after, and is alone once it has been upgraded. A Locker without them
// refuses the mode, and has update locks by lock.ForUpdate, beside which no reader is.
func testUpdate(e *env) {
	clients := e.clients(2)[:4]
	const readers = 2
	updates := 40
	_, own := clients[0].Locker.(lock.Upgrader)
	if !own {
		updates = 15
	}
	data := func(c *client) fabric.Op { return fabric.Read(e.dataAt(0), c.buf) }
	e.run(clients, func(i int, c *client) {
		var h lock.Hold
		if !own {
			if i == 0 {
				c.fails(&h, c.Acquire(&h, &lock.Request{Lock: e.lockAt(1), Mode: lock.Update}), lock.ErrMisuse, "acquire for update")
				c.try(1, lock.Exclusive, nil)
			}
			c.Locker = lock.ForUpdate(c.Locker)
		}
		c.upgrade(&h, i, own)
		c.until(e.flag(1), 2)
		// Counters grow by one for each upgrade, though each is read before.
		for k := range e.rounds(updates) {
			if i < readers && k%2 == 0 {
				c.acquire(&h, 0, lock.Shared, data(c))
				c.checkData()
				c.release(&h)
				continue
			}
			c.acquire(&h, 0, lock.Update, data(c))
			v := c.checkData()
			if k%3 > 0 {
				c.must(c.Locker.(lock.Upgrader).Upgrade(&h, &lock.Request{Deadline: c.Now() + c.e.patience}), "upgrade")
				c.fillData(v + 1)
				c.add(e.flag(10), 1)
				c.release(&h, fabric.Write(e.dataAt(0), c.buf))
			} else {
				c.release(&h)
			}
		}
		c.add(e.flag(2), 1)
		c.until(e.flag(2), uint64(len(clients)))
		c.acquire(&h, 0, lock.Shared, data(c))
		if v, want := c.checkData(), c.load(e.flag(10)); v != want {
			c.fatal("data is %d after %d upgrades", v, want)
		}
		c.release(&h)
	})
}

// upgrade has one client upgraded: beside a reader from before, another client, if the Locker has update locks of its own.
func (c *client) upgrade(h *lock.Hold, i int, own bool) {
	c.t.Helper()
	e := c.e
	switch {
	case i == 0 && own: // a reader from before, and then one of many
		c.acquire(h, 0, lock.Shared)
		c.add(e.flag(0), 1)
		c.until(e.flag(1), 1)
		c.release(h)
	case i == 1:
		if own {
			c.until(e.flag(0), 1)
		}
		c.acquire(h, 0, lock.Update)
		if h.Mode != lock.Update {
			c.fatal("Hold for update: %+v", h)
		}
		u := c.Locker.(lock.Upgrader)
		if own {
			for _, mode := range []lock.Mode{lock.Shared, lock.Update, lock.Exclusive} {
				var other lock.Hold
				r := lock.Request{Lock: e.lockAt(0), Mode: mode, Try: true}
				c.fails(&other, c.Acquire(&other, &r), lock.ErrBusy, "try %v beside a holder for update", mode)
			}
			c.want(u.Upgrade(h, &lock.Request{Try: true}), lock.ErrBusy, "upgrade beside a reader")
			c.want(u.Upgrade(h, &lock.Request{Deadline: c.Now() + 10*fabric.Microsecond}), lock.ErrTimeout, "upgrade beside a reader")
		}
		c.add(e.flag(1), 1)
		c.must(u.Upgrade(h, &lock.Request{Deadline: c.Now() + c.e.patience}), "upgrade")
		if !h.Held || h.Mode != lock.Exclusive {
			c.fatal("Hold after an upgrade: %+v", h)
		}
		c.want(u.Upgrade(h, &lock.Request{}), lock.ErrMisuse, "second upgrade")
		c.release(h)
		c.want(u.Upgrade(h, &lock.Request{}), lock.ErrMisuse, "upgrade after the release")
		c.add(e.flag(1), 1)
	}
}
