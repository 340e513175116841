package shift

import (
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/internal/baseline"
	"github.com/declock/declock/lock"
)

// An Agent does the rest of the algorithms for writers of its compute node that have abandoned a ticket, and
// recovers locks when its node is the lock server. It uses the node's agent Port.
type Agent struct {
	baseline.Agent[left, *left]
	node fabric.Node
	cfg  Config
	ops  [1]fabric.Op
	wide fabric.Wide
}

// left is a ticket that a client has abandoned, or may have.
type left struct {
	ticket
	baseline.Left
}

// pollNs is how often an agent looks whether readers have left, for a writer that gave up.
const pollNs = 5 * fabric.Microsecond

// NewAgent returns the agent of a node.
func NewAgent(node fabric.Node, cfg Config) *Agent {
	a := &Agent{node: node, cfg: cfg.withDefaults()}
	a.Start(node, baseline.Rest[*left]{
		Name: "shift", First: msgSuccessor, Abandoned: msgAbandoned, EarlyNs: 4 * a.cfg.LeaseNs,
		Other: a.recover, Adopt: a.adopt, Hear: a.hear, Advance: a.advance, Look: a.look,
	})
	return a
}

// adopt takes a ticket over from its client.
func (a *Agent) adopt(o *left, m *fabric.Message) (tickets uint64) {
	now := a.Port.Now()
	o.ticket = ticket{lock: fabric.Addr(m.Body[0]), id: fabric.ClientID(m.Body[1]), mode: lock.Exclusive,
		era: uint16(m.Body[2]), next: fabric.ClientID(m.Body[4]), seen: m.Body[5], changed: now}
	o.Due = now + a.cfg.LeaseNs/2
	return m.Body[3]
}

func (a *Agent) hear(o *left, m *fabric.Message) {
	now := a.Port.Now()
	if o.ticket.hear(m, now); o.polls {
		o.Due = now
	}
}

// advance releases the lock, once an abandoned ticket holds it: WRITER-RELEASE of Algorithm 3.
func (a *Agent) advance(o *left) (done bool, err error) {
	if !o.granted || o.next == 0 && o.Tried {
		return false, nil
	}
	if o.next == 0 {
		o.Tried = true
		old, err := a.do(o.free(&a.wide))
		freed, lost := o.freed(old)
		return err != nil || freed || lost, err // else the successor's message will come, or the lock be recovered
	}
	var old entry
	if op, ok := o.gives(&a.wide, &a.cfg); ok {
		if old, err = a.do(op); err != nil || old.rel != o.base {
			return true, err
		}
	}
	m := o.gift(old, &a.cfg)
	_ = a.Port.Send(o.next, &m) // if the successor has crashed, the lock is recovered
	return true, nil
}

func (a *Agent) do(op fabric.Op) (entry, error) {
	a.ops[0] = op
	err := a.Port.Do(a.ops[:])
	return found(&a.wide), err
}

// look looks at RelCnt for an abandoned ticket: readers have left, the lock was recovered, or must be.
func (a *Agent) look(o *left) (done bool, err error) {
	now := a.Port.Now()
	a.ops[0] = fabric.Load(o.lock.Add(relOffset))
	if err := a.Port.Do(a.ops[:]); err != nil {
		return true, err
	}
	rel := a.ops[0].Old
	o.Due = now + a.cfg.LeaseNs/2
	if o.polls {
		o.Due = now + pollNs
	}
	if o.reached(rel, now) {
		return a.advance(o)
	}
	leapt, silent := o.ticket.look(rel, now, a.cfg.LeaseNs)
	if !leapt && silent {
		o.changed = now - 2*a.cfg.LeaseNs
		m := o.recover()
		_ = a.Port.Send(serverOf(a.node), &m)
	}
	return leapt, nil
}

// recover resets a lock whose RelCnt is still what the sender has seen for three leases (section 3.6). If it
// is not, the lock has been released or recovered since, and the request is of an old era. There is no
// answer: the sender sees the leap of RelCnt, or asks again.
func (a *Agent) recover(m *fabric.Message) error {
	if m.Kind != msgRecover {
		return nil
	}
	l, rel := fabric.Addr(m.Body[0]), m.Body[3]
	if eraOf(rel) == lastEra {
		return fmt.Errorf("recovery of %v: %w", l, lock.ErrExhausted)
	}
	all := entry{^uint64(0), ^uint64(0)}
	_, err := a.do(extCAS(l, &a.wide, entry{0, rel}, entry{0, ^uint64(0)}, entry{0, rel + leap}, all))
	return err
}
