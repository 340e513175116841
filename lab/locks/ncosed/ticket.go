package ncosed

import (
	"errors"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// A ticket is a client's that is the tail of a lock or was, or a reader's that waits.
type ticket struct {
	lock    fabric.Addr
	id      fabric.ClientID // under which others know it
	mode    lock.Mode
	granted bool

	// What comes behind a writer.
	readers []fabric.ClientID // that have not been granted the lock yet
	heard   uint32            // readers whose messages have come
	next    fabric.ClientID   // 0: not known
	before  uint32            // readers that come before next

	// A writer's release.
	count  uint32 // of readers, as the word has it
	ended  bool   // the ticket is not in the word any more
	behind bool   // another tail is in the word: its message will come

	releases uint64 // the home's answer, and 1
}

// Named implements baseline.Ticket.
func (t *ticket) Named() (fabric.Addr, fabric.ClientID) { return t.lock, t.id }

// Hear handles a message about the ticket.
func (t *ticket) Hear(m *fabric.Message) {
	switch m.Kind {
	case msgReader:
		t.readers = append(t.readers, fabric.ClientID(m.Body[2]))
		t.heard++
	case msgWriter:
		t.next, t.before = fabric.ClientID(m.Body[2]), uint32(m.Body[3])
	case msgGranted:
		t.granted = true
	case msgReleases:
		t.releases = m.Body[2] + 1
	}
}

// endOp returns the operation that takes the ticket out of the word, if the count is as it was.
func (t *ticket) endOp() fabric.Op {
	return fabric.CAS(t.lock, uint64(makeWord(t.id, t.count)), uint64(makeWord(0, t.count)))
}

// found takes note of what endOp found.
func (t *ticket) found(old word) {
	switch {
	case old == makeWord(t.id, t.count):
		t.ended = true
	case old.tail() == t.id:
		t.count = old.readers()
	default:
		t.behind = true
	}
}

// advance goes on with the release of a ticket that was granted, as far as it can without more messages, and reports whether it is done.
func (t *ticket) advance(p *mailer, ops []fabric.Op) (done bool, err error) {
	if t.mode == lock.Shared {
		return true, p.released(t.lock)
	}
	for {
		for _, r := range t.readers {
			if e := p.grant(t.lock, r); e != nil {
				err = errors.Join(err, e)
			}
		}
		t.readers = t.readers[:0]
		switch {
		case err != nil:
			return true, err
		case t.ended:
			return t.heard == t.count, nil
		case t.next != 0 && t.heard == t.before:
			return true, t.pass(p)
		case t.next != 0 || t.behind:
			return false, nil
		}
		ops[0] = t.endOp()
		if err := p.port.Do(ops[:1]); err != nil {
			return true, err
		}
		t.found(word(ops[0].Old))
	}
}

// pass gives the lock to the next writer, or has the home do so after the readers before that.
func (t *ticket) pass(p *mailer) error {
	if t.before == 0 {
		return p.grant(t.lock, t.next)
	}
	return p.await(t.lock, t.next, t.before)
}

// A mailer sends messages about tickets, one at a time.
type mailer struct {
	port  fabric.Port
	first fabric.ClientID // of the agents that are homes
	homes int
	m     fabric.Message
}

// home returns the agent that is the home of a lock.
func (p *mailer) home(l fabric.Addr) fabric.ClientID {
	if p.homes == 0 {
		return p.first
	}
	return fabric.AgentOf(p.first.CN() + fabric.CNID(int(l.MN())%p.homes))
}

func (p *mailer) send(to fabric.ClientID, kind fabric.MsgKind, body [7]uint64) error {
	p.m = fabric.Message{Kind: kind, Body: body}
	return p.port.Send(to, &p.m)
}

// grant tells a client that a lock is its.
func (p *mailer) grant(l fabric.Addr, to fabric.ClientID) error {
	return p.send(to, msgGranted, [7]uint64{uint64(l), uint64(to)})
}

// released tells the home that a reader has released.
func (p *mailer) released(l fabric.Addr) error {
	return p.send(p.home(l), msgReleased, [7]uint64{uint64(l)})
}

// await has the home grant the lock to a writer when so many readers have released.
func (p *mailer) await(l fabric.Addr, writer fabric.ClientID, readers uint32) error {
	return p.send(p.home(l), msgAwait, [7]uint64{uint64(l), uint64(writer), uint64(readers)})
}
