package rmarw

import (
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/internal/baseline"
	"github.com/declock/declock/lock"
)

// An Agent does the rest of the algorithm for writers of its compute node that have abandoned a ticket. It uses the node's agent Port.
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
	a := &Agent{cfg: cfg.withDefaults()}
	a.Start(node, baseline.Rest[*left]{
		Name: "rmarw", First: msgSuccessor, Abandoned: msgAbandoned, EarlyNs: earlyNs,
		Adopt: adopt, Hear: func(t *left, m *fabric.Message) { t.Hear(m) }, Advance: a.advance,
	})
	return a
}

// adopt makes a ticket the client's.
func adopt(t *left, m *fabric.Message) (tickets uint64) {
	t.Due = fabric.Forever
	t.ticket = ticket{lock: fabric.Addr(m.Body[0]), id: fabric.ClientID(m.Body[1]), token: lock.Token(m.Body[2]), row: m.Body[3],
		first: m.Body[4]&isFirst != 0, mark: m.Body[4]&isMarked != 0, next: fabric.ClientID(m.Body[5])}
	return m.Body[6]
}

// advance gives the place at the head of the queue on, once an abandoned ticket has it.
func (a *Agent) advance(t *left) (done bool, err error) {
	if !t.first || t.next == 0 && t.Tried {
		return false, nil
	}
	if t.resets(&a.cfg) {
		a.ops[0] = fabric.Load(t.lock.Add(countsOffset))
		if err := a.Port.Do(a.ops[:1]); err != nil {
			return true, err
		}
		n := t.resetOps(a.ops[:], counts(a.ops[0].Old), a.cfg.Plain)
		t.mark = false
		if err := a.Port.Do(a.ops[:n]); err != nil {
			return true, err
		}
	}
	if t.next == 0 {
		t.Tried = true
		a.ops[0] = fabric.CAS(t.lock, uint64(t.id), 0)
		err := a.Port.Do(a.ops[:1])
		return err != nil || a.ops[0].Swapped(), err // else the successor's message will come
	}
	m := t.handover()
	return true, a.Port.Send(t.next, &m)
}
