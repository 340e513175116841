package mcs

import (
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// An Agent does the rest of the algorithm for clients of its compute node that have left
// a place in a queue. It uses the node's agent Port.
type Agent struct {
	node   fabric.Node
	port   fabric.Port
	cfg    Config
	ops    [2]fabric.Op
	places map[key]*left
	early  []early                 // in the order of due
	owed   map[fabric.ClientID]int // places that are still to be done in a name
}

// A key names a place that was left.
type key struct {
	lock fabric.Addr
	id   fabric.ClientID
}

// earlyNs is for how long a message waits for the client's, which leaves its name and sends that message next.
const earlyNs = 10 * fabric.Second

// An early place is one that came to be by a message before the client's; or by a stray one, which nothing follows.
type early struct {
	key
	due fabric.Time // when it is forgotten, if it is no orphan by then
}

// left is a place that a client has left, or may have: a message to it may come before the client's.
type left struct {
	place
	orphan bool        // the client has left it
	tried  bool        // to free the lock: there is a successor
	due    fabric.Time // of its early place, if it began as one
}

// NewAgent returns the agent of a node.
func NewAgent(node fabric.Node, cfg Config) *Agent {
	return &Agent{node: node, port: node.Agent(), cfg: cfg, places: map[key]*left{}, owed: map[fabric.ClientID]int{}}
}

// Run handles messages until the Port is closed or interrupted. What goes wrong with a
// single lock goes to report (nil: nowhere).
func (a *Agent) Run(report func(error)) error {
	for {
		next := fabric.Forever
		if len(a.early) > 0 {
			next = a.early[0].due
		}
		m, err := a.port.Recv(next)
		switch {
		case errors.Is(err, fabric.ErrClosed), errors.Is(err, fabric.ErrInterrupted):
			return nil
		case errors.Is(err, fabric.ErrDeadline):
			a.forget()
			continue
		case err != nil:
			return err
		}
		if err := a.handle(&m); err != nil && report != nil {
			report(fmt.Errorf("mcs: agent of %v: %w", a.node.ID(), err))
		}
	}
}

func (a *Agent) handle(m *fabric.Message) error {
	if m.Kind < msgSuccessor || m.Kind > msgOrphan {
		return nil
	}
	k := key{fabric.Addr(m.Body[0]), fabric.ClientID(m.Body[1])}
	orphan := m.Kind == msgOrphan
	if k.id.CN() != a.node.ID() || orphan && m.From.CN() != a.node.ID() {
		return nil // not of this node: nobody has left it here
	}
	p := a.places[k]
	if p == nil {
		p = &left{place: place{lock: k.lock, id: k.id}}
		a.places[k] = p
		if !orphan {
			p.due = a.port.Now() + earlyNs
			a.early = append(a.early, early{k, p.due})
		}
	}
	if orphan {
		p.adopt(m)
		if owed := int(m.Body[5]); owed > 0 {
			a.owed[k.id] = owed
		}
	} else {
		p.note(m)
	}
	return a.advance(k, p)
}

// forget drops the first of the places whose clients have not left them, unless it is a later one by now.
func (a *Agent) forget() {
	e := a.early[0]
	a.early = a.early[1:]
	if p := a.places[e.key]; p != nil && !p.orphan && p.due == e.due {
		delete(a.places, e.key)
	}
}

// adopt takes over what the client knew. What came since then is not overwritten.
func (p *left) adopt(m *fabric.Message) {
	p.orphan = true
	if m.Body[3] != 0 {
		p.granted, p.token = true, lock.Token(m.Body[2])
	}
	if next := fabric.ClientID(m.Body[4]); next != 0 {
		p.next = next
	}
}

// advance releases the lock, once it is the orphan's.
func (a *Agent) advance(k key, p *left) error {
	if !p.orphan || !p.granted {
		return nil
	}
	if p.next == 0 {
		if p.tried {
			return nil
		}
		p.tried = true
		n := p.freeOps(a.ops[:], a.cfg)
		err := a.port.Do(a.ops[:n])
		if err == nil && !a.ops[n-1].Swapped() {
			return nil // the successor's message will come
		}
		a.done(k)
		return err
	}
	a.done(k)
	m := p.handover()
	return a.port.Send(p.next, &m)
}

// done forgets a place, and gives the name back after its last.
func (a *Agent) done(k key) {
	delete(a.places, k)
	if a.owed[k.id]--; a.owed[k.id] <= 0 {
		delete(a.owed, k.id)
		a.node.Retire(k.id)
	}
}
