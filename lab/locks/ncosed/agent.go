package ncosed

import (
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/internal/baseline"
	"github.com/declock/declock/lock"
)

// An Agent does the rest of the algorithm for clients of its compute node that have abandoned a ticket. It is
// the home of locks, too, if it is that of the lowest node, or one of [Config.Homes]. It uses the node's agent Port.
type Agent struct {
	baseline.Agent[left, *left]
	mail  mailer
	ops   [1]fabric.Op
	locks map[fabric.Addr]*readers
}

// earlyNs is for how long a message waits for the client's.
const earlyNs = 10 * fabric.Second

// left is a ticket that a client has abandoned, or may have.
type left struct {
	ticket
	baseline.Left
}

// readers are what the home knows of a lock: how many have released, and the writer that waits for how many.
type readers struct {
	released uint64
	writer   fabric.ClientID
	awaited  uint64
}

// NewAgent returns the agent of a node. home is the first: see HomeOf.
func NewAgent(node fabric.Node, home fabric.ClientID, cfg Config) *Agent {
	a := &Agent{mail: mailer{port: node.Agent(), first: home, homes: cfg.Homes}, locks: map[fabric.Addr]*readers{}}
	a.Start(node, baseline.Rest[*left]{
		Name: "ncosed", First: msgReader, Abandoned: msgAbandoned, EarlyNs: earlyNs,
		Other: a.serve, Adopt: adopt, Hear: func(t *left, m *fabric.Message) { t.Hear(m) }, Advance: a.advance,
	})
	return a
}

// adopt makes a ticket the client's.
func adopt(t *left, m *fabric.Message) (tickets uint64) {
	t.Due = fabric.Forever
	state := m.Body[2]
	t.ticket = ticket{lock: fabric.Addr(m.Body[0]), id: fabric.ClientID(m.Body[1]), granted: state&isGranted != 0, ended: state&isEnded != 0,
		behind: state&isBehind != 0, heard: uint32(m.Body[3] >> 32), count: uint32(m.Body[3]), next: fabric.ClientID(m.Body[4]), before: uint32(m.Body[5])}
	if state&isWriter != 0 {
		t.mode = lock.Exclusive
	}
	return m.Body[6]
}

// advance releases the lock, once an abandoned ticket holds it.
func (a *Agent) advance(t *left) (done bool, err error) {
	if !t.granted {
		return false, nil
	}
	return t.ticket.advance(&a.mail, a.ops[:])
}

// serve is what the home does.
func (a *Agent) serve(m *fabric.Message) error {
	if m.Kind < msgReleased || m.Kind > msgAsk {
		return nil
	}
	l := fabric.Addr(m.Body[0])
	r := a.locks[l]
	if r == nil {
		r = new(readers)
		a.locks[l] = r
	}
	switch m.Kind {
	case msgReleased:
		r.released++
	case msgAwait:
		r.writer, r.awaited = fabric.ClientID(m.Body[1]), m.Body[2]
	case msgAsk:
		to := fabric.ClientID(m.Body[1])
		return a.mail.send(to, msgReleases, [7]uint64{uint64(l), uint64(to), r.released})
	}
	if r.writer == 0 || r.released != r.awaited {
		return nil
	}
	to := r.writer
	*r = readers{}
	return a.mail.grant(l, to)
}
