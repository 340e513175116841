package cql

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// Participants is what an Agent must know about its node: which clients there take
// part in a lock. Package hier's table of local locks is one.
type Participants interface {
	// Freeze marks the participants of a lock that have a ticket with an index below used, or
	// none yet, as frozen: each calls Client.Quiesced once
	// when it has given up the lock, or its acquisition. It returns how many
	// will, and appends to waiting the tickets that wait for a grant, to be aborted.
	Freeze(l fabric.Addr, used uint64, waiting []Waiting) (busy int, _ []Waiting)

	// Granted records that readers hold a lock whose index is from first to before end: one that has its index and does not
	// wait yet sees it when it begins to wait. Waiters are in WaitingReaders.
	Granted(l fabric.Addr, first, end uint64)

	// WaitingReaders appends the tickets (clients and indices) of readers that
	// wait for a lock with an index from first to before end.
	WaitingReaders(l fabric.Addr, first, end uint64, to []Waiting) []Waiting

	// Settled reports whether no operation by which a participant of this node gave a lock up, or tried to acquire it, can
	// take effect any more. If it does not know yet, it sees to it that Agent.Settled is called later.
	Settled(l fabric.Addr) bool

	// Adopt is called with a message about a ticket whose client has left the queue (Client.Await failed): see Ticket.Take. It reports
	// whether there is such a ticket, and it is granted.
	Adopt(m *fabric.Message) bool
}

// Waiting is a participant that waits for a grant.
type Waiting struct {
	Client fabric.ClientID
	Index  uint64
	Term   uint16 // of its ticket
}

// An Agent is a compute node's side of resets (section 4.4), with one message
// for each compute node. It is driven by Handle, with the messages of the agent's Port.
//
// Several resets may be under way at once, led here and elsewhere; so the
// agent never waits for answers: it keeps them in two tables.
type Agent struct {
	port  fabric.Port
	node  fabric.Node
	lay   Layout
	parts Participants
	ops   [4]fabric.Op
	empty []byte // a queue without entries, but for the mark of a recovery

	leading []*leading // resets led by this node
	asked   []asked    // resets led by others (or this node), which wait for participants here

	waiting []Waiting // scratch
	readers []Waiting // scratch
	lost    uint64    // of the view seen last

	unfinished []Ticket // of locks of resets that ended before their last step; for Unfinished

	recent [32]recentReset // resets that this node took part in, a ring
	next   int
	terms  terms

	stats AgentStats
}

// AgentStats counts what an Agent did.
type AgentStats struct {
	Led       uint64             `json:"led"`        // resets led to the end
	TakenOver uint64             `json:"taken_over"` // of those, from a resetter that crashed
	Joined    uint64             `json:"joined"`     // resets led by others
	Adopted   uint64             `json:"adopted"`    // grants of tickets that their clients had left
	ByReason  [numReasons]uint64 `json:"by_reason"`
	// LastNs is how long the last reset took that was led to its end, and SumNs all of them: from
	// the request to the free lock.
	LastNs fabric.Time `json:"last_ns"`
	SumNs  fabric.Time `json:"sum_ns"`
}

// leading is a reset that this node leads, between step 1 and step 3.
type leading struct {
	lock   fabric.Addr
	term   uint16
	locked Header // the header as set in step 1, with the ID of this node: it identifies the reset
	used   uint64 // indices below may have been given out
	await  fabric.CNSet
	began  fabric.Time
	detour fabric.Time // when next to signal through others, too
}

// recentReset says that indices of a lock below used are of before a reset.
type recentReset struct {
	lock fabric.Addr
	term uint16
	used uint64
}

// asked is a reset signal that has not been answered yet: participants are busy, or the lock is unsettled.
type asked struct {
	lock   fabric.Addr
	term   uint16
	locked Header
	used   uint64 // indices below may have been given out; it grows with each reset of a lock
	by     fabric.CNID
	via    fabric.CNID // the node that has passed the signal on; by: none
	busy   int         // participants here that have not quiesced
}

// NewAgent returns the agent of node over its agent Port.
func NewAgent(node fabric.Node, y Layout, parts Participants) *Agent {
	p := node.Agent()
	return &Agent{port: p, node: node, lay: y, parts: parts, empty: p.Alloc(int(8 * y.Capacity())), lost: node.View().Lost}
}

// Stats returns the agent's counters, updated by the goroutine that calls Handle.
func (a *Agent) Stats() *AgentStats { return &a.stats }

// Idle reports whether no reset is under way here.
func (a *Agent) Idle() bool { return len(a.leading) == 0 && len(a.asked) == 0 }

// UnderWay returns the locks of which resets are under way here, some of them twice.
func (a *Agent) UnderWay() (list []fabric.Addr) {
	for _, r := range a.leading {
		list = append(list, r.lock)
	}
	for _, r := range a.asked {
		list = append(list, r.lock)
	}
	return list
}

// AppendState appends what distinguishes two states of the agent, between two messages.
func (a *Agent) AppendState(dst []byte) []byte {
	word := func(v uint64) { dst = binary.LittleEndian.AppendUint64(dst, v) }
	inTerm := func(l fabric.Addr, term uint16) {
		if term != 0 {
			word(uint64(l) ^ uint64(term)<<40)
		}
	}
	word(uint64(len(a.leading)))
	for _, r := range a.leading {
		word(uint64(r.lock))
		inTerm(r.lock, r.term)
		word(uint64(r.locked))
		word(r.used)
		word(uint64(r.detour)) // it says when it began, too, until it is signalled through others
		for _, w := range r.await {
			word(w)
		}
	}
	word(uint64(len(a.asked)))
	for _, r := range a.asked {
		word(uint64(r.lock))
		inTerm(r.lock, r.term)
		word(uint64(r.locked))
		word(r.used)
		word(uint64(r.by)<<48 | uint64(r.via)<<32 | uint64(r.busy))
	}
	for i := range a.recent {
		if r := &a.recent[(a.next+i)%len(a.recent)]; r.lock != 0 {
			word(uint64(r.lock))
			inTerm(r.lock, r.term)
			word(r.used)
		}
	}
	for mn, term := range a.terms {
		inTerm(fabric.At(fabric.MemID(mn), 0), term)
	}
	word(a.lost)
	return dst
}

func (a *Agent) self() fabric.CNID { return a.node.ID() }

// Handle handles a message to the agent, and reports whether it was one of this
// protocol. Its error is the fabric's: the memory node of a lock cannot be
// reached; the reset is left to the next client that asks for it.
func (a *Agent) Handle(m *fabric.Message) (bool, error) {
	l, from := fabric.Addr(m.Body[0]), m.From.CN()
	if sender, to, ok := detoured(m); ok && to != a.self() {
		_ = a.port.Send(fabric.AgentOf(to), m) // in its term
		return true, nil
	} else if ok {
		from = sender
	}
	switch MessageKind(m) {
	case msgGrant, msgReport, msgMembers:
		if a.parts.Adopt(m) {
			a.stats.Adopted++
		}
	case msgGrantRange:
		a.onGrantRange(l, m.Body[1], m.Body[2])
	case msgAskReset:
		switch {
		case m.From.CN() == a.self():
			return true, a.lead(l, m.Body[1], Reason(m.Body[2]))
		case m.From.IsAgent():
			return true, a.onReminder(l, m.Body[1], Reason(m.Body[2]))
		}
	case msgReset:
		a.onReset(asked{lock: l, term: MessageTerm(m), locked: Header(m.Body[1]), used: m.Body[2], by: from, via: m.From.CN()})
	case msgResetAck:
		return true, a.onAck(l, MessageTerm(m), Header(m.Body[1]), from)
	case msgProbe:
		heard := fabric.Message{Kind: msgAnswer, Body: [7]uint64{m.Body[0], m.Body[1]}}
		inTerm(&heard, MessageTerm(m))
		_ = a.port.Send(m.From, &heard)
	case msgQuiesced:
		if m.From.CN() == a.self() {
			a.onQuiesced(l)
		}
	case fabric.MsgView:
		return true, a.onView()
	case msgAbort: // of a client that has left its inbox to us
	default:
		return false, nil
	}
	return true, nil
}

// onGrantRange passes the grant of unnamed readers on to the readers that wait here.
func (a *Agent) onGrantRange(l fabric.Addr, first, end uint64) {
	a.parts.Granted(l, first, end)
	a.readers = a.parts.WaitingReaders(l, first, end, a.readers[:0])
	for _, w := range a.readers {
		if w.Term == a.terms.at(l.MN()) {
			m := grant(l, w.Index, 0, 0, nil)
			a.send(w.Client, &m)
		}
	}
}

// grantPassed notifies readers that wait here and hold the lock, for its head has reached their index. One that the head has
// passed must have its entry in the queue still: see Client.passed. The others find out for themselves.
func (a *Agent) grantPassed(l fabric.Addr, head uint64) error {
	a.readers = a.parts.WaitingReaders(l, 0, head+1, a.readers[:0])
	for _, w := range a.readers {
		if w.Term != a.terms.at(l.MN()) {
			continue
		}
		if w.Index < head {
			a.ops[0] = fabric.Load(a.lay.entryAddr(l, w.Index))
			if err := a.port.Do(a.ops[:1]); err != nil {
				return err
			}
			if !a.lay.isOf(Entry(a.ops[0].Old), w.Index, w.Client) {
				continue
			}
		}
		m := grant(l, w.Index, 0, 0, nil)
		a.send(w.Client, &m)
	}
	return nil
}

// lead is step 1 of a reset: set the reset ID, so that no client can acquire the
// lock any more; then step 2: signal all nodes. A reset that a live node leads already
// is left to it, and one that has become needless is left alone.
func (a *Agent) lead(l fabric.Addr, index uint64, why Reason) error {
	if r := a.find(l); r != nil {
		if why == NodeFailure {
			a.signal(r) // a client waits for long: a signal may have been lost
		}
		return nil
	}
	began := a.port.Now()
	a.ops[0] = fabric.Load(l)
	if err := a.port.Do(a.ops[:1]); err != nil {
		return err
	}
	for h := Header(a.ops[0].Old); ; h = Header(a.ops[0].Old) {
		dead := h.ResetID() != 0 && !a.node.View().Live.Has(h.ResetID())
		switch {
		case h.ResetID() == a.self(): // ours, from before the node's restart: go on
		case dead: // take over
		case h.ResetID() != 0:
			m := fabric.Message{Kind: msgAskReset, Body: [7]uint64{uint64(l), index, uint64(NodeFailure)}}
			a.send(fabric.AgentOf(h.ResetID()), &m)
			return nil
		case a.needless(l, h, index, why):
			// The lock has been reset or passed on. Readers that the head has
			// reached, and that wait here still, hold it and were not notified.
			return a.grantPassed(l, a.lay.Head(h))
		}
		locked := Header(uint64(h)&^resetIDMask | uint64(a.self()))
		a.ops[0] = fabric.CAS(l, uint64(h), uint64(locked))
		if err := a.port.Do(a.ops[:1]); err != nil {
			return err
		}
		if !a.ops[0].Swapped() {
			continue
		}
		if dead {
			a.stats.TakenOver++
		}
		if why < numReasons {
			a.stats.ByReason[why]++
		}
		// Only now: a node that is not in this view has joined after the CAS, and no FAA
		// of it can have been granted.
		view := a.node.View()
		used := a.lay.Head(h) + a.lay.Size(h)
		if h.ResetID() != 0 {
			// FAAs that bounced off the earlier reset may have run qsize over. At
			// that reset's begin it was less than two capacities.
			used = a.lay.Head(h) + 2*a.lay.Capacity()
		}
		a.leading = append(a.leading, &leading{lock: l, term: a.terms.at(l.MN()), locked: locked, used: used, await: view.Live, began: began, detour: began + detourNs})
		a.signal(a.leading[len(a.leading)-1])
		return nil
	}
}

// onReminder has a reset go on which the agent of another node takes for this node's. That reset may have ended long since, and the lock's memory have been
// given to something else: without this node's ID in the header there is nothing to go on with, and nothing is changed.
func (a *Agent) onReminder(l fabric.Addr, index uint64, why Reason) error {
	if a.find(l) == nil {
		a.ops[0] = fabric.Load(l)
		if err := a.port.Do(a.ops[:1]); err != nil {
			return err
		}
		if Header(a.ops[0].Old).ResetID() != a.self() {
			return nil
		}
	}
	return a.lead(l, index, why)
}

// needless reports whether a lock with header h has been reset or passed on since
// a participant with an index wished that it were reset.
func (a *Agent) needless(l fabric.Addr, h Header, index uint64, why Reason) bool {
	switch why {
	case UnknownOutcome, Corruption:
		return false
	case QueueOverflow, VersionOverflow:
		// It is counted and never leaves, wherever the head is, until a reset.
		for _, r := range a.recent {
			if r.lock == l && r.term == a.terms.at(l.MN()) && index < r.used {
				return true
			}
		}
		return false
	}
	return a.lay.Head(h) > index
}

// detourNs is after how long a reset asks others to pass its signals on, then again when it has taken twice as long, and so on: what waits for a holder that
// holds for long is to cost few messages.
const detourNs = 10 * fabric.Millisecond

// signal is step 2: signal all nodes that have not answered. For one that does not for long, a link may be cut: then also through all others.
func (a *Agent) signal(r *leading) {
	m := fabric.Message{Kind: msgReset, Body: [7]uint64{uint64(r.lock), uint64(r.locked), r.used}}
	live := fabric.CNSet{}
	if now := a.port.Now(); now >= r.detour {
		r.detour = now + (now - r.began)
		live = a.node.View().Live
		live.Remove(a.self())
	}
	for cn, ok := r.await.Next(0); ok; cn, ok = r.await.Next(cn) {
		m.Body[6] = 0
		a.send(fabric.AgentOf(cn), &m)
		m.Body[6] = detour(a.self(), cn)
		for other, ok := live.Next(0); ok; other, ok = live.Next(other) {
			if other != cn && cn != a.self() {
				a.send(fabric.AgentOf(other), &m)
			}
		}
	}
}

// SignalAgain signals the resets that are led here and take long once more.
func (a *Agent) SignalAgain() {
	for _, r := range a.leading {
		if a.port.Now() >= r.began+detourNs {
			a.signal(r)
		}
	}
}

// Forget drops the resets of locks on a memory node that has restarted: they are void, and
// finishing one would write to a lock of another incarnation.
func (a *Agent) Forget(mn fabric.MemID) {
	for _, r := range a.leading {
		if r.lock.MN() == mn {
			a.unfinished = append(a.unfinished, r.wish())
		}
	}
	a.leading = slices.DeleteFunc(a.leading, func(r *leading) bool { return r.lock.MN() == mn })
}

// wish returns a ticket by which the reset can be asked for again.
func (r *leading) wish() Ticket {
	return Ticket{Lock: r.lock, Mode: lock.Shared, Term: r.term}
}

// Unfinished returns tickets by which to ask again for resets that were led here, and that were dropped since the last call: their last step has failed, or their
// memory node has restarted. They are led no more: a client has to ask for them again.
func (a *Agent) Unfinished() []Ticket {
	list := a.unfinished
	a.unfinished = nil
	return list
}

func (a *Agent) find(l fabric.Addr) *leading {
	for _, r := range a.leading {
		if r.lock == l {
			return r
		}
	}
	return nil
}

// onReset is step 2 at each node: abort waiters, and answer when no
// participant here holds the lock. Signals of crashed nodes are ignored (appendix B).
//
// The signal may be one that was sent again, and its reset over. Tickets with an
// index of used or above are of after it.
func (a *Agent) onReset(r asked) {
	if view := a.node.View(); !view.Live.Has(r.by) {
		return
	}
	if r.by != a.self() {
		a.stats.Joined++
	}
	l := r.lock
	if slices.ContainsFunc(a.asked, r.before) {
		return // delayed: its reset has ended, or has been taken over, and the later one still waits for an answer
	}
	a.recent[a.next%len(a.recent)] = recentReset{lock: l, term: r.term, used: r.used}
	a.next++
	r.busy, a.waiting = a.parts.Freeze(l, r.used, a.waiting[:0])
	if i := a.askedOf(l); i >= 0 {
		// A resetter that took over asks again; participants frozen for the
		// first are still to quiesce, once.
		former := &a.asked[i]
		r.busy += former.busy
		if r.by == former.by && r.via == r.by {
			r.via = former.via // the answer goes there, too
		}
		a.asked = slices.Delete(a.asked, i, i+1)
	}
	for _, w := range a.waiting {
		a.Abort(l, w)
	}
	if r.busy > 0 || !a.parts.Settled(l) {
		a.asked = append(a.asked, r)
		return
	}
	a.ack(&r)
}

// Abort has a client of this node that waits for a lock begin again.
func (a *Agent) Abort(l fabric.Addr, w Waiting) {
	m := fabric.Message{Kind: msgAbort, Body: [7]uint64{uint64(l), w.Index}}
	inTerm(&m, w.Term)
	_ = a.port.Send(w.Client, &m)
}

// before reports whether a signal is of an earlier reset than another that has not been answered.
func (r *asked) before(other asked) bool {
	return r.lock == other.lock && (r.term < other.term || r.term == other.term && r.used < other.used)
}

func (a *Agent) ack(r *asked) {
	m := fabric.Message{Kind: msgResetAck, Body: [7]uint64{uint64(r.lock), uint64(r.locked)}}
	inTerm(&m, r.term) // it may be a later one than that in which the agent is attached
	_ = a.port.Send(fabric.AgentOf(r.by), &m)
	if r.via != r.by {
		m.Body[6] = detour(a.self(), r.by)
		_ = a.port.Send(fabric.AgentOf(r.via), &m)
	}
}

// onQuiesced counts a participant down that the reset of a lock waits for.
func (a *Agent) onQuiesced(l fabric.Addr) {
	i := a.askedOf(l)
	if i < 0 || a.asked[i].busy == 0 { // or it waits for Settled
		return
	}
	r := &a.asked[i]
	if r.busy--; r.busy == 0 && a.parts.Settled(l) {
		a.ack(r)
		a.asked = slices.Delete(a.asked, i, i+1)
	}
}

// askedOf returns the index of the reset of a lock in asked, or -1.
func (a *Agent) askedOf(l fabric.Addr) int {
	return slices.IndexFunc(a.asked, func(r asked) bool { return r.lock == l })
}

// Settled answers the resets of locks on a memory node that waited for operations of this node to be settled there.
func (a *Agent) Settled(mn fabric.MemID) {
	a.asked = slices.DeleteFunc(a.asked, func(r asked) bool {
		if r.lock.MN() != mn || r.busy > 0 || !a.parts.Settled(r.lock) {
			return false
		}
		a.ack(&r)
		return true
	})
}

func (a *Agent) onAck(l fabric.Addr, term uint16, locked Header, from fabric.CNID) error {
	r := a.find(l)
	if r == nil || r.locked != locked || r.term != term {
		return nil
	}
	r.await.Remove(from)
	if r.await.Len() > 0 {
		return nil
	}
	return a.finish(r)
}

// onView stops waiting for nodes that have crashed. A number may be a new node's
// already, which does not know of our signals: they are sent again.
func (a *Agent) onView() error {
	view := a.node.View()
	live, died := view.Live, view.Lost != a.lost
	a.lost = view.Lost
	var errs []error
	for i := 0; i < len(a.leading); {
		r := a.leading[i]
		for w := range r.await {
			r.await[w] &= live[w]
		}
		if r.await.Len() > 0 {
			if died {
				a.signal(r)
			}
			i++
			continue
		}
		if err := a.finish(r); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// finish is step 3: no client holds the lock or waits for it, and none can get
// in; write an empty queue, then a header that goes on behind all indices that
// were ever given out. (By CAS: a WRITE whose outcome is unknown could be executed
// late, and undo what has come since.)
func (a *Agent) finish(r *leading) error {
	a.leading = slices.DeleteFunc(a.leading, func(x *leading) bool { return x == r })
	index := a.lay.freshIndex(r.used)
	fresh := a.lay.Header(index, 0, 0, 0)
	binary.LittleEndian.PutUint64(a.empty, 0)
	if a.node.View().Lost != 0 {
		binary.LittleEndian.PutUint64(a.empty, uint64(a.lay.recovered(index)))
	}
	a.ops[0] = fabric.Write(r.lock.Add(8), a.empty)
	a.ops[1] = fabric.CAS(r.lock, uint64(r.locked), uint64(fresh))
	for ops := a.ops[:2]; ; ops = a.ops[1:2] {
		if err := a.port.Do(ops); err != nil {
			a.unfinished = append(a.unfinished, r.wish())
			return err
		}
		now := Header(a.ops[1].Old)
		switch {
		case a.ops[1].Swapped():
			a.stats.Led++
			a.stats.LastNs = a.port.Now() - r.began
			a.stats.SumNs += a.stats.LastNs
			return nil
		case now.ResetID() != a.self():
			return nil // another node took us for crashed and has taken over
		}
		// FAAs have bounced off the header meanwhile. Each participant's does so once.
		a.ops[1] = fabric.CAS(r.lock, uint64(now), uint64(fresh))
	}
}

// send sends a message. A node that has crashed needs none; one that it does not reach for
// another reason asks again.
func (a *Agent) send(to fabric.ClientID, m *fabric.Message) {
	if len(a.terms) > 0 {
		inTerm(m, a.terms.at(fabric.Addr(m.Body[0]).MN()))
	}
	_ = a.port.Send(to, m)
}
