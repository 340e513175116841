package fiss

import (
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/internal/switched"
)

// With Config.Acks messages between machines may be lost, come twice, late and out of order, as packets of the switch may. What is answered needs nothing more: the request is sent anew until it is, and so
// its answer. Of the rest, as the paper has it for all that servers send, the receiver acknowledges each, the sender sends anew what is not acknowledged in time, and copies are dropped. TCP, which the paper
// names for that, keeps messages in order, too. Those of recoveries are kept so here; others are handled as they come, for what is late would hold up all that is behind it.
//
// A frame is a message with one word more, its last: that has the message's number, how many before it are not acknowledged yet, and the sender's incarnation.

// A link is what a machine has to do with another one.
type link struct {
	// Of what is sent: the number of the last message, those that are not acknowledged, oldest first, when to send some of these anew, and to which incarnation of the other machine they go.
	last    uint32
	unacked []fabric.Message
	timer   switched.Timer
	to      uint64
	// Of what is received: the other machine's incarnation (0: none yet), the number of the message that comes next, and those behind it that are here; without a kind: it has been handled.
	from   uint16
	next   uint32
	beyond map[uint32]fabric.Message
}

// frameAt is the word of a frame. Bits: 16 the sender's incarnation, 16 how many messages before it are not acknowledged, 32 its number.
const frameAt = 6

// sure reports whether a message between machines is acknowledged, for it is no answer.
func sure(k fabric.MsgKind) bool {
	return k == msgWaiters || k == msgGrant || k == msgLeave || k >= msgRound && k <= msgResume || k == msgLook
}

// framed reports whether a message is a frame: a switch's msgLeave has no last word.
func (p *Pool) framed(m *fabric.Message) bool {
	return p.cfg.Acks && sure(m.Kind) && m.Body[frameAt] != 0
}

// shortKey is the machine's incarnation as frames have it.
func (p *Pool) shortKey() uint16 { return max(uint16(p.key), 1) }

func (p *Pool) linkTo(cn fabric.CNID) *link {
	k := p.links[cn]
	if k == nil {
		k = &link{beyond: map[uint32]fabric.Message{}}
		p.links[cn] = k
	}
	return k
}

// sendSure sends a message to another machine's agent Port, and keeps it until it is acknowledged.
func (p *Pool) sendSure(port fabric.Port, cn fabric.CNID, m fabric.Message) {
	k := p.linkTo(cn)
	p.breaks(cn, k)
	if len(k.unacked) == 0 {
		k.timer.Tries = 0
		k.timer.Start(port.Now(), linkResends*p.cfg.ResendNs)
	}
	k.last++
	k.unacked = append(k.unacked, m)
	p.transmit(port, cn, k, len(k.unacked)-1)
	p.looksAgain(port)
}

// breaks forgets what another incarnation of a machine has not acknowledged: it has gone, and this one must not get it.
func (p *Pool) breaks(cn fabric.CNID, k *link) {
	now := k.to
	if p.incarnation != nil {
		now = p.incarnation(cn)
	}
	if now != k.to || p.view != nil && !p.view().Live.Has(cn) {
		k.to, k.unacked = now, k.unacked[:0]
	}
}

// transmit sends one of the messages that are not acknowledged.
func (p *Pool) transmit(port fabric.Port, cn fabric.CNID, k *link, i int) {
	m := k.unacked[i]
	number := k.last - uint32(len(k.unacked)-1-i)
	m.Body[frameAt] = uint64(p.shortKey())<<48 | uint64(uint16(i))<<32 | uint64(number)
	_ = port.Send(fabric.AgentOf(cn), &m)
}

// What is not acknowledged is sent anew later than what a switch has not answered, some at once: a message often comes with several others, and many acknowledgements are only late.
const (
	linkResends = 4
	atOnce      = 4
)

// relink sends anew what machines have not acknowledged in time, and reports whether there is anything that is not acknowledged.
func (p *Pool) relink(port fabric.Port) (any bool) {
	for i := range p.last { // in the order of their numbers
		cn := fabric.CNID(i)
		k := p.links[cn]
		if k == nil || len(k.unacked) == 0 {
			continue
		}
		p.breaks(cn, k)
		if k.timer.Due <= port.Now() {
			k.timer.Start(port.Now(), linkResends*p.cfg.ResendNs)
			for n := range min(len(k.unacked), atOnce) {
				p.transmit(port, cn, k, n)
			}
		}
		any = any || len(k.unacked) > 0
	}
	return any
}

// acked takes out what another machine has acknowledged: all up to the number that it expects next.
func (p *Pool) acked(port fabric.Port, m *fabric.Message) {
	k := p.links[m.From.CN()]
	if k == nil || uint16(m.Body[0]) != p.shortKey() {
		return
	}
	oldest := k.last + 1 - uint32(len(k.unacked))
	if n := int32(uint32(m.Body[1]) - oldest); n > 0 && int(n) <= len(k.unacked) {
		k.unacked = append(k.unacked[:0], k.unacked[n:]...)
		k.timer.Tries = 0
		k.timer.Start(port.Now(), linkResends*p.cfg.ResendNs)
	}
}

// receive handles a frame, unless it has come before, and one of a recovery not before those that were sent before it.
func (p *Pool) receive(port fabric.Port, m *fabric.Message) {
	from, word := m.From.CN(), m.Body[frameAt]
	k, key, number := p.linkTo(from), uint16(word>>48), uint32(word)
	oldest := number - uint32(uint16(word>>32))
	switch newer := int16(key - k.from); {
	case k.from == 0 || newer > 0: // what is not acknowledged is all that this machine is going to get
		k.from, k.next = key, oldest
		clear(k.beyond)
	case newer < 0: // of an incarnation that has gone
		return
	case int32(oldest-k.next) > 0: // before it joined, another had this machine's number
		k.next = oldest
	}
	if _, here := k.beyond[number]; !here && int32(number-k.next) >= 0 {
		f := *m
		f.Body[frameAt] = 0
		if k.beyond[number] = f; f.Kind < msgRound {
			k.beyond[number] = fabric.Message{}
			p.handle(port, &f)
		}
	}
	for f, here := k.beyond[k.next]; here; f, here = k.beyond[k.next] {
		delete(k.beyond, k.next)
		k.next++
		if f.Kind != 0 {
			p.handle(port, &f)
		}
	}
	_ = port.Send(fabric.AgentOf(from), &fabric.Message{Kind: msgAck, Body: [7]uint64{uint64(k.from), uint64(k.next)}})
}
