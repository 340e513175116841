package cql

import (
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// Release gives a ticket up (Fig. 7, lines 6 to 19): one chain with the
// operations of before, the FAA on the header and a READ of the queue; then it
// notifies whom the queue names. A member of a train but the last sends the lock on
// instead, without an FAA (train.go).
//
// A lock that is being reset is released by the reset: that is no error
// (section 4.4). lock.ErrLost: the lock was reset while p was held, or its
// memory is corrupt.
func (c *Client) Release(p *Ticket, before []fabric.Op) error {
	if p.Train != nil && p.Train.in && !p.Train.last(p.Mode) {
		return c.releaseMember(p, before)
	}
	n := 0
	if len(before) > 0 {
		n = copy(c.ops[:], before)
	}
	last := c.ops[n : n+2]
	last[0] = fabric.FAA(p.Lock, c.quick.release[p.Mode&1])
	if p.Train != nil {
		last[0].Arg = c.delta(p)
	}
	m := n + 1
	if !p.Lean {
		last[1] = c.readQueue(p.Lock)
		m++
	}
	if err := c.port.Do(c.ops[:m]); err != nil {
		return c.releaseFailed(p, before, fabric.Executed(err, m), err)
	}
	h := Header(last[0].Old)
	if p.Train != nil {
		h = c.without(p, h)
	}
	if n > 0 {
		copyResults(before, c.ops[:n])
		p.Done = uint8(n)
	}
	if c.quick.alone(h, p) {
		p.Contended = false
		return nil
	}
	y := c.lay
	if p.Contended = y.Size(h) > 1 && (p.Mode == lock.Exclusive || y.Writers(h) > 0); p.Contended && p.Lean {
		return c.readOn(p, h, nil)
	}
	return c.passOn(p, h)
}

// readOn reads the queue after a release that had header h before it, and passes the lock on.
func (c *Client) readOn(p *Ticket, h Header, why error) error {
	c.ops[0] = c.readImage(p.Lock)
	if err := c.port.Do(c.ops[:1]); err != nil {
		c.AskReset(p.Lock, p.Index, UnknownOutcome)
		return errors.Join(why, err)
	}
	return c.passOn(p, h)
}

// releaseFailed goes on after a release chain that failed at operation k: the lock is
// released all the same if the memory node can be reached.
func (c *Client) releaseFailed(p *Ticket, before []fabric.Op, k int, err error) error {
	n := len(before)
	copyResults(before[:min(k, n)], c.ops[:min(k, n)])
	p.Done = uint8(min(k, n))
	switch {
	case k < n && !errors.Is(err, fabric.ErrUnknownOutcome):
		// before failed and the FAA did not take place. Nor, perhaps, did the WRITE of the value: the
		// next holder is to find what the memory node has.
		p.Carried = Carried{}
		done := p.Done
		again := c.Release(p, nil)
		p.Done = done // of before, not of nothing
		p.Without = errors.Is(again, fabric.ErrUnknownOutcome)
		return errors.Join(err, again)
	case k <= n:
		p.Unreleased = fabric.Refused(err)
		c.onAtomicError(p.Lock, err)
		return err
	}
	// Only the READ failed. We still owe the notification: read again.
	return c.readOn(p, c.without(p, Header(c.ops[n].Old)), err)
}

// passOn notifies the new holders. h is the header before the
// release; the image has the queue as it was some time after.
func (c *Client) passOn(p *Ticket, h Header) error {
	y := c.lay
	head, size, writers := y.Head(h), y.Size(h), y.Writers(h)
	switch {
	case h.ResetID() != 0:
		return nil
	case size == 0 || writers > size || p.Mode == lock.Exclusive && (writers == 0 || head != p.end()):
		// Not the lock that we had: it was reset behind our back, and our FAA has
		// just spoilt it.
		c.AskReset(p.Lock, head, Corruption)
		return fmt.Errorf("%w: %v at index %d, found %s", lock.ErrLost, p.Lock, p.Index, y.FormatHeader(h))
	case size == 1:
		return nil
	case size > y.Capacity():
		// Some acquiring clients found no room, and ask for a reset too.
		c.AskReset(p.Lock, head, QueueOverflow)
		return nil
	case p.Mode == lock.Shared && writers == 0:
		return nil
	}
	c.carried = p.Carried
	var err error
	if p.Mode == lock.Exclusive {
		err = c.passOnWriter(p.Lock, head+1, head+size, writers-1)
	} else {
		err = c.passOnReader(p.Lock, head, head+size, writers)
	}
	c.refetches = 0
	return err
}

// passOnWriter passes the lock on from a writer to the waiters with indices
// first to before end, writers of them writers: to the first if that is a
// writer, else to all readers before the next writer (Fig. 7, lines 11 to 19).
// All of them wait, so all of them write their entries, at some time.
func (c *Client) passOnWriter(l fabric.Addr, first, end, writers uint64) error {
	for i := first; i < end; {
		e := c.entry(i)
		switch fresh := c.lay.freshness(e, i); {
		case fresh > 0 && writers == 0:
			// The slot has been used again: the head has passed i while we
			// looked. Readers that were granted at once, after our FAA, can do
			// that (they release as the anonymous head). So each waiter is a
			// reader, and no entry names it any more.
			c.grantRange(l, i, end)
			return nil
		case fresh > 0:
			// With a writer in the queue no client is granted at once: impossible.
			c.AskReset(l, i, Corruption)
			return nil
		case fresh < 0:
			switch more, err := c.refetch(l, i, end); {
			case more == passed && writers == 0:
				c.grantRange(l, i, end) // as above, only that the entry has not come at all
				return err
			case more != again:
				return err
			}
			continue
		case e.Mode() == lock.Exclusive && i > first:
			return nil
		}
		behind := i + 1
		if e.Mode() == lock.Shared {
			behind = c.firstWriter(i, end)
		}
		c.notify(e, l, i, end, c.earliest(behind, end))
		if e.Mode() == lock.Exclusive {
			return nil
		}
		i++
	}
	return nil
}

// firstWriter returns the first index from i to before end whose entry is a
// valid writer's, or end.
func (c *Client) firstWriter(i, end uint64) uint64 {
	for ; i < end; i++ {
		if e := c.entry(i); c.lay.freshness(e, i) == 0 && e.Mode() == lock.Exclusive {
			break
		}
	}
	return i
}

// passOnReader passes the lock on from a reader to a writer, if one is next.
// Indices head to before end were in the queue at its FAA, and writers of them
// were writers. Which ticket among them was its own does not matter: holders
// are anonymous, and each release takes the head off.
//
// The ticket head+1 is a writer's exactly if its entry says so; readers that
// were granted at once have written no entry. So an entry that is missing is a
// reader's once as many writers as the header counted have been found elsewhere
// (section 4.3, shared holders). Entries from end on are not counted by h.
func (c *Client) passOnReader(l fabric.Addr, head, end, writers uint64) error {
	next := head + 1
	for {
		found, gone := uint64(0), false
		for i := head; i < end; i++ {
			e := c.entry(i)
			switch fresh := c.lay.freshness(e, i); {
			case fresh > 0:
				// Used again, so the head has passed i and with it next (or i is our
				// old head): the writer at next, if it was one, has been granted.
				gone = gone || i >= next
			case fresh == 0 && e.Mode() == lock.Exclusive:
				found++
				if i == next {
					c.notify(e, l, i, end, c.earliest(i+1, end))
					return nil
				}
			case fresh == 0 && i == next:
				return nil // a reader, and it holds the lock
			}
		}
		if gone || found >= writers {
			return nil
		}
		if more, err := c.refetch(l, next, end); more != again {
			return err
		}
	}
}

// notify sends the grant of an index to the client that its entry names: with the train that begins there, if it is the head. The queue
// ends before end.
func (c *Client) notify(e Entry, l fabric.Addr, index, end uint64, behind Stamp) {
	c.stats.HandoversRemote++
	m := grant(l, index, behind, c.stamp(), &c.carried)
	var t *Train
	if e.Mode() == lock.Exclusive {
		t = c.couple(l, index, end)
		t.encode(&m, lock.Exclusive)
	}
	if c.sendMore(e.Client(), t, &m) != nil || !c.send(e.Client(), &m) {
		// It has crashed and holds the lock now.
		c.AskReset(l, index, NodeFailure)
	}
}

// grantRange grants the lock to all readers that wait with indices from first
// to before end, without their names, through all agents.
func (c *Client) grantRange(l fabric.Addr, first, end uint64) {
	c.stats.HandoversRemote++
	m := fabric.Message{Kind: msgGrantRange, Body: [7]uint64{uint64(l), first, end}}
	view := c.node.View()
	for cn, ok := view.Live.Next(0); ok; cn, ok = view.Live.Next(cn) {
		c.send(fabric.AgentOf(cn), &m)
	}
}

// Bounds of refetching, in READs. The entry of a waiter comes a WRITE after
// its FAA: one or two READs later. If its node is slow, paused or crashed, wait
// with growing pauses, in the end for the reset that ends everything.
const (
	refetchEager   = 8
	refetchSuspect = 64 // if a node has crashed lately
)

// fetched is what there is to do after a refetch.
type fetched uint8

const (
	over   fetched = iota // nothing: the lock is being reset, or a reset has been asked for
	again                 // look at the image
	passed                // the head is more than a round beyond the entry
)

// refetch reads header and queue again, because the entry of index was not
// there yet. If the entry does not come, it asks for a reset: sooner if a node has crashed lately, and at once if the entry
// never comes. The queue ends before end.
func (c *Client) refetch(l fabric.Addr, index, end uint64) (fetched, error) {
	c.stats.Refetches++
	c.refetches++
	if c.refetches > refetchEager {
		pause := min(fabric.Time(c.refetches-refetchEager)*fabric.Microsecond, fabric.Millisecond)
		// An interrupt ends waiting for a lock, not handing one over.
		_ = c.port.Pause(c.port.Now() + pause)
	}
	c.ops[0] = c.readImage(l)
	if err := c.port.Do(c.ops[:1]); err != nil {
		c.AskReset(l, index, UnknownOutcome)
		return over, err
	}
	h := c.header()
	switch {
	case h.ResetID() != 0:
		return over, nil
	case c.lay.Head(h) > index+c.lay.Capacity():
		return passed, nil
	case c.lay.exhausted(index), c.refetches > refetchEager && c.lay.exhausted(end-1):
		// The client with an exhausted index was refused, and the lock has to be reset. An agent that waits here
		// does not handle the request for that reset, nor answer others.
		c.AskReset(l, end-1, VersionOverflow)
		return over, nil
	case c.refetches > c.cfg.RefetchMax,
		c.refetches > refetchSuspect && c.suspects(l, c.port.Now()):
		c.AskReset(l, index, NodeFailure)
		return over, nil
	}
	return again, nil
}
