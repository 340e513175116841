package sim

import (
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

// Kill stops a compute node as a crash does: its clients stop at once, and the
// operations that they have under way do as Config.Late says. After
// Config.DetectDelay the node is fenced.
func (c *Cluster) Kill(n *Node) {
	if n.dead {
		return
	}
	n.dead = true
	n.paused = false
	n.held = nil
	c.observeNode(StepKill, n)
	for _, t := range c.tasks {
		if t.node == n && !t.done {
			t.killed = true
			if t != c.cur {
				c.post(c.now, evUnwind, t.index, 0)
			}
		}
	}
	for _, ch := range c.chains {
		if ch.state != chainFree && ch.port.node == n {
			c.orphan(ch)
		}
	}
	for _, co := range n.cores {
		for _, q := range co.qps {
			if q != nil {
				q.head = none
			}
		}
	}
	if c.untimed != nil {
		c.untimed.dropMessages()
		c.untimed.forgetNews(n.member)
	}
	if n.member.entry.Phase == member.Joined {
		c.post(c.now+c.cfg.DetectDelay, evDetect, n.member.index, 0)
	}
}

// orphan decides what becomes of a chain whose client has been killed.
func (c *Cluster) orphan(ch *Chain) {
	if c.untimed != nil {
		c.untimed.orphaned(ch)
		return
	}
	ch.orphan = true
	switch {
	case ch.state != chainFlying:
		c.releaseChain(ch)
	case c.cfg.Late == LateDrop:
		ch.drop = true
	case c.cfg.Late == LateDraw:
		ch.drop = c.faults.Uint64()&1 == 0
	}
}

// Pause stops the CPU of a compute node, as a long pause of its operating system
// does: its NIC goes on with what it was given, messages arrive, no code runs.
func (c *Cluster) Pause(n *Node) {
	if !n.dead && !n.paused {
		n.paused = true
		c.observeNode(StepPause, n)
	}
}

// Resume lets a paused compute node go on.
func (c *Cluster) Resume(n *Node) {
	if !n.paused {
		return
	}
	n.paused = false
	c.observeNode(StepResume, n)
	n.startHeld()
	if n.unheard {
		n.unheard = false
		n.lapse()
	}
	if n.deaf {
		n.deaf = false
		c.tellSoon(n.member)
	}
	for _, p := range c.ports {
		if p.node == n && p.held {
			p.held = false
			c.post(c.now, evWake, p.index, p.waitGen)
		}
	}
}

// Detach cuts a node off from the coordinator until a time: until then it hears of no change of the membership, and acknowledges
// none. All else of it goes on. (With Config.NewsDelay 0 there are no news to hold up.)
func (c *Cluster) Detach(e Endpoint, until fabric.Time) {
	m := c.mns[e.MN].member
	if e.CN != 0 {
		m = c.cns[e.CN].member
	}
	m.detached = max(m.detached, until)
}

// startHeld starts the tasks that were held up, unless something else holds them up.
func (n *Node) startHeld() {
	if n.paused || n.waits {
		return
	}
	for _, t := range n.held {
		n.c.post(n.c.now, evStart, t.index, 0)
	}
	n.held = nil
}

// Fence declares a compute node dead, whether it is or not. As soon as each hears of it (Config.NewsDelay),
// memory nodes refuse it and its own operations fail. When all members know, it is fenced: StepFence. As soon
// as each hears of that, other nodes drop the messages that it has sent, and their agents get a MsgView. Kill
// does so after Config.DetectDelay.
func (c *Cluster) Fence(n *Node) { c.leave(n.member, member.Died) }

// KillMN stops a memory node: it answers no more.
func (c *Cluster) KillMN(id fabric.MemID) {
	mn := c.mn(id)
	mn.dead = true
	if c.cfg.NewsDelay > 0 {
		c.post(c.now+c.cfg.DetectDelay, evDetect, mn.member.index, 0)
		return
	}
	c.leave(mn.member, member.Died)
}

// RestartMN starts a memory node anew, in a new epoch and with zeroed memory:
// the Ports of before are refused.
func (c *Cluster) RestartMN(id fabric.MemID) {
	mn := c.mn(id)
	mn.region = region{mem: newMemory(mn.mem.size)}
	mn.backups = nil
	c.restart(mn, 0)
}

// RestartServer starts a memory node anew, in a new epoch and with the memory that it
// had: the Ports of before are refused.
func (c *Cluster) RestartServer(id fabric.MemID) {
	mn := c.mn(id)
	c.restart(mn, mn.member.entry.Incarnation())
}

// restart starts a memory node anew. was is its incarnation of before, if it has its memory of then.
func (c *Cluster) restart(mn *memNode, was member.Incarnation) {
	id := mn.id
	c.leave(mn.member, member.Died) // if that has not been noticed yet
	mn.dead = false
	c.beginEpoch(mn, was)
	c.faultStats[Restarts]++
	c.note(StepRestart, 0, uint64(id), uint64(mn.epoch))
	c.observe(Event{Step: StepRestart, Mem: id})
	for _, n := range c.nodes {
		if int(id) < len(n.downMN) {
			n.downMN[id] = false
		}
	}
}

// beginEpoch makes a memory node a member, in a new epoch.
func (c *Cluster) beginEpoch(mn *memNode, was member.Incarnation) {
	e, err := c.ledger.ReserveMN(member.MN{ID: mn.id, Size: mn.mem.size, Replicas: mn.replicas, Room: mn.room, Was: was})
	if err != nil {
		panic(fmt.Sprintf("sim: a new epoch: %v", err)) // the one before is over
	}
	mn.epoch, mn.member = e.MN.Epoch, &membership{entry: e, mn: mn}
	if mn.replicas > 1 {
		mn.epoch = 0 // until it knows which numbers it serves
	}
	for _, b := range mn.backups {
		b.epoch = 0
	}
	c.enter(mn.member)
	if c.begun {
		mn.regroup(c.groups())
	}
}

// RevokeMN makes a memory node refuse the key of its memory from now on.
func (c *Cluster) RevokeMN(id fabric.MemID) { c.mn(id).revoked = true }
