package qplock

import (
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/internal/baseline"
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
	near := fabric.LocalOf(node.Agent())
	a.Start(node, baseline.Rest[*left]{
		Name: "qplock", First: msgSuccessor, Abandoned: msgAbandoned, EarlyNs: earlyNs,
		Adopt: func(t *left, m *fabric.Message) (tickets uint64) {
			t.Due = fabric.Forever
			t.ticket, tickets = adopted(m, near)
			return tickets
		},
		Hear: func(t *left, m *fabric.Message) { t.Hear(m) }, Advance: a.advance,
	})
	return a
}

// advance frees the cohort's lock, or hands it on, once an abandoned ticket is the head of the queue. It never leads.
func (a *Agent) advance(t *left) (done bool, err error) {
	if !t.granted || t.next == 0 && t.Tried {
		return false, nil
	}
	if t.next == 0 {
		t.Tried = true
		n := t.freeOps(a.ops[:], &a.cfg)
		err := t.do(a.Port, a.ops[:n])
		return err != nil || a.ops[n-1].Swapped(), err // else the successor's message will come
	}
	if err := t.do(a.Port, a.ops[:t.passOps(a.ops[:], &a.cfg)]); err != nil {
		return true, err
	}
	m := t.handover()
	return true, a.Port.Send(t.next, &m)
}
