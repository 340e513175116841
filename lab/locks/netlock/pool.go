package netlock

import (
	"slices"
	"sync"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/internal/switched"
	"github.com/declock/declock/lab/locks/server"
	"github.com/declock/declock/lock"
)

// A Pool is what the clients of a machine have in common: requests and releases that are under way.
type Pool struct {
	cfg    Config
	cn     fabric.CNID
	to     fabric.ClientID // the switch
	server fabric.ClientID
	self   fabric.ClientID // the machine's own agent Port

	mu    sync.Mutex
	slots []ticket
	idle  []int // slots that are free
	// late are releases for which there was no slot.
	late []release
	// hot are the locks on the switch, nil if there is no profile; then outside are those that are known not to be.
	hot, outside map[fabric.Addr]bool
	// watched: the agent Port looks for what is to be sent anew.
	watched bool
	m       fabric.Message
	// incarnation is that of the machine, for the server of locks without registers.
	incarnation uint64
}

type release struct {
	lock fabric.Addr
	mode lock.Mode
}

// NewPool returns the pool of a machine.
func NewPool(n fabric.Node, cfg Config) *Pool {
	to, first := cfg.switchOf(n)
	p := newPool(n.ID(), to, first, n.View().Epoch, cfg)
	p.incarnation = server.IncarnationOf(n)
	return p
}

func newPool(cn, to, server fabric.CNID, epoch uint64, cfg Config) *Pool {
	cfg = cfg.withDefaults()
	p := &Pool{cfg: cfg, cn: cn, to: fabric.AgentOf(to), server: fabric.AgentOf(server), self: fabric.AgentOf(cn), slots: make([]ticket, cfg.Slots), outside: map[fabric.Addr]bool{}}
	for i := range p.slots {
		p.slots[i].op = newOp(cn, i, epoch)
		p.idle = append(p.idle, cfg.Slots-1-i)
	}
	if cfg.Hot != nil {
		p.hot = map[fabric.Addr]bool{}
		for _, l := range cfg.Hot[:min(len(cfg.Hot), cfg.Locks)] {
			p.hot[l] = true
		}
	}
	return p
}

// phase is what becomes of a slot's operation.
type phase uint8

const (
	idle      phase = iota
	asked           // the request has gone to the switch, or waits there
	holds           // it is granted
	refused         // the lock is busy, and the client does not wait
	elsewhere       // the switch has no queue for the lock
	releasing
)

// A ticket is what is known of a slot.
type ticket struct {
	op             opID
	phase          phase
	lock           fabric.Addr
	client         fabric.ClientID
	left           bool // the client has given up; the lock is released once it is granted
	direct         bool // it was granted at once
	behind         bool // it does not wait, and was sent while a release of the lock by this machine was under way
	switched.Timer      // when to send anew
}

// onSwitch reports whether a lock may have a queue on the switch.
func (p *Pool) onSwitch(l fabric.Addr) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hot[l] || p.hot == nil && !p.outside[l]
}

// begin asks for a lock: it returns the slot, -1 if there is none. The last one is for releases, for which others may wait.
func (p *Pool) begin(port fabric.Port, r *lock.Request) int {
	if len(p.idle) < 2 {
		return -1
	}
	t := p.take()
	*t = ticket{op: t.op.next(flagsOf(r)), phase: asked, lock: r.Lock, client: port.ID(), behind: r.Try && p.releases(r.Lock)}
	p.ask(port, t)
	return t.op.slot()
}

// releases reports whether a release of a lock by this machine is under way.
func (p *Pool) releases(l fabric.Addr) bool {
	return slices.ContainsFunc(p.slots, func(t ticket) bool { return t.lock == l && t.phase == releasing }) || slices.ContainsFunc(p.late, func(r release) bool { return r.lock == l })
}

// take takes an idle slot.
func (p *Pool) take() *ticket {
	i := p.idle[len(p.idle)-1]
	p.idle = p.idle[:len(p.idle)-1]
	return &p.slots[i]
}

// ask sends the request. That of a client that has given up is its machine's.
func (p *Pool) ask(port fabric.Port, t *ticket) {
	client, info := t.client, uint64(0)
	if t.left {
		client, info = p.self, left
	}
	p.watch(port, t)
	p.send(port, msgAcquire, t, info, client)
}

// send sends the switch a packet.
func (p *Pool) send(port fabric.Port, kind fabric.MsgKind, t *ticket, info uint64, client fabric.ClientID) {
	p.m = fabric.Message{Kind: kind, Body: [7]uint64{uint64(t.lock), uint64(t.op), info, uint64(client), 0, uint64(p.server)}}
	_ = port.Send(p.to, &p.m)
}

// release releases a lock.
func (p *Pool) release(port fabric.Port, l fabric.Addr, mode lock.Mode) {
	if len(p.idle) == 0 {
		p.late = append(p.late, release{l, mode})
		return
	}
	t := p.take()
	*t = ticket{op: t.op.next(opID(mode)), phase: releasing, lock: l, client: p.self}
	p.part(port, t)
}

// part sends a release.
func (p *Pool) part(port fabric.Port, t *ticket) {
	p.watch(port, t)
	p.send(port, msgRelease, t, 0, p.self)
}

// end makes a slot free, for a release that has waited for one if there is any.
func (p *Pool) end(port fabric.Port, t *ticket) {
	t.phase = idle
	p.idle = append(p.idle, t.op.slot())
	if len(p.late) > 0 {
		r := p.late[0]
		p.late = p.late[1:]
		p.release(port, r.lock, r.mode)
	}
}

// giveUp ends the wait of a client. What it has asked for is released when it is granted.
func (p *Pool) giveUp(port fabric.Port, t *ticket) {
	switch t.phase {
	case holds:
		p.granted(port, t)
	case refused, elsewhere:
		p.end(port, t)
	default:
		t.left, t.Tries = true, 0
		p.ask(port, t)
	}
}

// granted releases what has been granted to a client that has given up.
func (p *Pool) granted(port fabric.Port, t *ticket) {
	l, mode := t.lock, t.op.mode()
	p.end(port, t)
	p.release(port, l, mode)
}

// handle does what a message asks for, whichever Port of the machine got it.
func (p *Pool) handle(port fabric.Port, m *fabric.Message) {
	o := opID(m.Body[1])
	if m.Kind < msgGranted || m.Kind > msgReleased || o.cn() != p.cn || o.slot() >= len(p.slots) {
		return
	}
	t := &p.slots[o.slot()]
	switch {
	case t.op != o:
	case m.Kind == msgReleased && t.phase == releasing:
		p.end(port, t)
	case t.phase != asked:
	case m.Kind == msgGranted && t.left:
		p.granted(port, t)
	case m.Kind == msgGranted:
		t.phase, t.direct = holds, m.Body[2] != waited
		p.wake(port, t)
	case t.left:
		p.end(port, t)
	case m.Kind == msgOutside:
		t.phase, p.outside[t.lock] = elsewhere, true
		p.wake(port, t)
	case m.Kind == msgBusy && t.behind: // by now the switch may have executed the release
		t.op, t.behind = t.op.next(t.op&(opTry|opMode)), p.releases(t.lock)
		p.ask(port, t)
	case m.Kind == msgBusy:
		t.phase = refused
		p.wake(port, t)
	}
}

// wake has a ticket's client look at it.
func (p *Pool) wake(port fabric.Port, t *ticket) {
	if port.ID() != t.client {
		p.m = fabric.Message{Kind: msgWake, Body: [7]uint64{uint64(t.lock), uint64(t.op)}}
		_ = port.Send(t.client, &p.m)
	}
}

// watch has the agent Port send anew what is sent now, unless it is answered.
func (p *Pool) watch(port fabric.Port, t *ticket) {
	if p.cfg.ResendNs == 0 {
		return
	}
	t.Start(port.Now(), p.cfg.ResendNs)
	if !p.watched {
		p.watched = true
		p.m = fabric.Message{Kind: msgWake}
		_ = port.Send(p.self, &p.m)
	}
}

// resend sends anew what has not been answered, and returns when to look again.
func (p *Pool) resend(port fabric.Port) fabric.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.watched {
		return fabric.Forever
	}
	p.watched = false
	for i := range p.slots {
		t := &p.slots[i]
		if t.phase != asked && t.phase != releasing {
			continue
		}
		p.watched = true
		switch {
		case t.Due > port.Now():
		case t.phase == asked:
			p.ask(port, t)
		default:
			p.part(port, t)
		}
	}
	if !p.watched {
		return fabric.Forever
	}
	return port.Now() + p.cfg.ResendNs/2
}
