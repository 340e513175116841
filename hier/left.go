package hier

import (
	"sync/atomic"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// msgFence tells the agent, from a client of its own node, that all it was asked for before has been handled. Body[0] is the number of the fence.
const msgFence = fabric.MsgHier + 3

// fences are the numbers of the fences that clients have asked for, and of the last that the agent has come to.
type fences struct {
	asked, passed atomic.Uint64
	resetting     atomic.Bool // the agent takes part in resets, as of the last message
}

var _ lock.Leaver = (*Locker)(nil)

// Left implements lock.Leaver. Requests for resets lie in the agent's inbox: a message behind them tells that there are none any more. The agent
// sends it to itself once more, for it may be about to ask for some itself (lookAtTrouble).
func (k *Locker) Left(begun *uint64, some func(fabric.Addr) bool) bool {
	t := k.table
	if *begun == 0 {
		n := t.fences.asked.Add(1)
		m := fabric.Message{Kind: msgFence, Body: [7]uint64{n}}
		if k.port.Send(fabric.AgentOf(k.port.ID().CN()), &m) == nil {
			*begun = n
		}
		return false
	}
	passed := t.fences.passed.Load() >= *begun
	if t.uses(some) {
		*begun = 0 // it may ask for resets yet
		return false
	}
	return passed && !t.fences.resetting.Load()
}

// uses reports whether the node has something to do yet with some locks.
func (t *Table) uses(some func(fabric.Addr) bool) bool {
	used := false
	t.each(func(x *local) { used = used || some(x.place.Lock) })
	t.livesMu.Lock()
	defer t.livesMu.Unlock()
	for l := range t.stuck {
		used = used || some(l)
	}
	for l := range t.unsettled.locks {
		used = used || some(l) || l == wholeNode(l.MN())
	}
	return used
}

// onFence passes a fence, when it comes the second time.
func (a *Agent) onFence(m *fabric.Message) {
	if m.Body[1] == 0 {
		again := fabric.Message{Kind: msgFence, Body: [7]uint64{m.Body[0], 1}}
		_ = a.port.Send(a.port.ID(), &again) // else the client asks anew
		return
	}
	f := &a.table.fences
	f.passed.Store(max(f.passed.Load(), m.Body[0]))
}
