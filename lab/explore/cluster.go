package explore

import (
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
)

// A Cluster is what a program of Explore is built in: an empty cluster of package sim, and what the program says of itself.
type Cluster struct {
	*sim.Cluster
	ex      *explorer
	actions []action
	atEnd   func() error
	hashers []func() uint64
}

// An action is what Cluster.Sometime was given.
type action struct {
	name  string
	node  *sim.Node // nil: all
	kills bool      // it is SometimeKill
	port  *sim.Port // of SometimeInterrupt
	link  *link     // of SometimeCut
	f     func()
	done  bool
}

// Sometime gives exploration an action that may happen once, at any point, or
// never: a crash, an interrupt. Config.Actions bounds how many happen in one schedule. n is the
// only compute node whose clients can see the difference, as with Port.Interrupt of one of them; nil: all, as
// with Kill (its fence changes views, and what Send returns), which makes many more schedules.
func (c *Cluster) Sometime(name string, n *sim.Node, f func()) {
	c.actions = append(c.actions, action{name: name, node: n, f: f})
}

// SometimeKill is Sometime of Kill, with fewer schedules and states. f (nil: nothing) is called with it. What a node's
// clients do between two operations is not cut off from what they do before: to all others, a node that crashes before it is like one that
// crashes after it with nothing of what it posted and sent arriving. What clients of the crashed node were told is forgotten: see Forget.
// A crash after the last step of the last client is left out: none is left that could see it.
func (c *Cluster) SometimeKill(n *sim.Node, f func()) {
	c.actions = append(c.actions, action{name: "kill " + n.String(), node: n, kills: true, f: func() {
		if f != nil {
			f()
		}
		c.Kill(n)
		c.ex.node(n).gone = true
		c.ex.killed(n)
	}})
}

// SometimeInterrupt is Sometime of Port.Interrupt, with fewer schedules: while the client waits in Recv or Pause. An
// earlier interrupt is not noticed before that.
func (c *Cluster) SometimeInterrupt(p fabric.Port) {
	port := p.(*sim.Port)
	c.actions = append(c.actions, action{name: "interrupt " + port.ID().String(), node: port.Node(), port: port, f: port.Interrupt})
}

// A link is what messages between two compute nodes go over.
type link struct {
	from, to fabric.CNID
	both     bool // it is cut in both directions
}

// has reports whether a message goes over a link in a direction that is cut.
func (l *link) has(p *sim.Pair) bool {
	from, to := p.From.CN(), p.To.CN()
	return from == l.from && to == l.to || l.both && from == l.to && to == l.from
}

// SometimeCut is Sometime of a link between two compute nodes that is cut for good: no message from the one to the other arrives any more, or also
// none back. It happens while one is on its way; before that it makes no difference. f (nil: nothing) is called with it.
func (c *Cluster) SometimeCut(from, to *sim.Node, both bool, f func()) {
	name := fmt.Sprintf("cut %v to %v", from, to)
	if both {
		name += " and back"
	}
	c.actions = append(c.actions, action{name: name, link: &link{from.ID(), to.ID(), both}, f: func() {
		if f != nil {
			f()
		}
	}})
}

// InOrder says that clients differ in nothing but their names: what one does in a schedule the other does in
// another that must be as good or bad. Exploration then tries only schedules in which they begin, and have their
// first effect on memory, in the order given; of n such clients, one in n! schedules. They must all be of different
// nodes (which differ in nothing else either), or all of one.
func (c *Cluster) InOrder(tasks ...*sim.Task) {
	for i, t := range tasks[1:] {
		c.ex.client(t).after = tasks[i]
	}
}

// Enough ends the schedule: it is none of those that the program is about. What it goes by must be part of HashWith.
func (c *Cluster) Enough() { c.ex.enough = true }

// AtEnd gives the check of the state in which nothing more happens: it is called at the end of each schedule.
func (c *Cluster) AtEnd(check func() error) { c.atEnd = check }

// HashWith registers a hash of what an oracle remembers. Exploration takes
// two states for equal only if these hashes are equal too.
func (c *Cluster) HashWith(hash func() uint64) { c.hashers = append(c.hashers, hash) }

// NodeState says what clients of a node share: shares appends all of it that tells two states apart, and agent what the node's agent
// remembers beside it while it waits for a message. Exploration then takes two states for one whatever the order was in which the
// clients went on, if each was told the same and found the same state each time. Otherwise that order is all that is known.
func (c *Cluster) NodeState(n *sim.Node, shares, agent func(dst []byte) []byte) {
	x := c.ex.node(n)
	x.shares, x.keeps, x.ran = shares, agent, true
}

// Forget is for the client that runs: it says that all that it will do from now on follows
// from v, from its node's state that HashWith or NodeState covers, and from what it will be told. What it has been told so far then
// makes no difference between states (unless others of its node, with which it shares
// memory, remember). A client that does the same work again and again calls it
// between two pieces of work. Agents that wait for a message count as remembering nothing but what HashWith or NodeState covers. Checks at the end may
// depend on forgotten things only by way of HashWith.
func (c *Cluster) Forget(v uint64) {
	if t := c.ex.u.Running(); t != nil {
		c.ex.forget(t, v)
	}
}

// Witness is for an oracle that takes note of what clients of several nodes do: it is called whenever it does so, by what it may
// judge by. See Config.Sleep.
func (c *Cluster) Witness() { c.ex.u.Touched.Witnessed = true }
