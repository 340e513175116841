package fiss

import (
	"errors"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/pswitch"
	"github.com/declock/declock/lab/locks/server"
)

// An Agent handles the messages of its machine, and sends anew what has not been answered. On the compute node that plays the switch it runs the
// switch's program, too. It uses the node's agent Port.
type Agent struct {
	pool  *Pool
	port  fabric.Port
	plays *pswitch.Switch // nil: another does
	// server has this machine's part of the locks for which the switch has no registers.
	server *server.Agent
	m      fabric.Message
}

// NewAgent returns the agent of a pool's machine.
func NewAgent(n fabric.Node, pool *Pool) *Agent {
	return &Agent{pool: pool, port: n.Agent(), server: server.NewAgent(n, pool.cfg.Server)}
}

// Run serves until the Port is closed or interrupted. It fails if this machine plays the switch, and the registers are more than a switch has.
func (a *Agent) Run(func(error)) error {
	if a.pool.to == a.pool.self && !a.pool.cfg.Device {
		program, err := NewProgram(a.pool.cfg)
		if err != nil {
			return err
		}
		a.plays = pswitch.New(program)
	}
	a.pool.mu.Lock()
	a.pool.viewed(a.port) // nodes may have gone before this one has joined
	a.pool.alone(a.port)
	a.pool.mu.Unlock()
	next, send := fabric.Forever, func(to fabric.ClientID, m *fabric.Message) { _ = a.port.Send(to, m) }
	for {
		if next == fabric.Forever || a.port.Now() >= next {
			next = a.pool.resend(a.port)
		}
		err := a.server.Serve()
		if err == nil {
			a.m, err = a.port.Recv(min(next, a.server.Next()))
		}
		switch {
		case errors.Is(err, fabric.ErrClosed), errors.Is(err, fabric.ErrInterrupted):
			return nil
		case errors.Is(err, fabric.ErrDeadline):
		case err != nil:
			return err
		case up(a.m.Kind):
			if a.plays != nil {
				a.plays.Handle(&a.m, send)
			}
		default:
			if err := a.server.Take(&a.m); err != nil {
				return err
			}
			a.pool.mu.Lock()
			a.pool.handle(a.port, &a.m)
			a.pool.mu.Unlock()
		}
	}
}

// resend sends anew what has not been answered, and returns when to look again.
func (p *Pool) resend(port fabric.Port) (next fabric.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next = p.leads(port)
	if !p.watched || p.stopped {
		return next
	}
	any := false
	for i := range p.slots {
		t := &p.slots[i]
		late := t.due <= port.Now()
		switch {
		case t.phase == asked, (t.phase == holds || t.phase == releasing) && !t.known:
			if late {
				p.acquire(port, t)
			}
		case t.phase == leaving:
			if late {
				p.depart(port, t)
			}
		case t.phase != releasing:
			continue
		}
		if t.phase == releasing && late {
			p.part(port, t)
		}
		any = true
	}
	if p.watched = any; !any {
		return next
	}
	return min(next, port.Now()+p.cfg.ResendNs/2)
}
