package netlock

import (
	"errors"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/pswitch"
	"github.com/declock/declock/lab/locks/server"
)

// An Agent handles the messages of its machine, and sends anew what has not been answered. On the compute node that plays the switch it runs the
// switch's program, on the one that has the server the server. It uses the node's agent Port.
type Agent struct {
	pool   *Pool
	port   fabric.Port
	plays  *pswitch.Switch // nil: another does
	server *server.Agent
	m      fabric.Message
	// The packet that is in the program, whether it goes through again, as m, and how the program sends.
	in    fabric.Message
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
	next := fabric.Forever
	for {
		if next == fabric.Forever || a.port.Now() >= next {
			next = a.pool.resend(a.port)
		}
		err := a.server.Serve()
		if err == nil {
			a.m, err = a.port.Recv(min(next, a.server.Next()))
		}
		if err == nil {
			err = a.handle()
		}
		switch {
		case errors.Is(err, fabric.ErrClosed), errors.Is(err, fabric.ErrInterrupted):
			return nil
		case err != nil && !errors.Is(err, fabric.ErrDeadline):
			return err
		}
	}
}

// handle handles the message that has come.
func (a *Agent) handle() error {
	switch {
	case up(a.m.Kind):
		if a.plays != nil {
			a.play()
		}
	case a.m.Kind == msgKeep || a.m.Kind == msgRefill:
		a.server.Work(&a.m)
	default:
		a.pool.mu.Lock()
		a.pool.handle(a.port, &a.m)
		a.pool.mu.Unlock()
		return a.server.Take(&a.m)
	}
	return nil
}

// play runs the program for the message that has come, and for what that recirculates.
func (a *Agent) play() {
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
