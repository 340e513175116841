package hier

import (
	"errors"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// What clients record of failures, and ask the agent for.

// msgUnreachable, to the agent: a memory node could not be used, or has restarted. It is to look at it
// until it can be used. Body[0] is the memory node.
const msgUnreachable = fabric.MsgHier + 2

// recordLeftover records that a ticket could not be given up: its memory node is down, or did not answer an interrupted client, or the client has been
// closed. If its memory outlives that, the header counts the ticket, and no client will release it: the agent has the lock reset
// when the memory node answers, or before the node leaves.
func (k *Locker) recordLeftover(p *cql.Ticket, enqueued bool, err error) {
	unknown, closed := errors.Is(err, fabric.ErrUnknownOutcome), errors.Is(err, fabric.ErrClosed)
	if !unknown && !closed && !unreached(err) {
		return
	}
	if enqueued || unknown {
		// A holder may have other operations of unknown outcome under way: what became of this one says nothing of them.
		k.table.addUnsettled(p.Lock)
	}
	if closed {
		if !enqueued { // whatever the operation was that the end of the client met
			p = &cql.Ticket{Lock: p.Lock, Mode: lock.Shared, Term: p.Term}
		}
		k.table.addUnreleased(p)
		return
	}
	k.reportUnreachable(p.Lock.MN())
	switch {
	case enqueued:
		k.table.addUnreleased(p)
	case unknown: // the header may come to count a ticket, whichever
		k.table.addUnreleased(&cql.Ticket{Lock: p.Lock, Mode: lock.Shared, Term: p.Term})
	}
}

// unreached reports whether an error says that an operation was refused because its memory node could not be reached. What an
// acquisition asks for amiss is no such error: it gives its ticket back.
func unreached(err error) bool {
	for _, e := range [...]error{fabric.ErrNodeDown, fabric.ErrStaleEpoch, fabric.ErrInterrupted, fabric.ErrResources} {
		if errors.Is(err, e) {
			return fabric.Refused(err)
		}
	}
	return false
}

// reportUnreachable sends msgUnreachable to the agent; the agent's own Locker has it look at once.
func (k *Locker) reportUnreachable(mn fabric.MemID) {
	if k.agent != nil {
		k.agent.onUnreachable(mn)
		return
	}
	m := fabric.Message{Kind: msgUnreachable, Body: [7]uint64{uint64(mn)}}
	_ = k.port.Send(fabric.AgentOf(k.port.ID().CN()), &m) // of our own node
}

// askReset asks for the reset of a lock of which a ticket was not given up. The head may have passed a reader that the
// header still counts; a writer that it has passed has gone.
func (k *Locker) askReset(p *cql.Ticket) {
	why := cql.NodeFailure
	if p.Mode == lock.Shared {
		why = cql.UnknownOutcome
	}
	k.remote.AskReset(p.Lock, p.Index, why)
}

var _ lock.Leaver = (*Locker)(nil)

// Left implements lock.Leaver. Requests of clients for resets lie in the agent's inbox: a message behind them shows that there are none any more. The agent
// sends it to itself once more, for it may be about to ask for some itself. Those that it has sent itself are counted, for it may send them at any time
// (checkUnreachable, Adopt).
func (k *Locker) Left(begun *uint64, some func(fabric.Addr) bool) bool {
	t := k.table
	if *begun == 0 {
		n := t.fences.asked.Add(1)
		m := fabric.Message{Kind: msgFence, Body: [7]uint64{n}}
		if k.port.Send(fabric.AgentOf(k.port.ID().CN()), &m) == nil {
			*begun = n
		}
		return false
	}
	passed := t.fences.passed.Load() >= *begun
	used, rests := t.uses(some)
	if used {
		*begun = 0 // it may ask for resets yet
		return false
	}
	return passed && rests
}

// uses reports whether the node has something to do yet with some locks, and whether its agent rests: see leftoversIn.
func (t *Table) uses(some func(fabric.Addr) bool) (used, rests bool) {
	t.each(func(x *local) { used = used || some(x.ticket.Lock) })
	leftovers, rests := t.leftoversIn(some) // last: a local lock that goes from the table may become a leftover
	return leftovers || used, rests
}
