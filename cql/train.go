package cql

import (
	"encoding/binary"
	"errors"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// Trains: see docs/trains.md. A run of tickets that one FAA takes off the header. Its first and its last are writers'. A member passes the lock
// on by a message, and does nothing on the memory node, but for the last.

const (
	inGrant  = 3 * MaxCarried // members that a grant names
	inMore   = 3 * 5          // that a msgMembers names
	maxTrain = 1 + inGrant + inMore
)

// A members is the list of a train: all members but the first, in the order of their places, three in each word. It does not change.
type members [MaxCarried + 5]uint64

// A member is a ticket of a train, as the list of a grant has it.
//
//	  20   19         0
//	+----+-------------+
//	| ex | client (20) |
type member uint32

const memberBits = 1 + fabric.ClientIDBits

func memberOf(e Entry) member {
	return member(e.Client()) | member(e.Mode())<<fabric.ClientIDBits
}

func (m member) mode() lock.Mode { return lock.Mode(m >> fabric.ClientIDBits & 1) }

func (m member) client() fabric.ClientID { return fabric.ClientID(m & (1<<fabric.ClientIDBits - 1)) }

// A Train is what a ticket knows of the train that it is a member of. The zero value: it is of none.
type Train struct {
	list      *members // of a writer
	wait      uint32   // places of readers whose reports it waits for, a bit for each
	got       uint32   // places whose reports have come
	collector fabric.ClientID
	in        bool
	granted   bool  // the grant has come; reports may be outstanding
	phased    bool  // readers go behind the first, before all other writers
	place     uint8 // of the ticket: its index less that of the first
	length    uint8 // of the list
	// Of a reader: whom it reports to, beside collector.
	collectorPlace uint8
}

// at returns the member with a place, from 1.
func (t *Train) at(place int) member {
	i := place - 1
	return member(t.list[i/3] >> (memberBits * (i % 3)) & (1<<memberBits - 1))
}

func (l *members) push(i int, m member) { l[i/3] |= uint64(m) << (memberBits * (i % 3)) }

// nextWriter returns the place of the writer behind a member, or 0.
func (t *Train) nextWriter() int {
	for i := int(t.place) + 1; i <= int(t.length); i++ {
		if t.at(i).mode() == lock.Exclusive {
			return i
		}
	}
	return 0
}

// writers returns how many members are writers: the first is.
func (t *Train) writers() uint64 {
	n := uint64(1)
	for i := range int(t.length) {
		n += uint64(t.at(i + 1).mode())
	}
	return n
}

// complete reports whether all has come that makes the ticket hold.
func (t *Train) complete() bool { return t.granted && t.wait&^t.got == 0 }

// InTrain reports whether the ticket is a member of a train. The memory node may not have seen its grant.
func (p *Ticket) InTrain() bool { return p.Train != nil && p.Train.in }

// first returns the index of the first member of a ticket's train, or its own if it is of none.
func (p *Ticket) first() uint64 {
	if p.Train == nil {
		return p.Index
	}
	return p.Index - uint64(p.Train.place)
}

// end returns the index of the last ticket that the release of a writer takes off the header.
func (p *Ticket) end() uint64 {
	if p.Train == nil {
		return p.Index
	}
	return p.first() + uint64(p.Train.length)
}

// Token returns the fencing token of the seq-th grant under the ticket, in a memory. Readers of a phased train pass writers with lower indices.
func (p *Ticket) Token(generation uint32, seq uint16) lock.Token {
	if p.Mode == lock.Shared && p.Train != nil && p.Train.phased {
		return p.token(generation, p.first(), p.MaxSeq())
	}
	return p.token(generation, p.Index, seq)
}

func (t *Train) appendState(dst []byte) []byte {
	if t == nil {
		return append(dst, 0)
	}
	flags := uint64(1)
	if t.in {
		flags |= 2
	}
	if t.granted {
		flags |= 4
	}
	if t.phased {
		flags |= 8
	}
	for _, v := range [...]uint64{flags | uint64(t.place)<<8 | uint64(t.collector)<<16,
		uint64(t.wait)<<32 | uint64(t.got), uint64(t.collectorPlace)<<32 | uint64(t.length)<<40} {
		dst = binary.LittleEndian.AppendUint64(dst, v)
	}
	if t.list != nil {
		for _, v := range t.list {
			dst = binary.LittleEndian.AppendUint64(dst, v)
		}
	}
	return dst
}

// The words of a grant in a train, beside those of any grant:
//
//	Body[2]  63  47 46             22 21   17 16      0
//	        +------+-----------------+-------+---------+
//	        |  0   | wait            | place | behind  |   of a writer
//	        +------+-----------------+-------+---------+
//	        |  0   | place, client   | place | behind  |   of a reader: its collector's (5 + 20 bits)
//	        +------+-----------------+-------+---------+
//	Body[3]  bits 19 to 23: length of the list; 24: in a train; 25: phased
//	Body[4+words] ..: the list's first words. The others are in the msgMembers before
const (
	placeShift  = stampBits
	placeBits   = 5
	waitShift   = placeShift + placeBits
	waitBits    = maxTrain
	lengthShift = wordsShift + wordsBits
	trainShift  = lengthShift + placeBits
	phasedShift = trainShift + 1
)

// The places fit their bits, and the words of a collector those of wait.
var _ = [1]struct{}{}[(maxTrain-1)>>placeBits+waitBits-placeBits-fabric.ClientIDBits]

func (t *Train) encode(m *fabric.Message, mode lock.Mode) {
	if t == nil || !t.in {
		return
	}
	w := uint64(t.wait)
	if mode == lock.Shared {
		w = uint64(t.collectorPlace)<<fabric.ClientIDBits | uint64(t.collector)
	}
	m.Body[2] |= uint64(t.place)<<placeShift | w<<waitShift
	words := int(m.Body[3] >> wordsShift & (1<<wordsBits - 1))
	m.Body[3] |= uint64(t.length)<<lengthShift | 1<<trainShift
	if t.phased {
		m.Body[3] |= 1 << phasedShift
	}
	if t.list != nil {
		copy(m.Body[carriedFrom+words:], t.list[:MaxCarried])
	}
}

// sound reports whether what a grant says of a train can be: a release goes by it.
func (t *Train) sound() bool {
	return t.length < maxTrain && t.place < maxTrain && t.collectorPlace < maxTrain
}

// decodeTrain returns the train of which a grant is, and what has come of it before; nil if it is of none.
func decodeTrain(m *fabric.Message, mode lock.Mode, before *Train) *Train {
	w2, w3 := m.Body[2], m.Body[3]
	if w3>>trainShift&1 == 0 {
		return nil
	}
	const small = 1<<placeBits - 1
	t := &Train{in: true, granted: true, place: uint8(w2 >> placeShift & small), length: uint8(w3 >> lengthShift & small), phased: w3>>phasedShift&1 != 0}
	if before != nil {
		t.got = before.got
	}
	w := w2 >> waitShift & (1<<waitBits - 1)
	if mode == lock.Shared {
		t.collector, t.collectorPlace = fabric.ClientID(w&(1<<fabric.ClientIDBits-1)), uint8(w>>fabric.ClientIDBits)
		return t
	}
	t.wait, t.list = uint32(w), new(members)
	copy(t.list[:MaxCarried], m.Body[carriedFrom+w3>>wordsShift&(1<<wordsBits-1):])
	if before != nil && before.list != nil {
		copy(t.list[MaxCarried:], before.list[MaxCarried:])
	}
	return t
}

// Take takes a message about a ticket that waits, and reports whether it is granted by now: its grant has come, and the reports that
// this names.
func (p *Ticket) Take(m *fabric.Message) (granted bool) {
	if m.Body[0] != uint64(p.Lock) || m.Body[1] != p.Index || MessageTerm(m) != p.Term {
		return false
	}
	kind := MessageKind(m)
	if kind == msgGrant {
		t := decodeTrain(m, p.Mode, p.Train)
		if t != nil && !t.sound() {
			return false
		}
		p.Behind = Stamp(m.Body[2] & (1<<stampBits - 1))
		p.Sent, p.Carried = decodeCarried(m)
		p.Train = t
		return t == nil || t.complete()
	}
	var t Train
	if p.Train != nil {
		t = *p.Train
	}
	switch {
	case kind == msgReport:
		t.got |= 1 << (m.Body[2] & (1<<placeBits - 1))
	case kind == msgMembers && t.list == nil:
		t.list = new(members)
		copy(t.list[MaxCarried:], m.Body[2:])
	default:
		return false
	}
	p.Train = &t
	return t.complete()
}

// Merge merges what the client of a ticket has got, which leaves the queue, into what the node's agent has, and reports whether it is
// granted by both: then as a member of a train, for another grant ends the client's wait.
func (p *Ticket) Merge(client *Ticket) (granted bool) {
	switch {
	case client.Train == nil:
	case p.Train == nil && !client.Train.granted:
		p.Train = client.Train
	case p.Train == nil:
		p.Behind, p.Sent, p.Carried, p.Train = client.Behind, client.Sent, client.Carried, client.Train
	default:
		t := *p.Train
		switch list := client.Train.list; {
		case client.Train.granted && !t.granted:
			p.Behind, p.Sent, p.Carried, t = client.Behind, client.Sent, client.Carried, *client.Train
		case list != nil && t.list == nil:
			t.list = list
		case list != nil && t.granted: // the grant came to the agent, and what goes before it to the client
			all := *t.list
			copy(all[MaxCarried:], list[MaxCarried:])
			t.list = &all
		}
		t.got = p.Train.got | client.Train.got
		p.Train = &t
	}
	return p.Train != nil && p.Train.complete()
}

// trains reports whether the client passes a lock on in trains.
func (c *Client) trains(l fabric.Addr) bool {
	return c.cfg.Trains && (c.cfg.Plain == nil || !c.cfg.Plain(l))
}

// couple returns the train that begins with the writer at an index, before end: its list has the others. None: the writer is granted alone.
func (c *Client) couple(l fabric.Addr, first, end uint64) *Train {
	if !c.trains(l) || c.suspects(l, c.port.Now()) {
		return nil
	}
	// All that live may come again while those that have gone are still counted.
	live := uint64(c.node.View().Live.Len())
	if live >= c.lay.Capacity() {
		return nil
	}
	room := min(end-first, c.lay.Capacity()-live+1, maxTrain)
	if words := uint64(c.carried.Words); words > 0 {
		room = min(room, 1+3*(MaxCarried-words))
	}
	var list members
	last, n := uint64(0), uint64(0)
	for i := uint64(1); i < room; i++ {
		e := c.entry(first + i)
		if c.lay.freshness(e, first+i) != 0 {
			break
		}
		list.push(int(i-1), memberOf(e))
		if n = i; e.Mode() == lock.Exclusive {
			last = i
		}
	}
	if last == 0 {
		return nil
	}
	if !c.cfg.Phased { // what is behind the last is not read
		n = last
	}
	return &Train{in: true, phased: c.cfg.Phased, length: uint8(n), list: &list}
}

// last reports whether a member releases with the FAA for all: it is a writer with none behind.
func (t *Train) last(m lock.Mode) bool { return m == lock.Exclusive && t.nextWriter() == 0 }

// releaseMember releases a member that is not the last of its train.
func (c *Client) releaseMember(p *Ticket, before []fabric.Op) error {
	var err error
	if n := copy(c.ops[:], before); n > 0 {
		err = c.port.Do(c.ops[:n])
		k := fabric.Executed(err, n)
		copyResults(before[:k], c.ops[:k])
		p.Done = uint8(k)
	}
	switch {
	case errors.Is(err, fabric.ErrUnknownOutcome):
		// What may change yet is not the next one's to see.
		c.AskReset(p.Lock, p.Index, UnknownOutcome)
		return err
	case err != nil || p.Unsettled:
		if err != nil {
			p.Carried = Carried{}
		}
		c.ops[0] = fabric.Load(p.Lock) // the others go on if the memory node can be reached
		if fault := c.port.Do(c.ops[:1]); fault != nil {
			p.Unreleased = true
			return errors.Join(err, fault)
		}
	}
	if closed := c.passTrain(p); closed != nil {
		p.Unreleased = true
		return errors.Join(err, closed)
	}
	return err
}

// passTrain passes the lock on from a member that is not the last: from a reader by a report; from a writer to the next one, and to the readers
// that go before that. Its error says that the client, closed or fenced, can pass nothing on, nor ask its agent for the reset.
func (c *Client) passTrain(p *Ticket) error {
	t := p.Train
	p.Contended = true
	if p.Mode == lock.Shared {
		at := p.first() + uint64(t.collectorPlace)
		m := fabric.Message{Kind: msgReport, Body: [7]uint64{uint64(p.Lock), at, uint64(t.place)}}
		return c.sentMember(p, at, c.deliver(t.collector, &m))
	}
	next := *t
	next.place = uint8(t.nextWriter())
	next.wait, next.got, next.granted = 0, 0, false
	collector := t.at(int(next.place))
	from, to := t.place+1, next.place
	if t.phased {
		if to = t.length + 1; t.place > 0 {
			from = to
		}
	}
	for place := from; place < to; place++ {
		if m := t.at(int(place)); m.mode() == lock.Shared {
			next.wait |= 1 << place
			to := Train{in: true, phased: t.phased, place: place, collector: collector.client(), collectorPlace: next.place}
			if err := c.sendMember(p, m, &to); err != nil {
				return err
			}
		}
	}
	return c.sendMember(p, collector, &next)
}

// sendMember sends the grant of a member.
func (c *Client) sendMember(p *Ticket, to member, t *Train) error {
	c.stats.HandoversRemote++
	carried := p.Carried
	if t.list != nil && carried.Words > 0 && int(t.length) > 3*(MaxCarried-int(carried.Words)) {
		carried = Carried{} // it is on the memory node
	}
	index := p.first() + uint64(t.place)
	m := grant(p.Lock, index, p.Behind, c.stamp(), &carried)
	t.encode(&m, to.mode())
	err := c.sendMore(to.client(), t, &m)
	if err == nil {
		err = c.deliver(to.client(), &m)
	}
	return c.sentMember(p, index, err)
}

// sentMember deals with the error of a message to the member with an index, and returns it if the client can send no other either.
func (c *Client) sentMember(p *Ticket, index uint64, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fabric.ErrClosed), errors.Is(err, fabric.ErrFenced):
		return err
	}
	c.AskReset(p.Lock, index, NodeFailure)
	return nil
}

// A probe is what a waiter finds out about a head that stands still. A member of a train waits for a message of another member, which comes late
// if the link between their nodes is cut, and no header shows that.
type probe struct {
	lock        fabric.Addr
	term        uint16
	index, head uint64
	at          fabric.Time  // of the last look that counted
	left        fabric.CNSet // of the nodes that were asked, those that have not answered
}

// probe is called when a waiter has found a head once more that is not its index. When it finds the same one again, it asks the nodes of those that may send
// it a message in its train to answer; when it does so once more, and one has not answered, it has the lock reset. A waiter that is behind any train does nothing: a
// member finds out.
func (c *Client) probe(p *Ticket, head uint64) error {
	q, now := &c.probed, c.port.Now()
	if p.Index-head >= maxTrain {
		return nil
	}
	if q.lock != p.Lock || q.term != p.Term || q.index != p.Index || q.head != head {
		*q = probe{lock: p.Lock, term: p.Term, index: p.Index, head: head, at: now}
		return nil
	}
	if now-q.at < c.cfg.RecheckNs/2 {
		return nil // the client stood still, and makes up for looks that it has missed: no node had time to answer
	}
	q.at = now
	live := c.node.View().Live
	for i := range q.left {
		q.left[i] &= live[i]
	}
	if q.left.Len() > 0 {
		c.AskReset(p.Lock, p.Index, WaitTimeout)
	}
	c.ops[0] = c.readImage(p.Lock)
	if err := c.port.Do(c.ops[:1]); err != nil {
		return err
	}
	y, h := c.lay, c.header()
	for i := head; i < head+min(y.Size(h), y.Capacity(), maxTrain); i++ {
		e := c.entry(i)
		// A writer behind the waiter sends it nothing: that one is waited for when it is its turn.
		if sends := i < p.Index || e.Mode() == lock.Shared; sends && y.freshness(e, i) == 0 && live.Has(e.Client().CN()) {
			q.left.Add(e.Client().CN())
		}
	}
	q.left.Remove(c.port.ID().CN())
	m := fabric.Message{Kind: msgProbe, Body: [7]uint64{uint64(p.Lock), p.Index}}
	for cn, ok := q.left.Next(0); ok; cn, ok = q.left.Next(cn) {
		c.send(fabric.AgentOf(cn), &m)
	}
	return nil
}

// Hear takes the answer to a probe.
func (c *Client) Hear(m *fabric.Message) {
	if q := &c.probed; MessageKind(m) == msgAnswer && MessageTerm(m) == q.term && m.Body[0] == uint64(q.lock) && m.Body[1] == q.index {
		q.left.Remove(m.From.CN())
	}
}

// sendMore sends the members that a grant has no room for, before it.
func (c *Client) sendMore(to fabric.ClientID, t *Train, give *fabric.Message) error {
	if t == nil || t.list == nil || t.length <= inGrant {
		return nil
	}
	m := fabric.Message{Kind: msgMembers, Body: [7]uint64{give.Body[0], give.Body[1]}}
	copy(m.Body[2:], t.list[MaxCarried:])
	return c.deliver(to, &m)
}

// trainDelta is what the release of the first n tickets of the queue adds to the header, of which w are writers'.
func (y Layout) trainDelta(n, w uint64) uint64 {
	return n<<y.headShift() - n<<y.sizeShift() - w<<wcntShift
}

// delta is what the release of a ticket adds to the header: of the last of a train, for all of them.
func (c *Client) delta(p *Ticket) uint64 {
	if p.InTrain() {
		return c.lay.trainDelta(uint64(p.Train.length)+1, p.Train.writers())
	}
	return c.quick.release[p.Mode&1]
}

// without returns a header, as it was before the release of a ticket, without the other members of its train.
func (c *Client) without(p *Ticket, h Header) Header {
	if !p.InTrain() {
		return h
	}
	y, n, w := c.lay, uint64(p.Train.length), p.Train.writers()-1
	if y.Head(h) != p.first() || y.Size(h) <= n || y.Writers(h) <= w {
		return h // it is another lock by now: see passOn
	}
	return Header(uint64(h) + y.trainDelta(n, w))
}
