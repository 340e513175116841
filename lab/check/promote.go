package check

import (
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/oracle"
	"github.com/declock/declock/lock"
)

// promotes draws memory-node numbers that are replicated (docs/replication.md): their primaries end, are declared dead while they run, come back with their memory or
// without it, and are moved; backups come and go. (From g14 on.) Only locks are used: the cells under them are not written to backups, and begin anew with each promotion.
func (s *Scenario) promotes(d *drawer) {
	if s.Keys > 0 {
		s.storePromotes(d)
		s.storeRepairs(d)
		return
	}
	s.MNs, s.Copies, s.Spares = d.between(1, 2), pick(d, 2, 2, 3), d.between(1, 2)
	s.Spares = max(s.Spares, s.Copies-s.MNs)
	if d.percent(50) {
		s.Try, s.Deadline, s.Cancel = pick(d, 0, 10), pick(d, 0, 20), pick(d, 0, 20)
		s.WaitNs = pick(d, 5*fabric.Microsecond, 50*fabric.Microsecond, fabric.Millisecond)
	}
	s.Rounds *= 2
	s.layoutFor(d)
	if d.percent(30) {
		s.crashAllBut(d, pick(d, s.kill, s.zombie))
	}
	s.impatient()
	s.DetectNs = pick(d, 20*fabric.Microsecond, 200*fabric.Microsecond, fabric.Millisecond)
	crashes := s.Plan
	if s.Plan = nil; d.percent(30) {
		s.drawPlan(d, sim.FaultPause, sim.FaultCut, sim.FaultDelay, sim.FaultDuplicate, sim.FaultDetach)
	}
	s.Plan = append(s.Plan, crashes...)
	for range d.between(1, 4) {
		s.Plan = append(s.Plan, s.failover(d)...)
	}
}

// failover draws how one memory node ends, or is replaced, and new backups.
func (s *Scenario) failover(d *drawer) (p sim.Plan) {
	host := func() sim.Endpoint { return sim.OfMN(fabric.MemID(d.between(0, s.MNs+s.Spares-1))) }
	number := func() sim.Endpoint { return sim.OfMN(fabric.MemID(d.between(0, s.MNs-1))) }
	at := s.at(d)
	later := func() fabric.Time { return at + 1 + d.time(2*fabric.Millisecond) }
	node := number() // most often it is the primary
	if d.percent(30) {
		node = host()
	}
	back := sim.Fault{At: at, Kind: pick(d, sim.FaultReboot, sim.FaultReboot, sim.FaultRestart), Node: node, Until: later()}
	switch d.between(0, 4) {
	case 0:
		p = append(p, back)
	case 4: // a compute node stands still, and is given up, and so is the primary: neither hears of the other
		cn, from := sim.OfCN(fabric.CNID(s.CNs)), at-d.time(100*fabric.Microsecond)
		if s.CNs < 2 || s.deadly(s.CNs) {
			return nil
		}
		p = append(p, sim.Fault{At: max(from, 0), Kind: sim.FaultPause, Node: cn, Until: at + 1 + d.time(500*fabric.Microsecond)},
			sim.Fault{At: at, Kind: sim.FaultFence, Node: node}, sim.Fault{At: at + d.time(100*fabric.Microsecond), Kind: sim.FaultFence, Node: cn})
		back.At, back.Until = back.Until+fabric.Millisecond, back.Until+fabric.Millisecond+1+d.time(fabric.Millisecond)
		p = append(p, back)
	case 1:
		p = append(p, sim.Fault{At: at, Kind: sim.FaultFence, Node: node})
		back.At, back.Until = back.Until, back.Until+1+d.time(fabric.Millisecond)
		p = append(p, back)
	case 2:
		p = append(p, sim.Fault{At: at, Kind: sim.FaultPromote, Node: number()})
	default:
		p = append(p, sim.Fault{At: at, Kind: sim.FaultDetach, Node: host(), Until: later()}, sim.Fault{At: later(), Kind: sim.FaultPromote, Node: number()})
	}
	for range d.between(0, 2) {
		from := later()
		p = append(p, sim.Fault{At: from, Kind: sim.FaultBackup, Node: number(), Peer: host(), Until: from + 1 + d.time(fabric.Millisecond)})
	}
	if d.percent(20) {
		p = append(p, sim.Fault{At: later(), Kind: sim.FaultDrop, Node: number(), Peer: host()})
	}
	return p
}

// abandonNs is how long after the last fault the operator gives up what is lost.
const abandonNs = fabric.Millisecond

// replicas gives each number its backups: on the memory nodes that follow.
func (w *world) replicas() {
	for range w.s.Spares {
		w.c.AddMN(locksAt)
	}
	for i := range w.s.MNs {
		for k := 1; k < w.s.Copies; k++ {
			w.c.AddBackup(w.mns[i], fabric.MemID((i+k)%(w.s.MNs+w.s.Spares)))
		}
	}
}

// serves is called when a number is served in another epoch: all holders of before have lost their locks. In another term its locks have begun anew, and the data, which is not
// replicated yet.
func (w *world) serves(e *sim.Event) {
	at := fabric.At(e.Mem, 0)
	w.event(oracle.Event{Kind: oracle.Restarted, Lock: at})
	if e.Old != e.New && w.s.Keys == 0 {
		w.event(oracle.Event{Kind: oracle.Lost, Lock: at})
		buf := make([]byte, w.size())
		w.c.Peek(at, buf)
		w.zero(e.Mem, "the backup that is promoted", buf)
	}
	w.judgeBackups()
}

// judgeBackups judges that locks are not written to backups: a promotion zeroes nothing.
func (w *world) judgeBackups() {
	if w.s.Copies == 0 || w.s.Keys > 0 {
		return
	}
	for _, id := range w.mns {
		w.c.Backups(id, func(host fabric.MemID, peek func(uint64, []byte)) {
			buf := make([]byte, w.size())
			peek(0, buf)
			w.zero(id, fmt.Sprintf("the backup on %v", host), buf)
		})
	}
}

func (w *world) zero(id fabric.MemID, what string, memory []byte) {
	for i, b := range memory {
		if b != 0 {
			w.object("backups", fmt.Sprintf("%v: %s has %#x at offset %#x: it must be zero, since locks are not mirrored", id, what, b, i))
			return
		}
	}
}

// abandon is what the operator does when all is over: a number of which no replica in sync is left begins anew.
func (w *world) abandon() {
	for _, id := range w.mns {
		_ = w.c.Abandon(id) // refused if one is left
	}
}

// inTerm judges the term of a grant: it is that in which the number is served, and the client is attached in its epoch.
func (c *client) inTerm(e *oracle.Event) {
	g := c.w.c.Served(e.Lock.MN())
	if g == nil {
		return
	}
	lost := c.lost(e.Lock)
	if lost && c.w.s.NewsNs == 0 { // its node has acknowledged while it was paused
		return
	}
	if term := uint32(e.Token >> 48); term != g.Term || lost {
		c.w.object("terms", fmt.Sprintf("[%v] in term %d, while the lock is served in term %d, epoch %d", e, term, g.Term, g.Epoch))
	}
}

// lapsed reports whether the lease of the client's node has run out, so that what it has of a replicated memory node may be another's: it is granted nothing there,
// and its releases say that their locks are lost, though the node stood still and has not heard of anything.
func (c *client) lapsed() bool { return c.w.s.Copies > 0 && !c.n.sim.Leased() }

// outlasts judges that a failover is a wait for clients whose deadline allows: an acquisition does not fail because of it. One that only tries may.
func (c *client) outlasts(r *lock.Request, err error) (goesOn, judged bool) {
	switch {
	case c.w.s.Copies == 0 || c.w.excused(c.cn, err) || c.w.ofInterrupt(err):
		return false, false
	case r.Try && ofRestart(err):
		c.sleep(c.d.time(again))
		return true, true
	}
	c.w.object("errors", fmt.Sprintf("%v, round %d: acquire, of a lock that is replicated: %v", c.port.ID(), c.round, err))
	return false, true
}
