package fabrictest

import (
	"errors"

	"github.com/declock/declock/fabric"
)

var waitTests = []test{
	{name: "Now never steps back", run: nowGrows},
	{name: "Recv gives ErrDeadline, not before the deadline", solo: recvDeadline},
	{name: "a deadline in the past polls", solo: recvPoll},
	{name: "Recv for ever ends with a message", cns: 2, run: recvForever},
	{name: "a message that is there comes before the deadline's error", solo: recvBeforeDeadline},
	{name: "Pause waits until its time and leaves messages where they are", solo: pauseLeaves},
	{name: "Interrupt makes Recv and Pause fail until ClearInterrupt", solo: interruptSticky},
	{name: "messages that are there are received in spite of Interrupt", solo: interruptMessages},
	{name: "Interrupt ends a Recv that waits", run: func(e *env) { interruptWaiting(e, false) }},
	{name: "Interrupt ends a Pause that waits", run: func(e *env) { interruptWaiting(e, true) }},
	{name: "operations do not mind Interrupt", solo: interruptOps},
}

func nowGrows(e *env) {
	e.crowd(1, 3, func(c *client, k int) {
		last := c.Now()
		for range 100 {
			c.do(fabric.FAA(fabric.At(0, 64), 1))
			now := c.Now()
			if now < last {
				c.fatal("the clock stepped back from %d to %d", last, now)
			}
			last = now
		}
	})
}

func recvDeadline(c *client) {
	for _, d := range []fabric.Time{1, 100, 10 * fabric.Microsecond, 2 * fabric.Millisecond} {
		until := c.Now() + d
		_, err := c.Recv(until)
		c.fails(err, fabric.ErrDeadline, "Recv")
		if now := c.Now(); now < until {
			c.fatal("Recv with deadline %d ended at %d", until, now)
		}
	}
}

func recvPoll(c *client) {
	for _, past := range []fabric.Time{0, -1, c.Now() - 1, c.Now()} {
		_, err := c.Recv(past)
		c.fails(err, fabric.ErrDeadline, "Recv(%d)", past)
	}
	c.send(c.ID(), 5)
	for limit := c.Now() + patience; ; {
		m, err := c.Recv(0)
		if err == nil && m.Body[0] == 5 {
			return
		}
		if !errors.Is(err, fabric.ErrDeadline) || c.Now() > limit {
			c.fatal("polling for a message: %+v, %v", m, err)
		}
	}
}

func recvForever(e *env) {
	r, s := e.client(0), e.client(1)
	e.run(r, func(c *client) {
		for i := range uint64(20) {
			m, err := c.Recv(fabric.Forever)
			if err != nil || m.Body[0] != i {
				c.fatal("Recv(Forever): %+v, %v", m, err)
			}
		}
	})
	e.run(s, func(c *client) {
		for i := range uint64(20) {
			c.pause(200 * fabric.Microsecond)
			c.send(r.ID(), i)
		}
	})
}

// sendTwo sends two messages to the client itself, and waits until they are there.
func (c *client) sendTwo(d fabric.Time) {
	c.t.Helper()
	c.send(c.ID(), 1)
	c.send(c.ID(), 2)
	c.pause(d)
}

// recvTwo receives them.
func (c *client) recvTwo(deadline fabric.Time) {
	c.t.Helper()
	for i := uint64(1); i <= 2; i++ {
		if m, err := c.Recv(deadline); err != nil || m.Body[0] != i {
			c.fatal("Recv of message %d, which is there: %+v, %v", i, m, err)
		}
	}
}

func recvBeforeDeadline(c *client) {
	c.sendTwo(5 * fabric.Millisecond)
	c.recvTwo(1)
}

func pauseLeaves(c *client) {
	c.must(c.Pause(0), "Pause(0)")
	c.must(c.Pause(c.Now()), "Pause(now)")
	until := c.Now() + 3*fabric.Millisecond
	c.sendTwo(3 * fabric.Millisecond)
	if now := c.Now(); now < until {
		c.fatal("Pause until %d or later ended at %d", until, now)
	}
	c.recvTwo(c.Now() + patience)
}

func interruptSticky(c *client) {
	far := c.Now() + patience
	c.Interrupt()
	c.Interrupt()
	for range 3 {
		for _, deadline := range []fabric.Time{far, fabric.Forever} {
			_, err := c.Recv(deadline)
			c.fails(err, fabric.ErrInterrupted, "Recv(%d)", deadline)
		}
		c.fails(c.Pause(far), fabric.ErrInterrupted, "Pause")
	}
	if c.Now() >= far {
		c.fatal("interrupted waits have waited")
	}
	c.ClearInterrupt()
	_, err := c.Recv(c.Now() + 1000)
	c.fails(err, fabric.ErrDeadline, "Recv after ClearInterrupt")
	c.pause(1000)
}

func interruptMessages(c *client) {
	c.sendTwo(5 * fabric.Millisecond)
	c.Interrupt()
	c.recvTwo(fabric.Forever)
	_, err := c.Recv(fabric.Forever)
	c.fails(err, fabric.ErrInterrupted, "Recv with no more messages")
	c.ClearInterrupt()
}

func interruptWaiting(e *env, pause bool) {
	w, other := e.client(0), e.client(0)
	begun := fabric.At(0, 64)
	e.run(w, func(c *client) {
		c.store(begun, 1)
		var err error
		if pause {
			err = c.Pause(c.Now() + patience)
		} else {
			_, err = c.Recv(fabric.Forever)
		}
		c.fails(err, fabric.ErrInterrupted, "an interrupted wait")
		c.ClearInterrupt()
		c.pause(1000)
	})
	e.run(other, func(c *client) {
		c.until(begun, 1)
		c.pause(2 * fabric.Millisecond)
		w.Interrupt()
	})
}

func interruptOps(c *client) {
	// A busy machine may not answer in the time that an interrupted client waits: then it is tried again, for a second.
	for try := range uint64(100) {
		word := fabric.At(0, 64+8*try)
		c.Interrupt()
		ops := []fabric.Op{fabric.FAA(word, 1), fabric.Load(word)}
		err := c.Do(ops)
		if try < 99 && errors.Is(err, fabric.ErrInterrupted) {
			c.ClearInterrupt()
			c.pause(10 * fabric.Millisecond)
			continue
		}
		c.must(err, "operations of an interrupted client")
		if ops[0].Old != 0 || ops[1].Old != 1 {
			c.fatal("FAA returned %d, and the READ behind it %d", ops[0].Old, ops[1].Old)
		}
		break
	}
	c.send(c.ID(), 1)
	c.ClearInterrupt()
	c.recv()
}
