package hier

import (
	"cmp"
	"errors"
	"slices"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// msgTrouble tells the agent that a memory node could not be used, or has a new life: it is to look
// until that is over. Body[0] is the memory node.
const msgTrouble = fabric.MsgHier + 2

// troubleNs is how often the agent looks at a memory node that is in trouble.
const troubleNs = 5 * fabric.Millisecond

// maxStuck bounds the places that a node remembers for when a memory node is back. A lock
// that is forgotten is found by who waits for it, after Config.CQL.RecheckNs.
const maxStuck = 1 << 14

// stick notes that a place could not be given up: its memory node is down, or did not answer an interrupted client, or the client has been
// closed. If its memory outlives that, the header counts the place, and nobody will release it: the agent has the lock reset
// when the memory node answers, or before the node leaves.
func (k *Locker) stick(p *cql.Place, enqueued bool, err error) {
	if errors.Is(err, fabric.ErrClosed) {
		if !enqueued { // whatever the operation was that the end of the client met
			p = &cql.Place{Lock: p.Lock, Mode: lock.Shared}
		}
		k.table.stick(p)
		return
	}
	unknown := errors.Is(err, fabric.ErrUnknownOutcome)
	if !unknown && !unreached(err) {
		return
	}
	if enqueued || unknown {
		// A holder may have other operations of unknown outcome under way: what became of this one says nothing of them.
		k.table.unsettle(p.Lock)
	}
	k.tellTrouble(p.Lock.MN())
	switch {
	case enqueued:
		k.table.stick(p)
	case unknown: // the header may come to count a place, whichever
		k.table.stick(&cql.Place{Lock: p.Lock, Mode: lock.Shared})
	}
}

// unreached reports whether an error says that an operation was refused because its memory node could not be reached. What an
// acquisition asks for amiss is no such error: it gives its place back.
func unreached(err error) bool {
	for _, e := range [...]error{fabric.ErrNodeDown, fabric.ErrStaleEpoch, fabric.ErrInterrupted, fabric.ErrResources} {
		if errors.Is(err, e) {
			return fabric.Refused(err)
		}
	}
	return false
}

// tellTrouble tells the agent of a memory node in trouble.
func (k *Locker) tellTrouble(mn fabric.MemID) {
	if k.port.ID().IsAgent() {
		return // it knows
	}
	m := fabric.Message{Kind: msgTrouble, Body: [7]uint64{uint64(mn)}}
	_ = k.port.Send(fabric.AgentOf(k.port.ID().CN()), &m) // of our own node
}

// A stuck place is one that could not be given up; of several of a lock: the last, and a reader's if one is.
type stuck struct {
	index uint64
	mode  lock.Mode
}

// askReset asks for the reset of a lock of which a place was not given up. The head may have passed a reader that the
// header still counts; a writer that it has passed has gone.
func (k *Locker) askReset(p *cql.Place) {
	why := cql.NodeFailure
	if p.Mode == lock.Shared {
		why = cql.UnknownOutcome
	}
	k.remote.AskReset(p.Lock, p.Index, why)
}

func (t *Table) stick(p *cql.Place) {
	t.livesMu.Lock()
	defer t.livesMu.Unlock()
	if t.stuck == nil {
		t.stuck = map[fabric.Addr]stuck{}
	}
	x := stuck{p.Index, p.Mode}
	old, ok := t.stuck[p.Lock]
	if ok {
		x = stuck{max(old.index, x.index), min(old.mode, x.mode)}
	}
	if ok || len(t.stuck) < maxStuck {
		t.stuck[p.Lock] = x
	}
}

// unstick returns the places on a memory node that were noted, and forgets them, and those of
// the lives before that this node still has.
func (t *Table) unstick(mn fabric.MemID) []cql.Place {
	var list []cql.Place
	t.livesMu.Lock()
	for l, x := range t.stuck {
		if l.MN() == mn {
			list = append(list, cql.Place{Lock: l, Index: x.index, Mode: x.mode})
			delete(t.stuck, l)
		}
	}
	t.livesMu.Unlock()
	t.each(func(x *local) {
		if x.place.Lock.MN() == mn && x.over() && (x.state == held || x.state.queued() || x.state == releasing) {
			list = append(list, x.place)
		}
	})
	slices.SortFunc(list, func(a, b cql.Place) int { return cmp.Compare(a.Lock, b.Lock) }) // a map has no order
	return list
}

// onTrouble notes that a memory node is to be looked at.
func (a *Agent) onTrouble(mn fabric.MemID) {
	if !slices.Contains(a.trouble, mn) {
		a.trouble = append(a.trouble, mn)
		a.lookAt = a.port.Now()
	}
}

// lookAtTrouble looks whether memory nodes in trouble can be used again. While it does, others may turn out to be in trouble.
func (a *Agent) lookAtTrouble() {
	for _, mn := range slices.Clone(a.trouble) {
		if a.troubleOver(mn) {
			a.trouble = slices.DeleteFunc(a.trouble, func(other fabric.MemID) bool { return other == mn })
		}
	}
	a.lookAt = fabric.Forever
	if len(a.trouble) > 0 {
		a.lookAt = a.port.Now() + troubleNs
	}
}

// troubleOver reports whether a memory node can be used again. Then locks are reset that
// participants of this node could not give up.
func (a *Agent) troubleOver(mn fabric.MemID) bool {
	marks := a.table.marks() // before the READ is posted
	err := a.port.Do([]fabric.Op{fabric.Load(fabric.At(mn, 0))})
	if errors.Is(err, fabric.ErrStaleEpoch) {
		if err = a.reattach(); a.locker.lifeAt(mn) != nil {
			err = nil // it tells of lost memory, or of other memory nodes
		}
	}
	if err != nil {
		return errors.Is(err, fabric.ErrFenced) // nothing of this node counts any more
	}
	a.table.settle(mn, marks)
	a.resets.Settled(mn)
	a.abortLost(mn)
	all := a.setAside(mn)
	for _, p := range a.table.unstick(mn) {
		a.locker.askReset(&p)
	}
	return all && a.table.marks() == marks // else look again: locks were marked meanwhile
}

// stickAgain notes the lock of a reset that the agent could not begin, because it did not reach the memory node: it is asked for again
// when that answers. Who waits for the lock would ask, but perhaps nobody does.
func (a *Agent) stickAgain(m *fabric.Message, err error) {
	p, ok := cql.Wished(m)
	if !ok || !unreached(err) && !errors.Is(err, fabric.ErrUnknownOutcome) {
		return
	}
	a.table.stick(&p)
	a.onTrouble(p.Lock.MN())
}
