package sim

import (
	"fmt"

	"github.com/declock/declock/fabric"
)

// A Port that is interrupted, or closed by another client, does not wait for a chain for longer than Config.Grace. What is under way is left behind: it may still take effect, and
// nothing that the compute node posts afterwards overtakes it. What has not been sent never is.

// inHaste reports whether the Port is not to wait for a chain, or for room for one, beyond its time: overdue is asked then.
func (p *Port) inHaste() bool { return p.interrupted || p.closed }

// overdue reports whether the time of a Port in haste is over; else it will be woken then, from the wait that it begins now. giveUp is when that is, 0 as long as it was not
// in haste.
func (p *Port) overdue(giveUp *fabric.Time) bool {
	c := p.c
	if c.cfg.Grace == 0 || c.untimed != nil {
		return false
	}
	if *giveUp == 0 {
		*giveUp = c.now + c.cfg.Grace
	}
	if c.now >= *giveUp {
		return true
	}
	c.post(*giveUp, evWake, p.index, p.waitGen+1)
	return false
}

// reason says why a Port does not wait any longer.
func (p *Port) reason() error {
	if p.closed {
		return fabric.ErrClosed
	}
	return fabric.ErrInterrupted
}

// leave leaves a chain behind that is not done, and returns its outcome.
func (p *Port) leave(ch *Chain) error {
	c, q := p.c, ch.qp
	err := fmt.Errorf("sim: %v does not answer: %w", q.mn.id, p.reason())
	p.landed(ch)
	if int(ch.sent) < len(ch.ops) {
		q.take(ch)
	}
	if ch.state == chainQueued { // nothing of it is under way
		c.faultStats[Unsent]++
		err = &fabric.ChainError{Index: int(ch.sent), Op: ch.ops[ch.sent], Err: err}
		c.releaseChain(ch)
		return err
	}
	c.faultStats[LeftBehind]++
	first := ch.ops[0]
	own := make([]fabric.Op, ch.sent)
	changes := false
	for i := range own {
		own[i] = ownCopy(&ch.ops[i])
		changes = changes || own[i].Kind != fabric.OpRead
	}
	if changes {
		err = fmt.Errorf("%w: %w", fabric.ErrUnknownOutcome, err)
	}
	ch.ops, ch.orphan, ch.late, ch.known, ch.of, ch.until = own, true, true, true, q, c.now
	q.lingering++
	l := p.node.lingeringAt(q.mn)
	if l.n == 0 {
		l.turnsBack = false
	}
	l.n++
	return &fabric.ChainError{Op: first, Err: err}
}

// take takes a chain out of the queue pair of which something has not been sent.
func (q *queuePair) take(ch *Chain) {
	c := q.node.c
	if q.head == ch.index {
		q.head = ch.next
		c.kickAt(q, c.now)
		return
	}
	for i := q.head; i != none; i = c.chains[i].next {
		if before := c.chains[i]; before.next == ch.index {
			before.next = ch.next
			if q.tail == ch.index {
				q.tail = i
			}
			return
		}
	}
}

// lingeringAt returns the node's counts of late chains at a memory node.
func (n *Node) lingeringAt(mn *memNode) *lingering {
	for int(mn.id) >= len(n.linger) {
		n.linger = append(n.linger, lingering{})
	}
	return &n.linger[mn.id]
}
