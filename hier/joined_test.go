package hier_test

import (
	"fmt"
	"testing"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lock"
)

// A joinedRig is a rig in which a memory node joins when the compute nodes run, at a millisecond: no agent has attached to it.
type joinedRig struct {
	*rig
	late       fabric.MemID
	generation uint32 // of its memory
	looks      int    // calls of Verify for it
	unverified error  // what they return
}

func newJoinedRig(t *testing.T, opts ...option) *joinedRig {
	j := &joinedRig{late: 1}
	j.rig = newRig(t, 1, 2, "declock", small, append(opts, unsynced, silent, func(r *rig) {
		r.cfg.Verify = func(mn fabric.MemID) (uint32, error) {
			if mn != j.late {
				return 0, nil
			}
			j.looks++
			return j.generation, j.unverified
		}
	})...)
	j.c.At(ms, func() {
		if mn := j.c.AddMN(1 << 20); mn != j.late {
			t.Errorf("memory node %v joins, not %v", mn, j.late)
		}
	})
	return j
}

// lost restarts the memory node without its memory. Where locks were, the new memory has something else.
func (j *joinedRig) lost() {
	j.generation++
	j.c.RestartMN(j.late)
	for i := range 2 {
		j.c.Poke(j.lateLock(i).Add(8), []byte{other})
	}
}

const other = 0x77

func (j *joinedRig) lateLock(i int) fabric.Addr { return fabric.At(j.late, locksAt+uint64(i)*lockSpan) }

// ask has the agent of the first compute node asked to reset a lock.
func (j *joinedRig) ask(p fabric.Port, l fabric.Addr) {
	var s lock.Stats
	cql.NewClient(p, j.nodes[0], j.cfg.Layout, j.cfg.CQL, &s).AskReset(l, 0, cql.UnknownOutcome)
}

// uses acquires and releases a lock there.
func (j *joinedRig) uses(k *hier.Locker, l fabric.Addr) {
	var h lock.Hold
	acquire(j.t, k, &h, l, lock.Exclusive)
	must(j.t, k.Release(&h, nil))
}

// untouched checks that nothing has been written where a lock was.
func (j *joinedRig) untouched(i int) {
	j.t.Helper()
	l := j.lateLock(i)
	if header, entry := j.c.PeekWord(l), j.c.PeekWord(l.Add(8)); header != 0 || entry != other {
		j.t.Errorf("new memory at the lost lock %v: %#x %#x, want 0 %#x", l, header, entry, other)
	}
}

func (j *joinedRig) runUntil(t fabric.Time) {
	j.t.Helper()
	if err := j.c.RunUntil(t); err != nil {
		j.t.Fatal(err)
	}
}

// An agent has never attached to a memory node that joined after it, and the memory there is lost. The agent resets no lock of the lost memory:
// in the new memory that address may be anything.
func TestUnattachedAgentAndLostMemory(t *testing.T) {
	j := newJoinedRig(t)
	j.client(0, "client", func(k *hier.Locker) {
		at(k, 2*ms)
		j.uses(k, j.lateLock(0))
		at(k, 4*ms)
		j.ask(k.Port(), j.lateLock(0))
	})
	j.c.At(3*ms, j.lost)
	j.runUntil(30 * ms)
	j.untouched(0)
}

// An agent leads a reset on a memory node that joined after it, and the memory there is lost before all nodes have answered. Then the node
// crashes that has not answered: the reset is void, and writes nothing.
func TestUnattachedLeaderAndLostMemory(t *testing.T) {
	const kindResetAck = fabric.MsgCQL + 3
	acks := 0
	j := newJoinedRig(t, wrapped(func(p fabric.Port) fabric.Port {
		return &hookPort{Port: p, send: func(p fabric.Port, to fabric.ClientID, m *fabric.Message) error {
			if m.Kind == kindResetAck && p.ID().CN() == 2 {
				acks++
				return nil
			}
			return p.Send(to, m)
		}}
	}))
	j.client(0, "client", func(k *hier.Locker) {
		at(k, 2*ms)
		j.uses(k, j.lateLock(0))
		j.ask(k.Port(), j.lateLock(0))
		at(k, 4*ms)
		j.ask(k.Port(), j.lateLock(1).In(1)) // the agent finds the new memory
	})
	j.c.At(3*ms, j.lost)
	j.c.At(5*ms, func() { j.c.Kill(j.nodes[1]) })
	j.runUntil(30 * ms)
	if acks == 0 {
		t.Error("the other node has not been asked")
	}
	j.untouched(0)
}

// An agent cannot attach to a memory node yet. It resets no lock there, and does so when it can; until then it looks now and then.
func TestUnattachedAgentResetsLater(t *testing.T) {
	j := newJoinedRig(t)
	j.c.At(ms, func() { j.unverified = fmt.Errorf("%w: not yet", fabric.ErrNodeDown) })
	j.client(0, "client", func(k *hier.Locker) {
		at(k, 2*ms)
		j.ask(k.Port(), j.lateLock(0))
		at(k, 50*ms)
		if n := j.led(); n != 0 {
			t.Errorf("%d resets in a memory that has not been looked at", n)
		}
		j.unverified = nil
	})
	j.runUntil(80 * ms)
	if n := j.led(); n != 1 {
		t.Errorf("%d resets when the agent can attach, want 1", n)
	}
	if j.looks > 30 {
		t.Errorf("%d looks at the memory node in 50 ms", j.looks)
	}
}

// A client has given up its wait for a lock on a memory node that joined after the agent. The grant comes to the agent when it cannot attach, and right
// after that the memory is lost: the agent releases nothing in the new one.
func TestUnattachedAgentAdoptsNothing(t *testing.T) {
	for fails := 1; fails <= 2; fails++ {
		t.Run(fmt.Sprint(fails), func(t *testing.T) { unattachedAgentAdoptsNothing(t, fails) })
	}
}

// unattachedAgentAdoptsNothing: fails is how often the agent tries to attach before the memory is lost.
func unattachedAgentAdoptsNothing(t *testing.T, fails int) {
	var j *joinedRig
	tries := 0
	j = newJoinedRig(t, waits(20*ms, 100*ms), wrapped(func(p fabric.Port) fabric.Port {
		if p.ID() != fabric.AgentOf(1) {
			return p
		}
		return &attachPort{p, func(mn fabric.MemID, epoch uint32) error {
			if mn != 1 || tries == fails {
				return p.Reattach(mn, epoch)
			}
			if tries++; tries == fails {
				j.c.At(p.Now(), j.lost)
				_ = p.Pause(p.Now() + us)
			}
			return fmt.Errorf("%w: %v", fabric.ErrNodeDown, mn)
		}}
	}))
	j.client(1, "holder", func(k *hier.Locker) {
		at(k, 2*ms)
		var h lock.Hold
		acquire(t, k, &h, j.lateLock(0), lock.Exclusive)
		at(k, 4*ms)
		_ = k.Release(&h, nil)
	})
	j.client(0, "waiter", func(k *hier.Locker) {
		at(k, 2*ms+500*us)
		var h lock.Hold
		if k.Acquire(&h, &lock.Request{Lock: j.lateLock(0), Mode: lock.Exclusive, Deadline: 3 * ms}) == nil {
			t.Error("granted")
		}
	})
	j.runUntil(80 * ms)
	if tries < fails {
		t.Errorf("the agent tried to attach %d times, want %d", tries, fails)
	}
	j.untouched(0)
}

// An attachPort lets a test interfere when a Port is attached.
type attachPort struct {
	fabric.Port
	reattach func(fabric.MemID, uint32) error
}

func (p *attachPort) Reattach(mn fabric.MemID, epoch uint32) error { return p.reattach(mn, epoch) }
