package check

import (
	"fmt"
	"slices"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lab/oracle"
	"github.com/declock/declock/lock"
)

// leaves draws that compute nodes leave in order while the others work, and that nodes join in their numbers. (From g11 on.) In classes without
// faults no client asks for a reset because it has waited for long: a ticket that a node leaves behind blocks its lock for ever.
func (s *Scenario) leaves(seed uint64) {
	d := &drawer{newRand(seed, streamLeaves)}
	classes := []Class{Locks, Cancel, Wraps, Pause, Net, Break, Crash, Zombie, Restart, Chaos, Resets}
	if !slices.Contains(classes, s.Class) || s.Lock != "" || s.Keys > 0 || !d.percent(25) {
		return
	}
	s.Leaves = d.between(1, 3)
	if s.RecheckNs == 0 { // what a node sends before it leaves may not arrive
		s.RecheckNs = pick(d, 50*fabric.Microsecond, 500*fabric.Microsecond)
	}
	if s.HoldNs < 20*fabric.Microsecond && d.percent(50) { // then others wait when a node leaves
		s.HoldNs = 20 * fabric.Microsecond
	}
	s.room()
}

// sit draws that one client holds a lock until all others are done. In class Cancel it holds it shared: writers give up, and readers get the lock
// beside it. In class Restart it has lost it with its memory node. (From g11 on.)
func (s *Scenario) sit(seed uint64) {
	d := &drawer{newRand(seed, streamSit)}
	if s.Class == Restart && s.Leaves == 0 && d.percent(15) {
		s.Sit = 2
	}
	if s.Class != Cancel || s.Leaves > 0 || !d.percent(15) {
		return
	}
	s.Sit, s.CNs, s.Clients, s.Locks, s.Reads = 1, 1, max(s.Clients, 3), 1, pick(d, 30, 50, 80)
	s.Policy = pick(d, "remote-prefer", "local-prefer", "declock", "declock-tf", "declock-pf", "paper-tf", "paper-pf")
	s.room()
}

// sits is the client that holds the lock meanwhile. One that is to lose it, and does not, releases it when nothing goes wrong any more.
func (c *client) sits() {
	r := lock.Request{Mode: lock.Shared}
	if c.w.s.Sit > 1 {
		r.Mode = lock.Mode(c.d.between(0, 1))
	}
	if held, ok := c.acquire(0, &r, -1); !held || !ok {
		return
	}
	for c.w.working > 1 && (c.w.s.Sit == 1 || c.lost(c.hold.Lock) || c.w.c.Now() < c.w.began+c.w.s.restarted()) {
		c.sleep(10 * fabric.Microsecond)
	}
	c.release(0)
}

// startLeaves has nodes leave. What goes wrong otherwise spares them.
func (w *world) startLeaves() {
	for i := range w.s.Leaves {
		d := &drawer{newRand(w.s.Seed, streamLeaves+1+uint64(i))}
		at, cn := fabric.Time(d.Uint64n(uint64(w.s.horizon()))), d.between(1, w.s.CNs)
		if w.s.deadly(cn) || w.s.Lock != "" && w.s.Switch == 0 && cn == 1 {
			continue
		}
		w.working++ // the witness waits for the node that joins
		w.c.At(w.began+at, func() { w.leave(cn, d) })
	}
}

// leave has a node leave: some of its clients give up waiting, the others go on until they have released what they wait for.
func (w *world) leave(cn int, d *drawer) {
	n := w.nodes[cn-1]
	if n.leaving {
		w.working--
		return
	}
	n.leaving = true
	impatient := pick(d, 0, 50, 100)
	for _, c := range n.clients {
		if c.asking && d.percent(impatient) {
			c.port.Interrupt()
		}
	}
	n.whenLeft = func() {
		w.c.At(w.c.Now()+d.time(300*fabric.Microsecond), func() {
			w.working--
			if d.percent(70) {
				w.join()
			}
		})
	}
	w.c.Go(n.sim, fmt.Sprintf("leaver of cn%d", cn), func(p fabric.Port) {
		for n.active > 0 {
			_ = p.Pause(p.Now() + fabric.Microsecond)
		}
		n.sim.Agent().Interrupt()
	})
}

// flushNs is for how long a node that leaves waits until what it has sent has arrived.
const flushNs = 10 * fabric.Millisecond

// left is the end of the agent of a node that leaves. One with a baseline lock leaves whatever it has.
func (w *world) left(cn int) {
	n := w.nodes[cn-1]
	if n.field != nil {
		w.close(cn, n.sim.Close)
		return
	}
	clean := n.agent.Leave(func(err error) { w.agentError(cn, err) })
	if len(w.s.Plan) == 0 && !clean {
		w.object("leave", fmt.Sprintf("cn%d has %d local locks left after %d ms", cn, n.table.Len(), hier.LeaveNs/fabric.Millisecond))
	}
	p := n.sim.Agent()
	for limit := p.Now() + flushNs; n.sim.Unsent() > 0 && p.Now() < limit; {
		_ = p.Pause(p.Now() + 10*fabric.Microsecond)
	}
	clean = clean && n.sim.Unsent() == 0
	if clean {
		w.close(cn, n.sim.Close)
	} else {
		w.close(cn, n.sim.Fail)
	}
}

// close ends a node that leaves.
func (w *world) close(cn int, end func() error) {
	n := w.nodes[cn-1]
	n.dead = true
	if err := end(); err != nil {
		w.object("errors", fmt.Sprintf("cn%d leaves: %v", cn, err))
	}
	n.whenLeft()
}

// join has a node join.
func (w *world) join() {
	w.addNode()
	cn := len(w.nodes)
	w.event(oracle.Event{Kind: oracle.Joined, Client: fabric.AgentOf(w.nodes[cn-1].sim.ID())})
	w.startAgent(cn)
	w.startClientsOf(cn)
}
