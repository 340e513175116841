package sim

import "github.com/declock/declock/fabric"

// A linkFault is something wrong with one direction between two nodes.
type linkFault struct {
	from, to Endpoint
	until    fabric.Time
	delay    fabric.Time // what passes takes so much longer; cut: it waits until the end
	cut      bool
}

// Cut lets nothing pass from one node to another until a virtual time: messages and
// operations (or, from a memory node, their answers) arrive after that, in order. If
// Config.BreakAfter is not 0, a chain that is held up for longer
// ends with ErrUnknownOutcome after that time; if its request was held up, it has
// no effect. At least one of the two nodes must be a compute node.
func (c *Cluster) Cut(from, to Endpoint, until fabric.Time) {
	c.fault(linkFault{from: from, to: to, until: until, cut: true})
}

// Delay makes everything that is sent from one node to another until a virtual time take longer
// by extra, in order.
func (c *Cluster) Delay(from, to Endpoint, extra, until fabric.Time) {
	c.fault(linkFault{from: from, to: to, until: until, delay: extra})
}

// fault adds a fault, and forgets those that are over.
func (c *Cluster) fault(f linkFault) {
	keep := c.links[:0]
	for _, l := range c.links {
		if l.until > c.now {
			keep = append(keep, l)
		}
	}
	c.links = append(keep, f)
}
