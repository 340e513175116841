package sim

import (
	"slices"

	"github.com/declock/declock/fabric"
)

// A linkFault is something wrong with one direction between two nodes.
type linkFault struct {
	from, to Endpoint
	until    fabric.Time
	delay    fabric.Time // what passes takes so much longer; cut: it waits until the end
	cut      bool
	twice    bool // messages come again, after up to delay
}

// Cut lets nothing pass from one node to another until a virtual time: messages and
// operations (or, from a memory node, their answers) arrive after that, in order. If
// Config.BreakAfter is not 0, a chain that is held up for longer
// ends with ErrUnknownOutcome after that time; if its request was held up, it has
// no effect, also later. At least one of the two nodes must be a compute node.
func (c *Cluster) Cut(from, to Endpoint, until fabric.Time) {
	c.fault(linkFault{from: from, to: to, until: until, cut: true})
}

// Delay makes everything that is sent from one node to another until a virtual time take longer
// by extra, in order.
func (c *Cluster) Delay(from, to Endpoint, extra, until fabric.Time) {
	c.fault(linkFault{from: from, to: to, until: until, delay: extra})
}

// Duplicate makes messages that are sent from one compute node to another until a virtual time come twice:
// every other one, drawn; the second after up to extra, whatever else has come between. That is
// more than a fabric may do: what a protocol survives, it need not fear of a retransmission.
func (c *Cluster) Duplicate(from, to Endpoint, extra, until fabric.Time) {
	c.fault(linkFault{from: from, to: to, until: until, delay: max(extra, 1), twice: true})
}

// again reports whether a message sent now comes a second time, and how much later.
func (c *Cluster) again(from, to Endpoint) (extra fabric.Time, ok bool) {
	for _, l := range c.links {
		if l.twice && l.from == from && l.to == to && c.now < l.until && c.faults.Uint64()&1 == 0 {
			c.faultStats[Duplicated]++
			return 1 + fabric.Time(c.faults.Uint64n(uint64(l.delay))), true
		}
	}
	return 0, false
}

// fault adds a fault, and forgets those that are over.
func (c *Cluster) fault(f linkFault) {
	c.links = append(slices.DeleteFunc(c.links, func(l linkFault) bool { return l.until <= c.now }), f)
}

// passes returns when something sent now arrives, which without faults would be at a time.
func (c *Cluster) passes(from, to Endpoint, at fabric.Time) fabric.Time {
	held, extra := c.now, fabric.Time(0)
	for _, l := range c.links {
		switch {
		case l.from != from || l.to != to || c.now >= l.until || l.twice:
		case l.cut:
			held = max(held, l.until)
		default:
			extra += l.delay
		}
	}
	c.faultStats.passes(from, to, held > c.now, extra > 0)
	return at + (held - c.now) + extra
}

// breaks reports whether something that arrives at a time instead of another breaks a connection.
func (c *Cluster) breaks(at, instead fabric.Time) bool {
	broken := c.cfg.BreakAfter > 0 && at-instead > c.cfg.BreakAfter
	if broken {
		c.faultStats[Broken]++
	}
	return broken
}

// request returns when a segment of a chain arrives at its memory node; or, if it is lost, when its connection breaks, and
// when it would have arrived.
func (c *Cluster) request(ch *Chain, at fabric.Time) (when, there fabric.Time) {
	there = c.passes(OfCN(ch.port.node.id), OfMN(ch.qp.mn.id), at)
	if c.breaks(there, at) {
		ch.lost = true
		return c.now + c.cfg.BreakAfter, there
	}
	return there, there
}

// answered returns when the answer to a chain's present operation arrives, or when its connection breaks.
func (c *Cluster) answered(ch *Chain, at fabric.Time) fabric.Time {
	there := c.passes(OfMN(ch.qp.mn.id), OfCN(ch.port.node.id), at)
	if !c.breaks(there, at) {
		return there
	}
	if ch.broken == 0 {
		ch.broken = 1 + ch.cur
	}
	return c.now + c.cfg.BreakAfter
}
