package shift

import (
	"errors"
	"fmt"
	"slices"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/internal/baseline"
	"github.com/declock/declock/lock"
)

// An Agent does the rest of the algorithms for writers of its compute node that have abandoned a ticket, and
// recovers locks when its node is the lock server. It uses the node's agent Port.
type Agent struct {
	node    fabric.Node
	port    fabric.Port
	cfg     Config
	ops     [1]fabric.Op
	wide    fabric.Wide
	tickets []*left
	ids     baseline.IDs
}

// left is a ticket that a client has abandoned, or may have: a message to it may come before the client's.
type left struct {
	ticket
	abandoned bool
	early     []fabric.Message // that came before the client's
	tried     bool             // to free the lock: there is a successor
	due       fabric.Time      // when to look
}

// pollNs is how often an agent looks whether readers have left, for a writer that gave up.
const pollNs = 5 * fabric.Microsecond

// NewAgent returns the agent of a node.
func NewAgent(node fabric.Node, cfg Config) *Agent {
	return &Agent{node: node, port: node.Agent(), cfg: cfg.withDefaults(), ids: baseline.IDs{}}
}

// Run handles messages until the Port is closed or interrupted. What goes wrong with a
// single lock goes to report (nil: nowhere).
func (a *Agent) Run(report func(error)) error {
	return baseline.Run("shift", a.port, a.next, a.work, a.handle, report)
}

func (a *Agent) next() fabric.Time {
	next := fabric.Forever
	for _, o := range a.tickets {
		next = min(next, o.due)
	}
	return next
}

// handle handles a message to the agent, or to a client ID that has been left to it.
func (a *Agent) handle(m *fabric.Message) error {
	switch {
	case m.Kind == msgRecover:
		return a.recover(m)
	case m.Kind < msgSuccessor || m.Kind > msgAbandoned:
		return nil
	}
	id := fabric.ClientID(m.Body[1])
	if id.CN() != a.node.ID() || m.Kind == msgAbandoned && m.From.CN() != a.node.ID() {
		return nil // not of this node
	}
	o := a.find(fabric.Addr(m.Body[0]), id)
	switch {
	case m.Kind == msgAbandoned:
		a.adopt(o, m)
	case o.abandoned:
		o.hear(m, a.port.Now())
	default:
		o.early = append(o.early, *m)
	}
	if o.polls {
		o.due = a.port.Now()
	}
	return a.advance(o)
}

// find returns the ticket of a client ID for a lock, a new one if there is none.
func (a *Agent) find(l fabric.Addr, id fabric.ClientID) *left {
	for _, o := range a.tickets {
		if o.lock == l && o.id == id {
			return o
		}
	}
	o := &left{ticket: ticket{lock: l, id: id, mode: lock.Exclusive}, due: a.port.Now() + 4*a.cfg.LeaseNs}
	a.tickets = append(a.tickets, o)
	return o
}

// adopt takes a ticket over from its client.
func (a *Agent) adopt(o *left, m *fabric.Message) {
	now := a.port.Now()
	o.abandoned, o.era, o.seen, o.changed = true, uint16(m.Body[2]), m.Body[5], now
	o.next = fabric.ClientID(m.Body[4])
	o.due = now + a.cfg.LeaseNs/2
	if m.Body[3] != 0 {
		a.ids[o.id] = int(m.Body[3])
	}
	for i := range o.early {
		o.hear(&o.early[i], now)
	}
	o.early = nil
}

// advance releases the lock, once an abandoned ticket holds it: WRITER-RELEASE of Algorithm 3.
func (a *Agent) advance(o *left) error {
	if !o.abandoned || !o.granted || o.next == 0 && o.tried {
		return nil
	}
	if o.next == 0 {
		o.tried = true
		old, err := a.do(o.free(&a.wide))
		if freed, lost := o.freed(old); err != nil || freed || lost {
			a.done(o)
		}
		return err // the successor's message will come, or the lock be recovered
	}
	defer a.done(o)
	var old entry
	if op, ok := o.gives(&a.wide, &a.cfg); ok {
		var err error
		if old, err = a.do(op); err != nil || old.rel != o.base {
			return err
		}
	}
	m := o.gift(old, &a.cfg)
	_ = a.port.Send(o.next, &m) // if the successor has crashed, the lock is recovered
	return nil
}

func (a *Agent) do(op fabric.Op) (entry, error) {
	a.ops[0] = op
	err := a.port.Do(a.ops[:])
	return found(&a.wide), err
}

// work looks after the tickets whose time has come.
func (a *Agent) work() error {
	var errs []error
	for i := 0; i < len(a.tickets); {
		o := a.tickets[i]
		if o.due <= a.port.Now() {
			errs = append(errs, a.look(o))
		}
		if i < len(a.tickets) && a.tickets[i] == o {
			i++
		}
	}
	return errors.Join(errs...)
}

// look looks at RelCnt for an abandoned ticket: readers have left, the lock was recovered, or must be.
func (a *Agent) look(o *left) error {
	if !o.abandoned { // only messages have come, to a ticket that is no more
		a.remove(o)
		return nil
	}
	now := a.port.Now()
	a.ops[0] = fabric.Load(o.lock.Add(relOffset))
	if err := a.port.Do(a.ops[:]); err != nil {
		a.done(o)
		return err
	}
	rel := a.ops[0].Old
	o.due = now + a.cfg.LeaseNs/2
	if o.polls {
		o.due = now + pollNs
	}
	if o.reached(rel, now) {
		return a.advance(o)
	}
	leapt, silent := o.ticket.look(rel, now, a.cfg.LeaseNs)
	if leapt {
		a.done(o)
	} else if silent {
		o.changed = now - 2*a.cfg.LeaseNs
		m := o.recover()
		_ = a.port.Send(serverOf(a.node), &m)
	}
	return nil
}

// done forgets an abandoned ticket.
func (a *Agent) done(o *left) {
	a.remove(o)
	a.ids.Done(a.node, o.id)
}

func (a *Agent) remove(o *left) {
	a.tickets = slices.DeleteFunc(a.tickets, func(x *left) bool { return x == o })
}

// recover resets a lock whose RelCnt is still what the sender has seen for three leases (section 3.6). If it
// is not, the lock has been released or recovered since, and the request is of an old era. There is no
// answer: the sender sees the leap of RelCnt, or asks again.
func (a *Agent) recover(m *fabric.Message) error {
	l, rel := fabric.Addr(m.Body[0]), m.Body[3]
	if eraOf(rel) == lastEra {
		return fmt.Errorf("recovery of %v: %w", l, lock.ErrExhausted)
	}
	all := entry{^uint64(0), ^uint64(0)}
	_, err := a.do(extCAS(l, &a.wide, entry{0, rel}, entry{0, ^uint64(0)}, entry{0, rel + leap}, all))
	return err
}
