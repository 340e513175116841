package sim

import "github.com/declock/declock/fabric"

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
	if c.ex != nil {
		c.ex.dropMessages()
	}
	if !n.fenced {
		c.post(c.now+c.cfg.DetectDelay, evDetect, uint32(n.id), 0)
	}
}

// orphan decides what becomes of a chain whose client has been killed.
func (c *Cluster) orphan(ch *chain) {
	if c.ex != nil {
		c.ex.orphan(ch)
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
	for _, t := range n.held {
		c.post(c.now, evStart, t.index, 0)
	}
	n.held = nil
	for _, p := range c.ports {
		if p.node == n && p.held {
			p.held = false
			c.post(c.now, evWake, p.index, p.waitGen)
		}
	}
}

// Fence declares a compute node dead, whether it is or not: from now on all
// memory nodes refuse it, messages that it has sent are dropped, and the others'
// agents (and its own) get a MsgView. Kill does so after Config.DetectDelay.
func (c *Cluster) Fence(n *Node) {
	if n.fenced {
		return
	}
	n.fenced = true
	c.observeNode(StepFence, n)
	c.view.Live.Remove(n.id)
	c.view.Lost++
	if c.ex != nil {
		c.ex.fenced(n)
	}
	c.newView()
}

// KillMN stops a memory node: nobody gets an answer any more.
func (c *Cluster) KillMN(id fabric.MemID) { c.mn(id).dead = true }

// RestartMN starts a memory node anew, in a new epoch and with zeroed memory:
// the Ports of before are refused.
func (c *Cluster) RestartMN(id fabric.MemID) {
	mn := c.mn(id)
	mn.mem = newMemory(mn.mem.size)
	mn.sum = 0
	c.RestartServer(id)
}

// RestartServer starts a memory node anew, in a new epoch and with the memory that it
// had: the Ports of before are refused.
func (c *Cluster) RestartServer(id fabric.MemID) {
	mn := c.mn(id)
	mn.dead = false
	mn.epoch++
	c.faultStats[Restarts]++
	c.note(StepRestart, 0, uint64(id), uint64(mn.epoch))
	if c.cfg.Observer != nil {
		c.observe(Event{Step: StepRestart, Mem: id})
	}
	for _, n := range c.nodes {
		if int(id) < len(n.downMN) {
			n.downMN[id] = false
		}
	}
}

// RevokeMN makes a memory node refuse the key of its memory from now on.
func (c *Cluster) RevokeMN(id fabric.MemID) { c.mn(id).revoked = true }
