package cql

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// ErrAborted: the lock is being reset, or has to be; the acquisition does not
// count. Wait for the end of the reset (AwaitReset), then acquire again.
var ErrAborted = errors.New("cql: acquisition aborted by a reset")

// A Ticket is a participant's position in the queue of a lock, from Enqueue to
// Release. It is a plain value: any client that has it may release.
type Ticket struct {
	Lock  fabric.Addr
	Index uint64 // of the queue entry; a reader's may lie before its true head
	Mode  lock.Mode
	// Term is that of the lock when the ticket was asked for; 0: the lock is not replicated.
	Term uint16
	// Lean: the release reads the queue only if the FAA shows that others wait.
	Lean bool
	// Unsettled: an operation of a holder has an unknown outcome. The release is to show that it has no effect any more.
	Unsettled bool
	// Contended: others waited when the ticket was released.
	Contended bool
	// Behind is the earliest timestamp among remote waiters, as known at the
	// grant (section 5.3, prefetched remote timestamp).
	Behind Stamp
	// Sent is when the grant was sent, absent if there was none.
	Sent Stamp
	// Unreleased says, after a Release that has failed, that the fabric has refused to execute it: the ticket is in the queue.
	Unreleased bool
	// Without says, after a Release that has failed, that the lock may be released though operations of before have not been executed.
	Without bool
	// Done is, after a Release that has failed, how many operations of before have been executed for certain.
	Done uint8

	seen uint64 // the head that the waiter saw last, plus 1; 0: it has not looked
	// Carried is the value that the grant brought, or that the release is to send along with it.
	Carried Carried
	// Train is what the ticket knows of the train that it is a member of; nil: nothing. What it points to does not change, so tickets can be copied.
	Train *Train
}

// AppendState appends what distinguishes two states of the ticket.
func (p *Ticket) AppendState(dst []byte) []byte {
	flags := uint64(p.Carried.Words) << 8
	if p.Lean {
		flags |= 1
	}
	if p.Contended {
		flags |= 2
	}
	if p.Unreleased {
		flags |= 4
	}
	if p.Unsettled {
		flags |= 8
	}
	for _, v := range [...]uint64{uint64(p.Lock), p.Index, uint64(p.Mode), uint64(p.Behind)<<32 | uint64(p.Sent), p.seen,
		uint64(uint32(p.Carried.Offset))<<32 | flags} {
		dst = binary.LittleEndian.AppendUint64(dst, v)
	}
	for _, v := range p.Carried.Word[:p.Carried.Words] {
		dst = binary.LittleEndian.AppendUint64(dst, v)
	}
	if p.Term != 0 {
		dst = binary.LittleEndian.AppendUint16(dst, p.Term)
	}
	return p.Train.appendState(dst)
}

// Config of a Client. The zero value has the defaults.
type Config struct {
	// Clock gives the timestamp of a time; nil: no timestamps (all 0).
	Clock func(fabric.Time) uint16
	// RecheckNs: a waiter looks at the header when it has waited so long, and
	// again after each such time. Default 100 ms.
	RecheckNs fabric.Time
	// ResetAfterNs: a waiter asks for a reset when it has waited so long.
	// Default 10 s; it must exceed any critical section, or order is lost.
	ResetAfterNs fabric.Time
	// Suspect reports whether a lock that is not released may be a crashed node's: then a waiter
	// looks at the queue every millisecond, and asks for a reset if none has left it since
	// its last look, unless all entries are those of live nodes (goesOn); and after RecheckNs anyway. nil: never.
	Suspect func(l fabric.Addr, now fabric.Time) bool
	// Trains lets a release pass the lock to a run of waiters (docs/trains.md).
	Trains bool
	// Plain reports whether a lock must not be passed on so, because others may use it that know of no trains. nil: none.
	Plain func(l fabric.Addr) bool
	// Phased trains have one phase of readers, behind the first writer.
	Phased bool
	// RefetchMax bounds how often a release reads the queue again for an entry that does
	// not come, with pauses of up to 1 ms between, before it asks for a reset. Default 2000.
	RefetchMax int
	// Asking is called before a request for a reset is sent. nil: nothing is.
	Asking func()
}

// suspectRecheckNs is how often waiters look at a lock that is suspect.
const suspectRecheckNs = fabric.Millisecond

func (c Config) withDefaults() Config {
	if c.RecheckNs <= 0 {
		c.RecheckNs = 100 * fabric.Millisecond
	}
	if c.ResetAfterNs <= 0 {
		c.ResetAfterNs = 10 * fabric.Second
	}
	if c.RefetchMax <= 0 {
		c.RefetchMax = 2000
	}
	return c
}

// A Client runs the protocol over one Port, for whichever participant uses that
// Port at the moment. It keeps nothing about locks: their state is in Tickets.
type Client struct {
	port  fabric.Port
	lay   Layout
	cfg   Config
	node  fabric.Node
	stats *lock.Stats
	quick quick
	ops   [fabric.MaxChain]fabric.Op
	image []byte // header and queue, as read last
	terms terms

	probed    probe   // of the wait under way
	refetches int     // of the release under way
	carried   Carried // of the release under way: goes with the grants
}

// NewClient returns a client over p. node knows the live compute nodes;
// stats is where the client counts.
func NewClient(p fabric.Port, node fabric.Node, y Layout, cfg Config, stats *lock.Stats) *Client {
	return &Client{
		port: p, lay: y, cfg: cfg.withDefaults(), node: node, stats: stats, quick: y.quick(),
		image: p.Alloc(int(8 + 8*y.Capacity())),
	}
}

// AppendState appends what the client knows, beside what its last READs have found, that it has read a queue again and again.
func (c *Client) AppendState(dst []byte) []byte {
	for _, v := range [...]uint64{uint64(c.refetches), uint64(c.probed.lock), c.probed.index, c.probed.head} {
		dst = binary.LittleEndian.AppendUint64(dst, v)
	}
	for _, w := range c.probed.left {
		dst = binary.LittleEndian.AppendUint64(dst, w)
	}
	for _, term := range c.terms {
		dst = binary.LittleEndian.AppendUint16(dst, term)
	}
	return dst
}

// Layout returns the layout of the client's locks.
func (c *Client) Layout() Layout { return c.lay }

// Trim forgets the operations of the last chain, and the memory that they name.
func (c *Client) Trim() { clear(c.ops[:]) }

// Port returns the client's Port.
func (c *Client) Port() fabric.Port { return c.port }

func (c *Client) readQueue(l fabric.Addr) fabric.Op { return fabric.Read(l.Add(8), c.image[8:]) }
func (c *Client) readImage(l fabric.Addr) fabric.Op { return fabric.Read(l, c.image) }

// header returns the header of the image. It is valid after readImage only.
func (c *Client) header() Header { return Header(binary.LittleEndian.Uint64(c.image)) }

// entry returns the entry of the image in the slot of an index.
func (c *Client) entry(index uint64) Entry {
	return Entry(binary.LittleEndian.Uint64(c.image[8+8*c.lay.Slot(index):]))
}

// Enqueue begins an acquisition (Fig. 7, lines 1 to 4): one FAA on the
// header, with reads behind it in the chain. If the lock is granted at once,
// the reads were executed under it. Otherwise it writes the queue entry, with
// timestamp stamp (absent: now), and the caller must Await.
//
// Errors: ErrAborted; lock.ErrCorrupt; lock.ErrExhausted; those of the fabric: then p.Index is 0 unless the header counts p.
func (c *Client) Enqueue(p *Ticket, stamp Stamp, reads []fabric.Op) (granted bool, err error) {
	p.Term = c.terms.at(p.Lock.MN())
	c.ops[0] = fabric.FAA(p.Lock, c.quick.acquire[p.Mode&1])
	n := 1
	if len(reads) > 0 {
		n += copy(c.ops[1:], reads)
	}
	chainErr := c.port.Do(c.ops[:n])
	if chainErr != nil && fabric.Executed(chainErr, n) == 0 {
		p.Index = 0 // one of before counts no more
		c.onAtomicError(p.Lock, chainErr)
		return false, chainErr
	}
	c.stats.AcquireOps++
	h := Header(c.ops[0].Old)
	p.Behind, p.Sent, p.Carried.Words = 0, 0, 0
	if p.Train != nil {
		p.Train = nil
	}
	if c.quick.free(h) {
		p.Index = c.quick.head(h)
		return c.immediate(p, reads, c.ops[1:n], chainErr)
	}
	y := c.lay
	size, writers := y.Size(h), y.Writers(h)
	p.Index = y.Head(h) + size
	if !c.admits(p, h) {
		return false, c.refused(p, h)
	}
	if size == 0 || p.Mode == lock.Shared && writers == 0 {
		return c.immediate(p, reads, c.ops[1:n], chainErr)
	}
	return false, c.writeEntry(p, stamp)
}

// writeEntry puts a participant that the header counts into the queue (Fig. 7, lines 2 to 4).
func (c *Client) writeEntry(p *Ticket, stamp Stamp) error {
	if !stamp.Known() {
		stamp = c.stamp()
	}
	e := MakeEntry(p.Mode, c.port.ID(), c.lay.Version(p.Index), stamp.Micros())
	c.ops[0] = fabric.Store(c.lay.entryAddr(p.Lock, p.Index), uint64(e))
	if err := c.port.Do(c.ops[:1]); err != nil {
		// The header counts us, and no other client can notify us: only a reset helps.
		c.AskReset(p.Lock, p.Index, UnknownOutcome)
		return err
	}
	c.stats.AcquireOps++
	c.stats.Waits++
	return nil
}

// EnqueueCautious is Enqueue by READ and CAS, for a client whose node may have left a ticket behind in
// this lock: one that the header counts, and that no client releases before a reset does. An FAA also counts a client that it
// refuses. Clients that gave up and came again by FAA, as often as they liked before the reset began, ran qsize over
// into qhead. A CAS adds no client to a header that has no room; so qsize stays below the number of entries plus that of participants.
//
// Errors: as Enqueue's, and fabric.ErrDeadline: others were faster at each attempt until the deadline.
func (c *Client) EnqueueCautious(p *Ticket, stamp Stamp, reads []fabric.Op, deadline fabric.Time) (granted bool, err error) {
	return c.enqueueByCAS(p, stamp, reads, deadline, false)
}

// TryEnqueue acquires the lock if that is possible at once: READ and CAS, so
// that it leaves no trace otherwise. reads go behind the CAS.
func (c *Client) TryEnqueue(p *Ticket, reads []fabric.Op) (granted bool, err error) {
	return c.enqueueByCAS(p, 0, reads, fabric.Forever, true)
}

// enqueueByCAS adds a participant to the header by READ and CAS. With try, it leaves a lock alone that does not grant it at once.
func (c *Client) enqueueByCAS(p *Ticket, stamp Stamp, reads []fabric.Op, deadline fabric.Time, try bool) (granted bool, err error) {
	y := c.lay
	p.Index, p.Term = 0, c.terms.at(p.Lock.MN())
	c.ops[0] = fabric.Load(p.Lock)
	if err := c.port.Do(c.ops[:1]); err != nil {
		return false, err
	}
	c.stats.AcquireOps++
	for h := Header(c.ops[0].Old); ; h = Header(c.ops[0].Old) {
		size, writers := y.Size(h), y.Writers(h)
		p.Index, p.Behind, p.Sent, p.Carried.Words, p.Train = y.Head(h)+size, 0, 0, 0, nil
		grants := size == 0 || p.Mode == lock.Shared && writers == 0
		switch {
		case try && (h.ResetID() != 0 || size >= y.Capacity() || !grants):
			return false, nil
		case !c.admits(p, h):
			return false, c.refused(p, h)
		}
		c.ops[0] = fabric.CAS(p.Lock, uint64(h), uint64(h)+y.acquireDelta(p.Mode))
		n := 1 + copy(c.ops[1:], reads)
		err := c.port.Do(c.ops[:n])
		if err != nil && fabric.Executed(err, n) == 0 {
			p.Index = 0
			c.onAtomicError(p.Lock, err)
			return false, err
		}
		c.stats.AcquireOps++
		switch {
		case c.ops[0].Swapped() && grants:
			return c.immediate(p, reads, c.ops[1:n], err)
		case c.ops[0].Swapped():
			return false, c.writeEntry(p, stamp)
		case err == nil && c.port.Now() >= deadline:
			err = fabric.ErrDeadline
		}
		if err != nil { // perhaps of a READ behind the CAS
			p.Index = 0
			return false, err
		}
	}
}

// admits reports whether the participant that adds itself to a header, and gets the index of p, may stay.
func (c *Client) admits(p *Ticket, h Header) bool {
	y := c.lay
	return h.ResetID() == 0 && y.Size(h) < y.Capacity() && !y.exhausted(p.Index) && y.Writers(h) <= y.Size(h) && !c.ends(p)
}

// ends reports whether a ticket's index is beyond what the header or a token can hold.
func (c *Client) ends(p *Ticket) bool {
	return p.Index >= c.lay.maxIndex() || p.Term != 0 && p.Index >= maxTermIndex
}

// refused finds out why a header does not admit the participant that an FAA has just
// added to it, and sees to what has to be done.
func (c *Client) refused(p *Ticket, h Header) error {
	switch {
	case h.ResetID() != 0:
		// The header is void: its reset moves the head on, however far.
		p.Index = 0
	case c.lay.Writers(h) > c.lay.Size(h):
		c.AskReset(p.Lock, p.Index, Corruption)
		return fmt.Errorf("%w at %v: %s", lock.ErrCorrupt, p.Lock, c.lay.FormatHeader(h))
	case c.ends(p):
		return fmt.Errorf("%w at %v: %s", lock.ErrExhausted, p.Lock, c.lay.FormatHeader(h))
	case c.lay.Size(h) >= c.lay.Capacity():
		c.AskReset(p.Lock, p.Index, QueueOverflow)
	default:
		c.AskReset(p.Lock, p.Index, VersionOverflow)
	}
	c.stats.Aborts++
	return ErrAborted
}

// immediate ends an acquisition that was granted at once: unless one of the
// READs behind it failed, when the lock is given back.
func (c *Client) immediate(p *Ticket, reads, done []fabric.Op, err error) (granted bool, _ error) {
	if err != nil {
		return false, errors.Join(err, c.Release(p, nil))
	}
	c.stats.Immediate++
	if len(reads) > 0 {
		copyResults(reads, done)
	}
	return true, nil
}

// copyResults copies the results of operations that were executed as copies.
func copyResults(dst, src []fabric.Op) {
	for i := range dst {
		dst[i].Old = src[i].Old
	}
}

// Await waits for the grant of an enqueued ticket (Fig. 7, line 5). Errors:
// ErrAborted when the agent says so, fabric.ErrDeadline, fabric.ErrInterrupted.
// After the latter two the ticket is still in the queue, and its grant will
// come: the caller must leave the port's inbox to the agent (Port.Abandon).
func (c *Client) Await(p *Ticket, deadline fabric.Time) error {
	began := c.port.Now()
	next := began + c.lookAgainNs(p.Lock, began)
	p.seen = 0
	for {
		m, err := c.port.Recv(min(deadline, next))
		switch {
		case err == nil:
			switch {
			case m.Body[0] != uint64(p.Lock) || m.Body[1] != p.Index || MessageTerm(&m) != p.Term: // of a wait that is over
			case MessageKind(&m) == msgAbort && m.From == fabric.AgentOf(c.port.ID().CN()):
				c.stats.Aborts++
				return ErrAborted
			case p.Take(&m):
				return nil
			default:
				c.Hear(&m)
			}
		case errors.Is(err, fabric.ErrDeadline) && next < deadline:
			done, err := c.Recheck(p, c.port.ID(), next-began)
			if done || err != nil {
				return err
			}
			next += c.lookAgainNs(p.Lock, next)
		default:
			return err
		}
	}
}

// suspects reports whether a lock may be a crashed node's.
func (c *Client) suspects(l fabric.Addr, now fabric.Time) bool {
	return c.cfg.Suspect != nil && c.cfg.Suspect(l, now)
}

// lookAgainNs is after how long a waiter looks at a lock.
func (c *Client) lookAgainNs(l fabric.Addr, now fabric.Time) fabric.Time {
	if c.suspects(l, now) {
		return min(suspectRecheckNs, c.cfg.RecheckNs)
	}
	return c.cfg.RecheckNs
}

// stamp returns the timestamp of now, absent without a clock.
func (c *Client) stamp() Stamp {
	if c.cfg.Clock == nil {
		return 0
	}
	return KnownStamp(c.cfg.Clock(c.port.Now()))
}

// RecheckNs returns after how long a waiter looks at the header, and again each time.
func (c *Client) RecheckNs() fabric.Time { return c.cfg.RecheckNs }

// Recheck looks at the header for a waiter that has waited long, owner being the client that enqueued the ticket: it may hold
// the lock already, if the node that should have notified it has crashed. It holds the lock when its index is the
// head, for only holders leave the queue and all before it have gone. See passed for a head that is beyond its index.
func (c *Client) Recheck(p *Ticket, owner fabric.ClientID, waitedNs fabric.Time) (granted bool, err error) {
	c.ops[0] = fabric.Load(p.Lock)
	if err := c.port.Do(c.ops[:1]); err != nil {
		return false, err
	}
	h := Header(c.ops[0].Old)
	head := c.lay.Head(h)
	switch {
	case h.ResetID() != 0:
		// A reset is under way, and its signal will come; unless its resetter has
		// crashed, or has lost it to an error of the fabric.
		c.AskReset(p.Lock, p.Index, NodeFailure)
	case head == p.Index:
		p.Train = nil // it is no member, or the first of a train whose list is lost: it releases alone
		return true, nil
	case head > p.Index:
		return c.passed(p, owner)
	case waitedNs >= c.cfg.ResetAfterNs:
		c.AskReset(p.Lock, p.Index, WaitTimeout)
	case c.suspects(p.Lock, c.port.Now()):
		stands := p.seen == head+1
		p.seen = head + 1
		if waitedNs < c.cfg.RecheckNs {
			if !stands {
				return false, nil
			}
			if goesOn, err := c.goesOn(p.Lock, head); goesOn || err != nil {
				return false, err
			}
		}
		c.AskReset(p.Lock, p.Index, WaitTimeout)
	case c.trains(p.Lock):
		return false, c.probe(p, head)
	}
	return false, nil
}

// passed decides for a waiter whose index is below the head, which is no grant in itself: a reset moves the head, too.
// A reset waits for all waiters, and so leaves none of them behind; but if one did, its waiters must not take
// the lock, nor wait for ever.
//
// A reader holds the lock if its entry is still in the queue, for a reset empties that; the head may be many rounds
// ahead of such a reader. If others have used the slot since, nothing distinguishes the two cases. A writer's ticket is void: the head
// passes it when it releases the lock, or in a reset. Then the lock is reset, which aborts this waiter.
func (c *Client) passed(p *Ticket, owner fabric.ClientID) (granted bool, err error) {
	if p.Mode == lock.Shared {
		c.ops[0] = fabric.Load(c.lay.entryAddr(p.Lock, p.Index))
		if err := c.port.Do(c.ops[:1]); err != nil {
			return false, err
		}
		if c.lay.isOf(Entry(c.ops[0].Old), p.Index, owner) {
			return true, nil
		}
	}
	c.AskReset(p.Lock, p.Index, UnknownOutcome)
	return false, nil
}

// goesOn reports whether a lock whose head has not moved for a while may be passed on without a reset: the entry of the head is there, and
// no entry that the header counts is a crashed node's. Holders that were granted at once have none. Whose turn it is
// does not matter: the lock cannot get past a crashed node without a reset.
func (c *Client) goesOn(l fabric.Addr, head uint64) (bool, error) {
	c.ops[0] = c.readImage(l)
	if err := c.port.Do(c.ops[:1]); err != nil {
		return false, err
	}
	h, y := c.header(), c.lay
	if h.ResetID() != 0 || y.Head(h) != head {
		return true, nil // it has moved since
	}
	if y.freshness(c.entry(head), head) < 0 {
		return false, nil
	}
	live := c.node.View().Live
	for i := head; i < head+min(y.Size(h), y.Capacity()); i++ {
		if e := c.entry(i); y.freshness(e, i) == 0 && !live.Has(e.Client().CN()) {
			return false, nil
		}
	}
	return true, nil
}

// AwaitReset waits until no agent is resetting the lock, looking at the header
// with growing pauses. Errors: fabric.ErrDeadline, fabric.ErrInterrupted, others of the fabric.
func (c *Client) AwaitReset(p *Ticket, deadline fabric.Time) error {
	const first, last = 2 * fabric.Microsecond, fabric.Millisecond
	const askEvery = 16 // pauses of the last length
	pause, slow := first, 0
	for {
		c.ops[0] = fabric.Load(p.Lock)
		if err := c.port.Do(c.ops[:1]); err != nil {
			return err
		}
		h := Header(c.ops[0].Old)
		if h.ResetID() == 0 && c.lay.Head(h) > p.Index {
			return nil
		}
		now := c.port.Now()
		if now >= deadline {
			return fabric.ErrDeadline
		}
		if pause == last {
			// Nothing has happened for long: the wish for a reset may have been
			// dropped (another reset had just ended), or its resetter has crashed or
			// has lost the reset to an error of the fabric.
			if h.ResetID() == 0 && c.lay.Size(h) < c.lay.Capacity() && !c.lay.exhausted(c.lay.Head(h)+c.lay.Size(h)) {
				return nil
			}
			slow++
			if !c.node.View().Live.Has(h.ResetID()) || slow%askEvery == 0 {
				c.AskReset(p.Lock, p.Index, NodeFailure)
			}
		}
		if err := c.port.Pause(min(deadline, now+pause)); err != nil {
			return err
		}
		pause = min(2*pause, last)
	}
}

// AskReset asks the node's agent to reset a lock, unless that is needless by then: for WaitTimeout and NodeFailure, if the head is beyond
// index; for an overflow, if a reset has voided index; for the other reasons never.
func (c *Client) AskReset(l fabric.Addr, index uint64, why Reason) {
	c.stats.Resets++
	if c.cfg.Asking != nil {
		c.cfg.Asking()
	}
	m := fabric.Message{Kind: msgAskReset, Body: [7]uint64{uint64(l), index, uint64(why)}}
	c.send(fabric.AgentOf(c.port.ID().CN()), &m)
}

// Regrant sends a grant that has come on to the node's agent, which adopts the ticket. Its error says that the client is closed.
func (c *Client) Regrant(p *Ticket) error {
	m, agent := grant(p.Lock, p.Index, p.Behind, 0, &p.Carried), fabric.AgentOf(c.port.ID().CN())
	p.Train.encode(&m, p.Mode)
	if err := c.sendMore(agent, p.Train, &m); err != nil {
		return err
	}
	return c.deliver(agent, &m)
}

// Quiesced notifies the agent that a participant that a reset waits for is done.
func (c *Client) Quiesced(l fabric.Addr) {
	m := fabric.Message{Kind: msgQuiesced, Body: [7]uint64{uint64(l)}}
	c.send(fabric.AgentOf(c.port.ID().CN()), &m)
}

// onAtomicError asks for a reset if an atomic may have taken place and we cannot know.
func (c *Client) onAtomicError(l fabric.Addr, err error) {
	if errors.Is(err, fabric.ErrUnknownOutcome) {
		c.AskReset(l, 0, UnknownOutcome)
	}
}

// send sends a message, and reports whether that was possible: not to a crashed node.
func (c *Client) send(to fabric.ClientID, m *fabric.Message) bool { return c.deliver(to, m) == nil }

// deliver sends a message about a lock, with its term.
func (c *Client) deliver(to fabric.ClientID, m *fabric.Message) error {
	if len(c.terms) > 0 {
		inTerm(m, c.terms.at(fabric.Addr(m.Body[0]).MN()))
	}
	return c.port.Send(to, m)
}

// Earliest reads the queue and returns the earliest timestamp of the
// waiters while p is held, absent if there are none (section 5.3, prefetch).
func (c *Client) Earliest(p *Ticket) (Stamp, error) {
	c.ops[0] = c.readImage(p.Lock)
	if err := c.port.Do(c.ops[:1]); err != nil {
		return 0, err
	}
	c.stats.Prefetches++
	h := c.header()
	head, size := c.lay.Head(h), c.lay.Size(h)
	if size > c.lay.Capacity() || c.lay.Writers(h) == 0 {
		return 0, nil // readers only: none waits
	}
	if p.Mode == lock.Exclusive {
		if head != p.first() {
			return 0, nil // not held any more
		}
		return c.earliest(p.Index+1, head+size), nil
	}
	// Readers before the first writer hold the lock, also those with an entry.
	i := head
	if p.InTrain() {
		i = max(head, p.Index)
	}
	for ; i < head+size; i++ {
		if e := c.entry(i); c.lay.freshness(e, i) == 0 && e.Mode() == lock.Exclusive {
			return c.earliest(i, head+size), nil
		}
	}
	return 0, nil
}

// earliest returns the earliest timestamp among valid entries of the image
// with indices from first to before end. (The READ may tear between header and
// entries: an entry is used only if its version is that of its index.)
func (c *Client) earliest(first, end uint64) Stamp {
	var s Stamp
	for i := first; i < end; i++ {
		if e := c.entry(i); c.lay.freshness(e, i) == 0 {
			s = Earliest(s, KnownStamp(e.Stamp()))
		}
	}
	return s
}
