package dslr

import (
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/internal/baseline"
	"github.com/declock/declock/lock"
)

// msgReset, to the own agent: the ticket has left; reset the counters for it. Body as msgAbandoned's.
const msgReset = msgAbandoned + 1

// An Agent waits with the tickets of clients of its node that gave up, and gives them back when it is their turn.
// It uses the node's agent Port.
type Agent struct {
	node  fabric.Node
	l     *Locker // over the agent's Port
	tasks baseline.Tasks[*task]
}

// A task is a ticket that the agent has.
type task struct {
	ticket
	baseline.Task
	left  bool // the ticket has been given back: what is left to do is the reset
	tries int
}

// NewAgent returns the agent of a node.
func NewAgent(node fabric.Node, cfg Config) *Agent {
	return &Agent{node: node, l: New(node.Agent(), cfg)}
}

// Run handles tickets of clients of the node until the Port is closed or interrupted. What goes wrong with a
// single lock goes to report (nil: nowhere).
func (a *Agent) Run(report func(error)) error {
	return a.tasks.Run("dslr", a.l.Port(), a.look, a.take, report)
}

// take takes a ticket over from a client of the node.
func (a *Agent) take(m *fabric.Message) error {
	if m.Kind != msgAbandoned && m.Kind != msgReset || m.From.CN() != a.node.ID() {
		return nil
	}
	now := a.l.Port().Now()
	t := &task{left: m.Kind == msgReset, Task: baseline.Task{Due: now}}
	t.lock, t.prev, t.resetFrom, t.mode = fabric.Addr(m.Body[0]), word(m.Body[1]), word(m.Body[2]), lock.Mode(m.Body[3])
	t.slots = uint16(max(m.Body[4], 1))
	t.seen, t.changed, t.backoff, t.atReset = t.prev, now, backoffMinNs, t.resetFrom
	a.tasks = append(a.tasks, t)
	return nil
}

// look does the next step for a ticket.
func (a *Agent) look(t *task) (done bool, err error) {
	l := a.l
	asked := l.Port().Now()
	if t.left {
		old, err := l.retry(fabric.CAS(t.lock, uint64(t.atReset), 0))
		if err != nil {
			return true, err
		}
		done, again := t.resetDone(old, asked, &l.cfg)
		t.Due = asked
		if !again {
			t.tries++
			t.Due += randomBackoff(t.tries, &l.cfg, l.Port().Rand())
		}
		return done, nil
	}
	val, err := l.retry(fabric.Load(t.lock))
	if err != nil {
		return true, err // the lease takes the ticket back
	}
	switch t.look(val, asked, &l.cfg) {
	case granted:
		_, err := l.retry(fabric.FAA(t.lock, uint64(returned(t.mode, t.slots))))
		t.left, t.Due = true, asked
		return err != nil || t.resetFrom == 0, err
	case passed:
		return true, nil
	case silent:
		_, err := l.retry(fabric.CAS(t.lock, uint64(val), uint64(t.reset(val))))
		t.Due = asked
		return err != nil, err
	}
	t.Due = asked + t.pause(&l.cfg, l.Port().Rand())
	return false, nil
}
