package fiss

import (
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/pswitch"
	"github.com/declock/declock/lab/locks/internal/switched"
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
	send := func(to fabric.ClientID, m *fabric.Message) { _ = a.port.Send(to, m) }
	return switched.Serve(a.port, a.server, func() fabric.Time { return a.pool.resend(a.port) }, func(m *fabric.Message) error {
		if !up(m.Kind) {
			return a.handle(m)
		}
		if a.plays != nil {
			a.plays.Handle(m, send)
		}
		return nil
	})
}

// handle handles a message that is not for the switch.
func (a *Agent) handle(m *fabric.Message) error {
	if err := a.server.Take(m); err != nil {
		return err
	}
	a.pool.mu.Lock()
	a.pool.handle(a.port, m)
	a.pool.mu.Unlock()
	return nil
}

// resend sends anew what has not been answered, and returns when to look again.
func (p *Pool) resend(port fabric.Port) (next fabric.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next = min(p.leads(port), p.join(port))
	if !p.watched {
		return next
	}
	any := p.relink(port)
	if p.stopped {
		if any {
			next = min(next, port.Now()+p.cfg.ResendNs/2)
		}
		return next
	}
	for i := range p.slots {
		t := &p.slots[i]
		late := t.Due <= port.Now()
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
