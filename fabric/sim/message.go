package sim

import (
	"fmt"

	"github.com/declock/declock/fabric"
)

// An inbox is a ring of messages.
type inbox struct {
	ring []fabric.Message // a power of two
	head int
	len  int
}

const firstInbox = 4

func (b *inbox) push(m fabric.Message) {
	if b.len == len(b.ring) {
		ring := make([]fabric.Message, max(firstInbox, 2*len(b.ring)))
		n := copy(ring, b.ring[b.head:])
		copy(ring[n:], b.ring[:b.head])
		b.ring, b.head = ring, 0
	}
	b.ring[(b.head+b.len)&(len(b.ring)-1)] = m
	b.len++
}

func (b *inbox) pop() fabric.Message {
	m := b.ring[b.head]
	b.head = (b.head + 1) & (len(b.ring) - 1)
	b.len--
	return m
}

// A flight is a message under way.
type flight struct {
	msg  fabric.Message
	src  *Node // nil: the fabric itself
	dst  *Node
	to   fabric.ClientID
	next uint32 // of the free list
}

func (c *Cluster) newFlight(m fabric.Message, src, dst *Node, to fabric.ClientID) uint32 {
	i := c.freeMsg
	if i == none {
		i = uint32(len(c.flights))
		c.flights = append(c.flights, flight{})
	} else {
		c.freeMsg = c.flights[i].next
	}
	c.flights[i] = flight{msg: m, src: src, dst: dst, to: to}
	return i
}

// Unsent returns how many messages of the node to others are under way. Real fabrics send what is queued before a node leaves.
func (n *Node) Unsent() (count int) {
	for i := range n.c.flights {
		if f := &n.c.flights[i]; f.src == n && f.dst != n {
			count++
		}
	}
	return count
}

// Send sends a message. It takes the CPU's time, and returns at once.
func (p *Port) Send(to fabric.ClientID, m *fabric.Message) error {
	p.enter()
	err := p.send(to, m)
	p.acted(err)
	return err
}

func (p *Port) send(to fabric.ClientID, m *fabric.Message) error {
	c, n := p.c, p.node
	if p.closed {
		return fabric.ErrClosed
	}
	dst := c.cns[to.CN()]
	switch {
	case to.CN() == n.id:
		dst = n // also when the cluster has given it up, and its number to another
	case n.fenced:
		return fmt.Errorf("sim: send to %v: %w", to, fabric.ErrFenced)
	case dst == nil || !n.knows(dst):
		return fmt.Errorf("sim: send to %v: %w", to, fabric.ErrNodeDown)
	}
	i := c.newFlight(*m, n, dst, to)
	c.flights[i].msg.From = p.id
	at := c.now
	switch {
	case dst == n:
		p.stats.SentLocal++
		at += c.nic.LocalWake
	case n.besides(dst):
		p.stats.Sent++
		at += c.nic.LocalWake
	default:
		p.stats.Sent++
		at = c.messageArrival(p, to)
	}
	c.note(StepSend, p.id, uint64(to), m.Body[0])
	c.observeMessage(StepSend, &c.flights[i])
	if dst.device != nil && dst != n {
		c.deliverOver(dst.device, i, at)
		return nil
	}
	if c.between != nil && dst != n && !n.besides(dst) {
		c.deliverOver(c.between, i, at)
		return nil
	}
	c.post(at, evDeliver, i, 0)
	if len(c.links) > 0 && dst != n {
		if extra, ok := c.again(OfCN(n.id), OfCN(dst.id)); ok {
			k := c.newFlight(c.flights[i].msg, n, dst, to)
			c.post(at+extra, evDeliver, k, 0)
		}
	}
	return nil
}

// messageArrival returns when a message that p sends now will be in an inbox
// of to. What the NIC model gives for it includes posting and polling; waiting
// for the CPU and the wires comes on top.
func (c *Cluster) messageArrival(p *Port, to fabric.ClientID) fabric.Time {
	n, dst, nic := p.node, c.cns[to.CN()], c.nic
	start := max(p.core.free, c.now)
	p.core.free = start + c.drawPost()
	bytes := nic.Overhead + fabric.MaxMessage
	left := n.nic.out.carry(c.now, start, bytes, nic.BytePs)
	if dst.device != nil {
		at := c.halfWay(left)
		if len(c.links) > 0 {
			at = c.passes(OfCN(n.id), OfCN(dst.id), at)
		}
		return at
	}
	there := dst.nic.in.carry(c.now, left, bytes, nic.BytePs)
	at := there + c.minMessage + fabric.Time(c.timing.Uint64n(uint64(c.spanMessage)))
	if len(c.links) > 0 {
		at = c.passes(OfCN(n.id), OfCN(dst.id), at)
	}
	if c.cfg.Stray > 0 {
		return c.stray(p.id, to, at)
	}
	at = max(at, n.lastMsg[dst.id]) // FIFO between two nodes
	n.lastMsg[dst.id] = at
	return at
}

// stray returns when a message arrives that would at a time: most stray little, some far, and none overtakes another
// between the same clients.
func (c *Cluster) stray(from, to fabric.ClientID, at fabric.Time) fabric.Time {
	at += fabric.Time(c.faults.Uint64n(uint64(c.cfg.Stray)+1) >> c.faults.Uint64n(8))
	pair := [2]fabric.ClientID{from, to}
	if c.lastOfPair == nil {
		c.lastOfPair = map[[2]fabric.ClientID]fabric.Time{}
	}
	at = max(at, c.lastOfPair[pair])
	c.lastOfPair[pair] = at
	return at
}

// inboxOf returns the Port that gets the messages for a client, nil if there is none.
func (c *Cluster) inboxOf(id fabric.ClientID) *Port { return c.cns[id.CN()].inboxOf(id.Index()) }

// inboxOf returns the Port that gets the messages for an index, nil if there is none.
func (n *Node) inboxOf(i int) *Port {
	if n.dead || n.closed || i >= len(n.clients) {
		return nil
	}
	var p *Port
	switch n.clients[i].state {
	case clientOpen:
		p = n.clients[i].port
	case clientAbandoned:
		p = n.agent
	}
	if p != nil && p.closed {
		return nil
	}
	return p
}

// freeFlight forgets a message that has arrived or is lost.
func (c *Cluster) freeFlight(i uint32) {
	c.flights[i].src, c.flights[i].next = nil, c.freeMsg
	c.freeMsg = i
}

// deliver puts a message into the inbox that it is for.
func (c *Cluster) deliver(i uint32) {
	f := &c.flights[i]
	if f.dst.device != nil && !f.dst.dead {
		n, src, in := f.dst, f.src, f.msg
		c.note(StepDeliver, in.From, uint64(f.to), uint64(in.Kind))
		c.observeMessage(StepDeliver, f)
		c.freeFlight(i)
		if src != nil && !n.waits && n.knows(src) { // not news of the fabric itself
			c.process(n, in)
		}
		return
	}
	var p *Port
	if n := f.dst; f.src == nil || f.src == n || n.knows(f.src) {
		p = n.inboxOf(f.to.Index())
	}
	step := StepDrop
	if p != nil {
		step = StepDeliver
		p.in.push(f.msg)
	}
	c.note(step, f.msg.From, uint64(f.to), uint64(f.msg.Kind))
	c.observeMessage(step, f)
	c.freeFlight(i)
	if step == StepDeliver && p.wait == WaitRecv {
		c.wakeOnCPU(p)
	}
}
