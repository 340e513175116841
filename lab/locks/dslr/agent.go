package dslr

import (
	"errors"

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
	tasks []*task
}

// A task is a ticket that the agent has.
type task struct {
	ticket
	left  bool // the ticket has been given back: what is left to do is the reset
	tries int
	next  fabric.Time // when to look
}

// NewAgent returns the agent of a node.
func NewAgent(node fabric.Node, cfg Config) *Agent {
	return &Agent{node: node, l: New(node.Agent(), cfg)}
}

// Run handles tickets of clients of the node until the Port is closed or interrupted. What goes wrong with a
// single lock goes to report (nil: nowhere).
func (a *Agent) Run(report func(error)) error {
	return baseline.Run("dslr", a.l.Port(), a.next, a.work, a.take, report)
}

func (a *Agent) next() fabric.Time {
	next := fabric.Forever
	for _, t := range a.tasks {
		next = min(next, t.next)
	}
	return next
}

// take takes a ticket over from a client of the node.
func (a *Agent) take(m *fabric.Message) error {
	if m.Kind != msgAbandoned && m.Kind != msgReset || m.From.CN() != a.node.ID() {
		return nil
	}
	now := a.l.Port().Now()
	t := &task{left: m.Kind == msgReset, next: now}
	t.lock, t.prev, t.resetFrom, t.mode = fabric.Addr(m.Body[0]), word(m.Body[1]), word(m.Body[2]), lock.Mode(m.Body[3])
	t.seen, t.changed, t.backoff, t.atReset = t.prev, now, backoffMinNs, t.resetFrom
	a.tasks = append(a.tasks, t)
	return nil
}

// work looks after the tickets whose time has come.
func (a *Agent) work() error {
	var errs []error
	kept := a.tasks[:0]
	for _, t := range a.tasks {
		done := false
		if t.next <= a.l.Port().Now() {
			var err error
			done, err = a.look(t)
			errs = append(errs, err)
		}
		if !done {
			kept = append(kept, t)
		}
	}
	clear(a.tasks[len(kept):])
	a.tasks = kept
	return errors.Join(errs...)
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
		t.next = asked
		if !again {
			t.tries++
			t.next += randomBackoff(t.tries, &l.cfg, l.Port().Rand())
		}
		return done, nil
	}
	val, err := l.retry(fabric.Load(t.lock))
	if err != nil {
		return true, err // the lease takes the ticket back
	}
	switch t.look(val, asked, l.cfg.LeaseNs) {
	case granted:
		_, err := l.retry(fabric.FAA(t.lock, uint64(returned(t.mode))))
		t.left, t.next = true, asked
		return err != nil || t.resetFrom == 0, err
	case passed:
		return true, nil
	case silent:
		_, err := l.retry(fabric.CAS(t.lock, uint64(val), uint64(t.reset(val))))
		t.next = asked
		return err != nil, err
	}
	t.next = asked + t.pause(&l.cfg, l.Port().Rand())
	return false, nil
}
