package sim

import (
	"slices"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

// A membership is one incarnation of a node, as a member of the cluster. The rules are those of member.Ledger, as for
// every coordinator: this file is the coordinator, which no fault hits, and what each node does with its states.
type membership struct {
	index uint32 // in Cluster.members
	entry *member.Entry
	node  *Node    // of a compute node
	mn    *memNode // of a memory node
	acts  uint64   // revision of the state that the node acts on
	// The node is cut off from the coordinator until detached.
	detached fabric.Time
	// States show the incarnation from revision since on, count it as a member before ended, and as live before forgotten.
	since, ended, forgotten uint64
}

// enter makes an incarnation a member: it was reserved.
func (c *Cluster) enter(m *membership) {
	c.ledger.Join(m.entry)
	m.index = uint32(len(c.members))
	m.since, m.ended, m.forgotten = m.entry.Since, member.Unnoted, member.Unnoted
	m.acts = m.since // a node that joins knows those that were there before
	c.members = append(c.members, m)
	c.ledger.Ack(m.entry, m.acts)
	c.changed()
}

// leave ends an incarnation: how is member.Left or member.Died.
func (c *Cluster) leave(m *membership, how member.Phase) {
	if m.entry.Phase != member.Joined {
		return
	}
	c.ledger.End(m.entry, how)
	m.ended = m.entry.Since
	if m.node != nil && len(c.ledger.Groups) > 0 {
		m.node.lapse()
	}
	c.changed()
}

// changed follows each change of the ledger: it sends the news.
func (c *Cluster) changed() {
	if !c.begun || c.cfg.NewsDelay == 0 && !(c.untimed != nil && c.untimed.OneByOne) {
		c.tellAll()
		return
	}
	c.noteServed()
	c.forget()
	for _, m := range c.members {
		if m.entry.Phase == member.Joined || m.node != nil && m.entry.Phase == member.Died && !m.node.fenced {
			c.tellSoon(m)
		}
	}
}

// tellSoon has a node hear of the present state after a time of its own.
func (c *Cluster) tellSoon(m *membership) {
	if c.untimed != nil {
		c.untimed.tellSoon(m)
		return
	}
	c.post(c.newsAt(), evNews, m.index, 0)
}

// newsAt draws when something arrives that goes from the coordinator to a node, or the other way: more often
// soon than late, so that one node is late when all others are soon.
func (c *Cluster) newsAt() fabric.Time {
	delay := c.news.Uint64n(uint64(c.cfg.NewsDelay)) >> c.news.Uint64n(8)
	return c.now + 1 + fabric.Time(delay)
}

// tellAll has all nodes act on the present state at once, and on what follows when all have acknowledged it:
// states between are skipped.
func (c *Cluster) tellAll() {
	for told := uint64(0); told != c.ledger.Revision; {
		told = c.ledger.Revision
		for _, m := range c.members {
			if m.entry.Phase == member.Joined {
				m.acts = told
				c.ledger.Ack(m.entry, told)
			}
		}
	}
	c.forget()
	if groups := c.groups(); groups != nil {
		for _, mn := range c.mns {
			if mn.member.entry.Phase == member.Joined {
				mn.regroup(groups)
			}
		}
	}
	c.noteServed()
	for _, n := range c.nodes {
		n.learn()
	}
}

// hears delivers the present state to a node: the node acts on it from now on, and then acknowledges it.
func (c *Cluster) hears(m *membership) {
	n, now := m.node, c.ledger.Revision
	switch {
	case m.acts == now || n != nil && (n.dead || n.closed) || m.mn != nil && m.mn.dead:
		return
	case n != nil && n.paused:
		n.deaf = true // until Resume
		return
	case c.now < m.detached:
		c.faultStats[HeldNews]++
		c.post(m.detached, evNews, m.index, 0)
		return
	}
	m.acts = now
	c.note(StepNews, fabric.AgentOf(m.entry.CN.ID), uint64(m.entry.MN.ID), now)
	c.observe(Event{Step: StepNews, Client: fabric.AgentOf(m.entry.CN.ID), Mem: m.entry.MN.ID})
	if n != nil {
		n.learn()
	} else {
		m.mn.regroup(c.groups())
	}
	if c.untimed != nil {
		c.acks(m, now)
		return
	}
	c.post(c.newsAt(), evAck, m.index, now)
}

// acks delivers the acknowledgement of a member to the coordinator: the member acts on a revision.
func (c *Cluster) acks(m *membership, revision uint64) {
	if c.now < m.detached {
		c.post(m.detached, evAck, m.index, revision)
		return
	}
	before := c.ledger.Revision
	c.ledger.Ack(m.entry, revision)
	if c.ledger.Revision != before {
		c.changed()
	}
	c.admit()
}

// takeView makes a node act on a view, and notes which incarnations of nodes are live in it.
func (n *Node) takeView(v fabric.View) {
	n.view, n.incarnations = v, nil
	for _, e := range n.c.ledger.Entries {
		if e.IsCN() && v.Live.Has(e.CN.ID) && e.Phase != member.Reserved {
			n.incarnations = append(n.incarnations, e.CN)
		}
	}
}

// Incarnation returns which of the nodes that have had a number is live with it in the state that this node acts on; 0: none is.
func (n *Node) Incarnation(id fabric.CNID) uint64 {
	for i := range n.incarnations {
		if e := &n.incarnations[i]; e.ID == id {
			n.c.tell(uint64(e.Incarnation))
			return uint64(e.Incarnation)
		}
	}
	return 0
}

// learn makes a node act on the present state: it takes the view, or notes that it is no member any more.
func (n *Node) learn() {
	c := n.c
	if n.dead || n.closed || n.fenced {
		return
	}
	changed := n.takes()
	view := c.ledger.View()
	if n.fenced = n.member.entry.Gone(); n.fenced {
		view.Live.Remove(n.id)
		if n.OnFenced != nil {
			n.OnFenced()
		}
	}
	changed = changed || view.Live != n.view.Live || view.Lost != n.view.Lost
	before := n.incarnations
	n.takeView(view)
	changed = changed || !slices.Equal(before, n.incarnations)
	if changed && c.begun {
		c.inject(n, fabric.Message{Kind: fabric.MsgView, Body: [7]uint64{view.Epoch}})
	}
}

// forget notes which nodes are forgotten: all memory nodes refuse them, whether they know it or not.
func (c *Cluster) forget() {
	for _, m := range c.members {
		if !m.entry.Gone() || m.forgotten != member.Unnoted || slices.Contains(c.ledger.Entries, m.entry) {
			continue
		}
		m.forgotten = c.ledger.Revision
		if m.node == nil || m.entry.Phase == member.Left {
			continue
		}
		c.observeNode(StepFence, m.node)
		if c.untimed != nil {
			c.untimed.fenced(m.node)
		}
	}
}

// admit lets the code of nodes begin that the ledger admits.
func (c *Cluster) admit() {
	for _, m := range c.members {
		if n := m.node; n != nil && n.waits && m.entry.Phase == member.Joined && c.ledger.Admits(m.since) {
			n.waits = false
			n.startHeld()
		}
	}
}

// knows reports whether a compute node takes an incarnation of another for live: it is in its view.
func (n *Node) knows(other *Node) bool {
	return other.member.since <= n.member.acts && n.member.acts < other.member.forgotten
}

// refuses reports whether a memory node has cut off a compute node.
func (mn *memNode) refuses(n *Node) bool { return n.member.ended <= mn.member.acts }

// Fenced reports whether all memory nodes refuse the node.
func (n *Node) Fenced() bool { return n.member.forgotten != member.Unnoted }
