package netlock

import (
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/pswitch"
	"github.com/declock/declock/lab/locks/internal/switched"
	"github.com/declock/declock/lab/locks/server"
)

// An Agent handles the messages of its machine, and sends anew what has not been answered. On the compute node that plays the switch it runs the
// switch's program, on the one that has the server the server. It uses the node's agent Port.
type Agent struct {
	pool   *Pool
	port   fabric.Port
	plays  *pswitch.Switch // nil: another does
	server *server.Agent
	// The packet that is in the program, whether it goes through again, as m, and how the program sends.
	in, m fabric.Message
	again bool
	send  func(fabric.ClientID, *fabric.Message)
}

// NewAgent returns the agent of a pool's machine.
func NewAgent(n fabric.Node, pool *Pool) *Agent {
	a := &Agent{pool: pool, port: n.Agent(), server: server.NewAgent(n, pool.cfg.Server)}
	a.server.Also, a.send = newOverflow(a.port).handle, a.sendPacket
	return a
}

// Run serves until the Port is closed or interrupted. It fails if this machine plays the switch, and the registers are more than a switch has.
func (a *Agent) Run(func(error)) error {
	if a.pool.to == a.pool.self {
		program, err := NewProgram(a.pool.cfg)
		if err != nil {
			return err
		}
		a.plays = pswitch.New(program)
	}
	return switched.Serve(a.port, a.server, func() fabric.Time { return a.pool.resend(a.port) }, a.handle)
}

// handle handles a message.
func (a *Agent) handle(m *fabric.Message) error {
	switch {
	case up(m.Kind):
		if a.plays != nil {
			a.play(m)
		}
	case m.Kind == msgKeep || m.Kind == msgRefill:
		a.server.Work(m)
	default:
		a.pool.mu.Lock()
		a.pool.handle(a.port, m)
		a.pool.mu.Unlock()
		return a.server.Take(m)
	}
	return nil
}

// play runs the program for a message, and for what that recirculates.
func (a *Agent) play(m *fabric.Message) {
	a.m = *m
	for a.again = true; a.again; {
		a.again, a.in = false, a.m
		a.plays.Handle(&a.in, a.send)
	}
}

// sendPacket is how the program sends.
func (a *Agent) sendPacket(to fabric.ClientID, m *fabric.Message) {
	if to == pswitch.Itself {
		a.m, a.again = *m, true
		return
	}
	_ = a.port.Send(to, m)
}
