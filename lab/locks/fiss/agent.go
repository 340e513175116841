package fiss

import (
	"errors"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/pswitch"
)

// An Agent handles the messages of its machine, and sends anew what has not been answered. On the compute node that plays the switch it runs the
// switch's program, too. It uses the node's agent Port.
type Agent struct {
	pool  *Pool
	port  fabric.Port
	plays *pswitch.Switch // nil: another does
	m     fabric.Message
}

// NewAgent returns the agent of a pool's machine.
func NewAgent(n fabric.Node, pool *Pool) *Agent { return &Agent{pool: pool, port: n.Agent()} }

// Run serves until the Port is closed or interrupted. It fails if this machine plays the switch, and the registers are more than a switch has.
func (a *Agent) Run(func(error)) error {
	if a.pool.to == a.pool.self {
		program, err := NewProgram(a.pool.cfg)
		if err != nil {
			return err
		}
		a.plays = pswitch.New(program)
	}
	next, send := fabric.Forever, func(to fabric.ClientID, m *fabric.Message) { _ = a.port.Send(to, m) }
	for {
		if every := a.pool.cfg.ResendNs / 2; every > 0 && (next == fabric.Forever || a.port.Now() >= next) {
			a.pool.resend(a.port)
			next = a.port.Now() + every
		}
		var err error
		a.m, err = a.port.Recv(next)
		switch {
		case errors.Is(err, fabric.ErrClosed), errors.Is(err, fabric.ErrInterrupted):
			return nil
		case errors.Is(err, fabric.ErrDeadline):
		case err != nil:
			return err
		case a.m.Kind >= msgAcquire && a.m.Kind <= lastUp:
			if a.plays != nil {
				a.plays.Handle(&a.m, send)
			}
		default:
			a.pool.mu.Lock()
			a.pool.handle(a.port, &a.m)
			a.pool.mu.Unlock()
		}
	}
}

// resend sends anew what has not been answered.
func (p *Pool) resend(port fabric.Port) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.slots {
		t := &p.slots[i]
		if t.phase == idle || t.due > port.Now() {
			continue
		}
		switch t.phase {
		case asked:
			p.acquire(port, t)
		case holds, releasing:
			if !t.known {
				p.acquire(port, t)
			}
			if t.phase == releasing {
				t.due = port.Now() + p.cfg.ResendNs
				p.send(port, p.to, msgRelease, uint64(t.lock), uint64(t.op))
			}
		case leaving:
			p.depart(port, t)
		}
	}
}
