package hier_test

import (
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lock"
)

const kindAskReset = fabric.MsgCQL + 4

// A leftRig checks that a compute node has not left its locks while its agent has asked itself for a reset and not handled that yet.
type leftRig struct {
	*rig
	k     *hier.Locker // that asks, of the first compute node
	begun uint64       // see lock.Left
	asked bool         // the agent's own request lies in its inbox
	asks  int
}

func anyLock(fabric.Addr) bool { return true }

// agent wraps the agent's Port of the first compute node.
func (q *leftRig) agent(h *hookPort) fabric.Port {
	h.send = q.sends(h.send)
	h.recv = func(p fabric.Port, deadline fabric.Time) (fabric.Message, error) {
		if q.asked && q.begun != 0 && q.k.Left(&q.begun, anyLock) {
			q.t.Errorf("at %d: all locks have been left, and the agent has a request for a reset in its inbox", p.Now())
		}
		m, err := p.Recv(deadline)
		if err == nil && m.Kind == kindAskReset && m.From == p.ID() {
			q.asked = false
		}
		return m, err
	}
	return h
}

func (q *leftRig) sends(send func(fabric.Port, fabric.ClientID, *fabric.Message) error) func(fabric.Port, fabric.ClientID, *fabric.Message) error {
	return func(p fabric.Port, to fabric.ClientID, m *fabric.Message) error {
		if m.Kind == kindAskReset && to == p.ID() {
			q.asked = true
			q.asks++
		}
		if send != nil {
			return send(p, to, m)
		}
		return p.Send(to, m)
	}
}

// begin asks once, so that the fence passes before the agent asks for a reset.
func (q *leftRig) begin(k *hier.Locker) {
	if q.k = k; k.Left(&q.begun, anyLock) {
		q.t.Error("all locks have been left at once")
	}
}

// end runs the rig, and checks that all locks have been left at some time.
func (q *leftRig) end(k *hier.Locker) {
	at(k, 30*ms)
	for range 5 {
		if k.Left(&q.begun, anyLock) {
			return
		}
		sleep(k, ms)
	}
	q.t.Error("locks are never left")
}

func (q *leftRig) run() {
	q.t.Helper()
	q.rig.run()
	if q.asks == 0 {
		q.t.Error("the agent has not asked itself for a reset")
	}
	q.wantFree(0)
}

// A client could not release a lock because the memory node did not answer. When that answers, the agent asks itself for the reset: until this is done,
// the compute node has something to do with the lock.
func TestNotLeftBeforeTheUnreleasedAreReset(t *testing.T) {
	q := &leftRig{}
	q.rig = newRig(t, 1, 1, "declock", small, unsynced, silent, wrapped(func(p fabric.Port) fabric.Port {
		if !p.ID().IsAgent() {
			return p
		}
		return q.agent(&hookPort{Port: p, do: func(p fabric.Port, ops []fabric.Op) error {
			if ops[0].Addr.Offset() == 0 && p.Now() < 10*ms {
				return &fabric.ChainError{Op: ops[0], Err: fabric.ErrNodeDown}
			}
			return p.Do(ops)
		}})
	}))
	q.c.Go(q.nodes[0], "holder", func(p fabric.Port) {
		hook := &hookPort{}
		k := q.hooked(0, p, hook)
		var h lock.Hold
		acquire(t, k, &h, q.lock(0), lock.Exclusive)
		hook.do = func(_ fabric.Port, ops []fabric.Op) error {
			return &fabric.ChainError{Op: ops[0], Err: fabric.ErrNodeDown}
		}
		if err := k.Release(&h, nil); !errors.Is(err, fabric.ErrNodeDown) {
			t.Errorf("a release that was refused: %v", err)
		}
		q.begin(k)
		q.end(k)
	})
	q.run()
}

// The agent takes the lock for a client that has given up its wait, and cannot hand it on: it asks itself for a reset.
func TestNotLeftBeforeTheAdoptedAreReset(t *testing.T) {
	q := &leftRig{}
	q.rig = newRig(t, 1, 3, "declock", small, unsynced, silent, wrapped(func(p fabric.Port) fabric.Port {
		if p.ID() != fabric.AgentOf(1) {
			return p
		}
		return q.agent(&hookPort{Port: p, send: func(p fabric.Port, to fabric.ClientID, m *fabric.Message) error {
			if m.Kind == kindGrant && to.CN() == 3 && q.asks == 0 {
				return fabric.ErrNodeDown
			}
			return p.Send(to, m)
		}})
	}))
	hold := func(cn int, from, until fabric.Time) {
		q.client(cn, name(cn, 0), func(k *hier.Locker) {
			at(k, from)
			var h lock.Hold
			acquire(t, k, &h, q.lock(0), lock.Exclusive)
			at(k, until)
			must(t, k.Release(&h, nil))
		})
	}
	hold(1, 0, 4*ms)
	hold(2, 2*ms, 0)
	q.client(0, "waiter", func(k *hier.Locker) {
		at(k, ms)
		var h lock.Hold
		if k.Acquire(&h, &lock.Request{Lock: q.lock(0), Mode: lock.Exclusive, Deadline: 3 * ms}) == nil {
			t.Error("granted")
		}
	})
	q.client(0, "asks", func(k *hier.Locker) {
		at(k, 3*ms)
		q.begin(k)
		q.end(k)
	})
	q.run()
}

// A node leaves while the reset of a lock that it could not release is refused again and again: it has not left before the lock is reset.
func TestNotLeftTheClusterBeforeTheUnreleasedAreReset(t *testing.T) {
	for fails := range 6 { // chains of the agent on the lock
		q := &leftRig{}
		q.rig = newRig(t, 1, 2, "declock", small, unsynced, silent, wrapped(func(p fabric.Port) fabric.Port {
			if p.ID() != fabric.AgentOf(1) {
				return p
			}
			n := 0
			return q.agent(&hookPort{Port: p, do: func(p fabric.Port, ops []fabric.Op) error {
				if ops[0].Addr == q.lock(0) {
					if n++; n <= fails {
						return &fabric.ChainError{Op: ops[0], Err: fabric.ErrNodeDown}
					}
				}
				return p.Do(ops)
			}})
		}))
		q.left = func(n *sim.Node, clean bool) {
			if !clean || q.asked {
				t.Errorf("after %d refusals: left, %v, with a request for a reset in its inbox: %v", fails, clean, q.asked)
			}
			must(t, n.Close())
		}
		q.c.Go(q.nodes[0], "holder", func(p fabric.Port) {
			hook := &hookPort{}
			k := q.hooked(0, p, hook)
			var h lock.Hold
			acquire(t, k, &h, q.lock(0), lock.Exclusive)
			hook.do = func(_ fabric.Port, ops []fabric.Op) error {
				return &fabric.ChainError{Op: ops[0], Err: fabric.ErrNodeDown}
			}
			if err := k.Release(&h, nil); !errors.Is(err, fabric.ErrNodeDown) {
				t.Errorf("a release that was refused: %v", err)
			}
			must(t, k.Port().Close())
			q.nodes[0].Agent().Interrupt()
		})
		q.client(1, "watches", func(k *hier.Locker) { at(k, 50*ms) })
		q.run()
	}
}
