package mcs

import (
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/internal/baseline"
	"github.com/declock/declock/lock"
)

// An Agent does the rest of the algorithm for clients of its compute node that have abandoned
// a ticket. It uses the node's agent Port.
type Agent struct {
	node    fabric.Node
	port    fabric.Port
	cfg     Config
	ops     [2]fabric.Op
	tickets map[key]*left
	early   []early // in the order of due
	ids     baseline.IDs
}

// A key names a ticket.
type key struct {
	lock fabric.Addr
	id   fabric.ClientID
}

// earlyNs is for how long a message waits for the client's, which leaves its ID and sends that message next.
const earlyNs = 10 * fabric.Second

// An early ticket is one of which a message came before the client's; or a stray one, which nothing follows.
type early struct {
	key
	due fabric.Time // when it is forgotten, if it is not abandoned by then
}

// left is a ticket that a client has abandoned, or may have: a message to it may come before the client's.
type left struct {
	ticket
	abandoned bool
	tried     bool        // to free the lock: there is a successor
	due       fabric.Time // of its early ticket, if it began as one
}

// NewAgent returns the agent of a node.
func NewAgent(node fabric.Node, cfg Config) *Agent {
	return &Agent{node: node, port: node.Agent(), cfg: cfg, tickets: map[key]*left{}, ids: baseline.IDs{}}
}

// Run handles messages until the Port is closed or interrupted. What goes wrong with a
// single lock goes to report (nil: nowhere).
func (a *Agent) Run(report func(error)) error {
	return baseline.Run("mcs", a.port, a.next, a.forget, a.handle, report)
}

func (a *Agent) next() fabric.Time {
	if len(a.early) > 0 {
		return a.early[0].due
	}
	return fabric.Forever
}

func (a *Agent) handle(m *fabric.Message) error {
	if m.Kind < msgSuccessor || m.Kind > msgAbandoned {
		return nil
	}
	k := key{fabric.Addr(m.Body[0]), fabric.ClientID(m.Body[1])}
	abandoned := m.Kind == msgAbandoned
	if k.id.CN() != a.node.ID() || abandoned && m.From.CN() != a.node.ID() {
		return nil // not of this node
	}
	t := a.tickets[k]
	if t == nil {
		t = &left{ticket: ticket{lock: k.lock, id: k.id}}
		a.tickets[k] = t
		if !abandoned {
			t.due = a.port.Now() + earlyNs
			a.early = append(a.early, early{k, t.due})
		}
	}
	if abandoned {
		t.adopt(m)
		if tickets := int(m.Body[5]); tickets > 0 {
			a.ids[k.id] = tickets
		}
	} else {
		t.hear(m)
	}
	return a.advance(k, t)
}

// forget drops the first of the early tickets, if its client has not abandoned it, and it is not a later one by now.
func (a *Agent) forget() error {
	e := a.early[0]
	a.early = a.early[1:]
	if t := a.tickets[e.key]; t != nil && !t.abandoned && t.due == e.due {
		delete(a.tickets, e.key)
	}
	return nil
}

// adopt takes over what the client knew. What came since then is not overwritten.
func (t *left) adopt(m *fabric.Message) {
	t.abandoned = true
	if m.Body[3] != 0 {
		t.granted, t.token = true, lock.Token(m.Body[2])
	}
	if next := fabric.ClientID(m.Body[4]); next != 0 {
		t.next = next
	}
}

// advance releases the lock, once an abandoned ticket holds it.
func (a *Agent) advance(k key, t *left) error {
	if !t.abandoned || !t.granted {
		return nil
	}
	if t.next == 0 {
		if t.tried {
			return nil
		}
		t.tried = true
		n := t.freeOps(a.ops[:], a.cfg.Plain)
		err := a.port.Do(a.ops[:n])
		if err == nil && !a.ops[n-1].Swapped() {
			return nil // the successor's message will come
		}
		a.done(k)
		return err
	}
	a.done(k)
	m := t.handover()
	return a.port.Send(t.next, &m)
}

// done forgets a ticket.
func (a *Agent) done(k key) {
	delete(a.tickets, k)
	a.ids.Done(a.node, k.id)
}
