package fabrictest

import (
	"errors"

	"github.com/declock/declock/fabric"
)

var faultTests = []test{
	{name: "a node that is killed is out of the views, agents get MsgView, Send gives ErrNodeDown, and Lost has grown", cns: 3, run: kill},
	{name: "a memory node that is down gives ErrNodeDown or ErrUnknownOutcome, then ErrNodeDown",
		mem: []uint64{defaultMem, defaultMem}, run: killMN},
	{name: "after a restart of the memory node old Ports get ErrStaleEpoch until Reattach, new ones work", run: restartMN},
	{name: "a join waits for a node that has gone and still reaches memory", cns: 2, run: joinInLease},
	{name: "a key that is refused gives ErrBadKey", run: revoke},
	{name: "what is posted after ErrUnknownOutcome executes behind what had it", run: unknownOutcome},
}

func kill(e *env) {
	k := need[Killer](e, "kill a compute node")
	gone, before := e.cl.Node(2).ID(), e.cl.Node(0).View().Lost
	e.complete(e.client(0), func(c *client) { c.do(fabric.FAA(fabric.At(0, 64), 1)) })
	k.Kill(2)
	e.hears(0, gone)
	e.hears(1, gone)
	e.cl.Wait()
	if now := e.cl.Node(0).View().Lost; now <= before {
		e.t.Errorf("a node was killed: Lost was %d and is %d", before, now)
	}
	e.solo(func(c *client) { c.want(fabric.At(0, 64), 1) })
}

func killMN(e *env) {
	k := need[MNKiller](e, "kill a memory node")
	a, other := fabric.At(1, 64), fabric.At(0, 64)
	c := e.client(0)
	e.complete(c, func(c *client) { c.do(fabric.FAA(a, 1)) })
	k.KillMN(1)
	e.run(c, func(c *client) {
		err := c.Do([]fabric.Op{fabric.FAA(a, 1)})
		if !isChainError(err, fabric.ErrNodeDown, 0) && !isChainError(err, fabric.ErrUnknownOutcome, 0) {
			c.fatal("FAA on a memory node that is down: %v", err)
		}
		c.refused(fabric.ErrNodeDown, 0, fabric.FAA(a, 1))
		c.refused(fabric.ErrNodeDown, 0, fabric.Load(a), fabric.Load(a))
		c.do(fabric.FAA(other, 1))
	})
}

func restartMN(e *env) {
	r := need[Restarter](e, "restart a memory node")
	a := fabric.At(0, 64)
	c := e.client(0)
	before := e.cl.Node(0).Memory()[0].Epoch
	e.complete(c, func(c *client) { c.do(fabric.FAA(a, 1)) })
	r.RestartMN(0)
	if now := e.cl.Node(0).Memory()[0].Epoch; now <= before {
		e.t.Errorf("the epoch was %d and is %d", before, now)
	}
	e.complete(c, func(c *client) {
		for range 3 {
			c.fails(c.Do([]fabric.Op{fabric.FAA(a, 1)}), fabric.ErrStaleEpoch, "FAA in the new epoch by an old Port")
		}
	})
	e.complete(c, func(c *client) {
		c.fails(c.Reattach(0, before), fabric.ErrStaleEpoch, "Reattach to the epoch before")
		c.fails(c.Do([]fabric.Op{fabric.Load(a)}), fabric.ErrStaleEpoch, "after a Reattach that failed")
		now := e.cl.Node(0).Memory()[0].Epoch
		for range 2 { // also where it is attached already
			c.must(c.Reattach(0, now), "Reattach")
			old := c.load(a)
			c.do(fabric.FAA(a, 1))
			c.want(a, old+1)
		}
		c.fails(c.Reattach(63, 1), fabric.ErrNodeDown, "Reattach to a memory node that there is not")
	})
	e.solo(func(c *client) {
		old := c.load(a) // memory may have been lost or not
		c.do(fabric.FAA(a, 1))
		c.want(a, old+1)
	})
}

// The first node goes on when its lease has run out: it is served, and its view lacks the new node. As long as that is so, the
// new one does nothing.
func joinInLease(e *env) {
	l := need[Leaser](e, "have a node lose its lease")
	old, begun := fabric.At(0, 64), fabric.At(0, 128)
	a := e.client(0)
	e.complete(a, func(c *client) { c.do(fabric.FAA(old, 1)) })
	joined := make(chan struct{})
	release := l.JoinInLease(0, func(n fabric.Node) {
		p, err := n.Open()
		if err != nil {
			e.t.Errorf("Open on a node that has joined: %v", err)
		} else {
			e.run(e.clientOn(p), func(c *client) { c.do(fabric.FAA(begun, 1)) })
		}
		close(joined)
	})
	e.complete(a, func(c *client) {
		served := 0
		for ; ; served++ {
			ops := []fabric.Op{fabric.Load(begun), fabric.FAA(old, 1)}
			view := e.cl.Node(0).View().Live.Len()
			err := c.Do(ops)
			switch {
			case errors.Is(err, fabric.ErrFenced), errors.Is(err, fabric.ErrClosed):
				if served < 10 {
					c.fatal("it was served %d times only: the test shows nothing", served)
				}
				return
			case err != nil:
				c.fatal("before it is shut out: %v", err)
			case ops[0].Old != 0 && view == 2:
				c.fatal("a node has joined, and one that does not know it still reaches memory")
			}
			if served == 200 {
				release()
			}
			c.pause(50 * fabric.Microsecond)
		}
	})
	<-joined
	e.cl.Wait()
	e.run(e.client(1), func(c *client) { c.until(begun, 1) })
}

func revoke(e *env) {
	r := need[Revoker](e, "make a memory node refuse its key")
	a := fabric.At(0, 64)
	c := e.client(0)
	e.complete(c, func(c *client) { c.do(fabric.FAA(a, 1)) })
	r.RevokeMN(0)
	e.run(c, func(c *client) {
		for _, op := range eachKind(a, c.Alloc(8)) {
			c.refused(fabric.ErrBadKey, 0, op)
		}
	})
}

func unknownOutcome(e *env) {
	s := need[Staller](e, "make a memory node stand still")
	a := fabric.At(0, 64)
	c, other := e.client(0), e.client(0)
	e.complete(c, func(c *client) { c.do(fabric.FAA(a, 1)) })
	e.complete(other, func(c *client) { c.do(fabric.Load(a)) })
	s.Stall(0)
	e.complete(c, func(c *client) {
		if err := c.Do([]fabric.Op{fabric.FAA(a, 1)}); !isChainError(err, fabric.ErrUnknownOutcome, 0) {
			c.fatal("FAA on a memory node that stands still: %v", err)
		}
		if n := c.Stats().Unknown; n != 1 {
			c.fatal("%d chains of unknown outcome counted, want 1", n)
		}
	})
	s.Continue(0)
	e.run(other, func(c *client) {
		ops := []fabric.Op{fabric.Load(a)}
		for limit := c.Now() + patience; ; {
			err := c.Do(ops)
			if err == nil {
				break
			}
			if !errors.Is(err, fabric.ErrNodeDown) || c.Now() > limit {
				c.fatal("READ after the memory node goes on: %v", err)
			}
			_ = c.Pause(c.Now() + fabric.Millisecond)
		}
		for range 50 {
			c.want(a, ops[0].Old)
			_ = c.Pause(c.Now() + fabric.Millisecond)
		}
	})
}
