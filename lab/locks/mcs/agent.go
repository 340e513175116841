package mcs

import (
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/internal/baseline"
	"github.com/declock/declock/lock"
)

// An Agent does the rest of the algorithm for clients of its compute node that have abandoned
// a ticket. It uses the node's agent Port.
type Agent struct {
	baseline.Agent[left, *left]
	cfg Config
	ops [2]fabric.Op
}

// earlyNs is for how long a message waits for the client's.
const earlyNs = 10 * fabric.Second

// left is a ticket that a client has abandoned, or may have.
type left struct {
	ticket
	baseline.Left
}

// NewAgent returns the agent of a node.
func NewAgent(node fabric.Node, cfg Config) *Agent {
	a := &Agent{cfg: cfg}
	a.Start(node, baseline.Rest[*left]{
		Name: "mcs", First: msgSuccessor, Abandoned: msgAbandoned, EarlyNs: earlyNs,
		Adopt: adopt, Hear: func(t *left, m *fabric.Message) { t.Hear(m) }, Advance: a.advance,
	})
	return a
}

// adopt makes a ticket the client's.
func adopt(t *left, m *fabric.Message) (tickets uint64) {
	t.Due = fabric.Forever
	t.ticket = ticket{lock: fabric.Addr(m.Body[0]), id: fabric.ClientID(m.Body[1]),
		token: lock.Token(m.Body[2]), granted: m.Body[3] != 0, next: fabric.ClientID(m.Body[4])}
	return m.Body[5]
}

// advance releases the lock, once an abandoned ticket holds it.
func (a *Agent) advance(t *left) (done bool, err error) {
	if !t.granted || t.next == 0 && t.Tried {
		return false, nil
	}
	if t.next == 0 {
		t.Tried = true
		n := t.freeOps(a.ops[:], a.cfg.Plain)
		err := a.Port.Do(a.ops[:n])
		return err != nil || a.ops[n-1].Swapped(), err // else the successor's message will come
	}
	m := t.handover()
	return true, a.Port.Send(t.next, &m)
}
