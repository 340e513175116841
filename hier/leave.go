package hier

import (
	"errors"
	"maps"
	"slices"

	"github.com/declock/declock/fabric"
)

// LeaveNs is for how long Agent.Leave tries.
const LeaveNs = 100 * fabric.Millisecond

// Leave takes the node's tickets out of the queues of all locks before the node leaves the cluster. A ticket is left in a queue by a client that
// stopped waiting, or that could not give it up because the memory node did not answer. When its grant comes, nobody is there to take it. So the
// agent has these locks reset. A reset that has begun removes the tickets, whichever agent ends it.
//
// Leave returns when all of them are reset, or after LeaveNs, and reports whether all are. If not, the node must leave by fabric.Node.Fail, so that
// the others look at once for locks that nobody releases. An operation on a memory node that does not answer takes longer: the caller interrupts
// the agent's Port after LeaveNs.
//
// It is called when Run has returned, by the same goroutine, and when no client of the node is at work.
func (a *Agent) Leave(report func(error)) bool {
	a.port.ClearInterrupt()
	until := a.port.Now() + LeaveNs
	asked, fence := false, a.fence() // behind what clients have asked for
	for !a.table.isEnded() {
		rests := !a.table.owes() && a.resets.Idle()
		switch passed := fence != 0 && a.table.fences.passed.Load() >= fence; {
		case passed && !asked:
			asked, fence = true, 0
			a.giveBack(until)
			continue
		case passed && rests: // as when the fence was sent: nothing was under way then
			return true
		case passed:
			fence = 0
		case fence == 0 && rests:
			fence = a.fence()
		}
		m, err := a.port.Recv(min(until, a.lookAt))
		switch {
		case err == nil:
			a.receive(&m, report)
		case errors.Is(err, fabric.ErrDeadline) && a.port.Now() < until:
			a.lookAtTrouble()
		default: // the others take over the resets that this node leads
			return asked && !a.table.owes()
		}
	}
	return true // the others know already
}

// fence sends a fence through the agent's inbox, and returns its number.
func (a *Agent) fence() uint64 {
	n := a.table.fences.asked.Add(1)
	m := fabric.Message{Kind: msgFence, Body: [7]uint64{n}}
	_ = a.port.Send(a.port.ID(), &m) // only a closed Port refuses
	return n
}

// giveBack has the locks reset in which the node has tickets. At until it stops: the table has those that are left.
func (a *Agent) giveBack(until fabric.Time) {
	for i := range a.table.shards {
		for _, p := range a.table.shards[i].waitingPlaces() {
			if a.port.Now() >= until {
				return
			}
			a.locker.askReset(&p)
		}
	}
	a.lookAfterStuck()
}

// lookAfterStuck looks at the memory nodes of places that could not be given up.
func (a *Agent) lookAfterStuck() {
	t := a.table
	nodes := map[fabric.MemID]bool{}
	t.livesMu.Lock()
	for l := range t.stuck {
		nodes[l.MN()] = true
	}
	t.livesMu.Unlock()
	for _, mn := range slices.Sorted(maps.Keys(nodes)) {
		a.onTrouble(mn)
	}
}

// owes reports whether the node has local locks, or places that it could not give up: when it has left, nobody knows of these.
func (t *Table) owes() bool {
	t.livesMu.Lock()
	stuck := len(t.stuck) > 0
	t.livesMu.Unlock()
	return stuck || t.Len() > 0
}

// isEnded reports whether the cluster has given the node up.
func (t *Table) isEnded() bool {
	t.livesMu.Lock()
	defer t.livesMu.Unlock()
	return t.ended != nil
}
