package fiss

import (
	"fmt"
	"slices"
	"sync"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/internal/switched"
	"github.com/declock/declock/lock"
)

// A Pool is what the clients of a machine have in common: the agents of locks that are here, and what each client waits for or holds.
type Pool struct {
	cfg  Config
	cn   fabric.CNID
	to   fabric.ClientID // the switch
	self fabric.ClientID // the machine's own agent Port

	mu     sync.Mutex
	agents map[fabric.Addr]*agent
	slots  []ticket
	idle   []int // slots that are free
	moves  map[int]*move
	spare  []*agent
	m      fabric.Message
	// watched: the agent Port looks for what is to be sent anew.
	watched bool
	// outside are the locks that are known to be a server's: the switch never gets registers for them.
	outside map[fabric.Addr]bool
	// links are those to other machines, with Config.Acks.
	links map[fabric.CNID]*link

	// Of recoveries. The View.Epoch when this machine joined; the last round that it has taken part in; whether it waits for the end of that; View.Lost, View.Epoch, and the incarnation of each live node (0: none has
	// the number), when it looked last; the View.Epoch that has shown that a node has gone, here or to another, and the one until which that has been made up for.
	since     uint64
	round     uint64
	stopped   bool
	lost      uint64
	looked    uint64
	last      [int(fabric.MaxCN) + 1]uint64
	gone      uint64
	recovered uint64
	lead      *recovery // nil: another machine leads, or none
	led       uint64    // the last round that this machine has led: never again, for machines have paused in it
	view      func() fabric.View
	// incarnation is that of fabric.Members; nil: the fabric has none.
	incarnation func(fabric.CNID) uint64
	// ended is, by machine and slot, the number of the last operation that this machine, as a home, has ended.
	ended map[int]uint32
	// late: nodes had crashed before this machine joined, so it is the home of no lock (Config.Home).
	late bool
	// key tells this incarnation of the machine from others that have had its number: the View.Epoch when it joined. joining: the switch has not heard yet which nodes were live then; begun: when to say so anew.
	key     uint32
	joining bool
	found   fabric.CNSet
	begun   switched.Timer
}

// NewPool returns the pool of a machine.
func NewPool(n fabric.Node, cfg Config) *Pool {
	v := n.View()
	p := newPool(n.ID(), cfg.switchOf(v), cfg)
	p.since, p.key = v.Epoch, max(uint32(v.Epoch&(1<<keyBits-1)), 1)
	p.joining, p.found = cfg.Device, v.Live
	if m, ok := n.(interface {
		Incarnation(id fabric.CNID) uint64
	}); ok {
		p.incarnation = m.Incarnation
	}
	p.look(v) // the same view: what goes after it is seen by the next look
	p.view, p.gone = n.View, 0
	if v.Lost > 0 { // others may not have made up for that
		p.gone, p.late = v.Epoch, true
	}
	return p
}

func newPool(cn, to fabric.CNID, cfg Config) *Pool {
	cfg = cfg.withDefaults()
	cfg.Switch = to
	p := &Pool{cfg: cfg, cn: cn, to: fabric.AgentOf(to), self: fabric.AgentOf(cn),
		agents: map[fabric.Addr]*agent{}, slots: make([]ticket, cfg.Slots), moves: map[int]*move{}, outside: map[fabric.Addr]bool{}, links: map[fabric.CNID]*link{}, ended: map[int]uint32{}, key: 1}
	for i := range p.slots {
		p.slots[i].op = newOp(p.cn, i, 0)
		p.idle = append(p.idle, cfg.Slots-1-i)
	}
	return p
}

// phase is what becomes of a slot's operation.
type phase uint8

const (
	idle      phase = iota
	asked           // ACQUIRE has gone to the switch
	waiting         // in the queue of an agent
	holds           // the client has the lock
	refusedIt       // the lock is busy, and the client does not wait
	outside         // the switch has no registers for the lock
	releasing       // RELEASE has gone to the switch
	kept            // the client is done, the slot is its agent's
	leaving         // FREE or TRANSFER of the agent has gone to the switch
)

// A ticket is what is known of a slot.
type ticket struct {
	op     opID
	phase  phase
	lock   fabric.Addr
	client fabric.ClientID
	// left: the client has given up; the lock is released once it is granted.
	left bool
	// known: the agent knows of the client, so ACQUIRE is not sent anew.
	known bool
	// behind: it does not wait, and was asked for while a release by this machine was under way.
	behind bool
	// direct: granted by the switch at once.
	direct         bool
	agent          *agent // leaving
	next           opID   // leaving: to whom; 0: nowhere
	switched.Timer        // when to send anew
}

// An agent keeps the holders and waiters of a lock.
type agent struct {
	lock    fabric.Addr
	mode    lock.Mode
	seen    uint64          // incarnation: all grants by the switch up to this one are known
	beyond  map[uint64]bool // and these further ones
	holders []opID
	queue   []opID
	slot    int  // that it leaves with
	home    bool // it never leaves: see home.go
	passed  int  // readers that have come to hold it while a writer waits
}

// A move is an agent that comes in several messages.
type move struct {
	op     opID
	head   fabric.Message
	here   bool // head
	queue  []opID
	number uint32 // of the last one of its sender's slot that is here
	any    bool   // there has been one
}

// send sends a message. To a machine that has gone it is lost.
func (p *Pool) send(port fabric.Port, to fabric.ClientID, kind fabric.MsgKind, body ...uint64) {
	p.m = fabric.Message{Kind: kind}
	copy(p.m.Body[:], body)
	if p.cfg.Acks && to.CN() != p.cn && sure(kind) {
		p.sendSure(port, to.CN(), p.m)
		return
	}
	_ = port.Send(to, &p.m)
}

// begin asks for a lock: it returns the slot, -1 if there is none.
func (p *Pool) begin(port fabric.Port, r *lock.Request) int {
	if len(p.idle) == 0 {
		return -1
	}
	i := p.idle[len(p.idle)-1]
	p.idle = p.idle[:len(p.idle)-1]
	t := &p.slots[i]
	*t = ticket{op: t.op.next(flagsOf(r)), lock: r.Lock, client: port.ID()}
	p.ask(port, t)
	return i
}

// ask asks this machine's agent, if it has the lock's, or the switch.
func (p *Pool) ask(port fabric.Port, t *ticket) {
	a := p.agentOf(t.lock)
	switch {
	case p.outside[t.lock]:
		t.phase = outside
	case p.stopped:
		t.phase, t.known = asked, false
	case a != nil && a.admits(&p.cfg, t.op.mode()):
		a.add(t.op)
		t.phase, t.known = holds, true
	case a == nil || !a.home && t.op.try() && p.releases(t.lock):
		t.phase, t.known, t.behind = asked, false, t.op.try() && p.releases(t.lock)
		p.acquire(port, t)
	case t.op.try():
		t.phase = refusedIt
	default:
		a.queue = append(a.queue, t.op)
		t.phase, t.known = waiting, true
	}
}

// acquire sends ACQUIRE. A ticket that its client has left gets the answer here.
func (p *Pool) acquire(port fabric.Port, t *ticket) {
	answer := t.client
	if t.left {
		answer = p.self
	}
	p.watch(port, t)
	p.send(port, p.to, msgAcquire, uint64(t.lock), uint64(t.op), uint64(p.key), uint64(answer))
}

// admits reports whether one more may hold: so many readers may pass a writer, but at a home none, for there the order is a server's.
func (a *agent) admits(cfg *Config, m lock.Mode) bool {
	return a.home && len(a.holders)+len(a.queue) == 0 || m == lock.Shared && a.mode == lock.Shared && (len(a.queue) == 0 || !a.home && a.passed < cfg.Passes)
}

// add makes an operation a holder.
func (a *agent) add(o opID) {
	if a.home && len(a.holders) == 0 {
		a.mode = o.mode()
	}
	a.holders = append(a.holders, o)
	if len(a.queue) > 0 {
		a.passed++
	}
}

// end makes a slot free.
func (p *Pool) end(t *ticket) {
	t.phase, t.agent = idle, nil
	p.idle = append(p.idle, t.op.slot())
}

// giveUp ends the wait of a client. What it asked for is released when it is granted.
func (p *Pool) giveUp(port fabric.Port, t *ticket) {
	a := p.agents[t.lock]
	switch {
	case t.phase == holds:
		p.release(port, t)
	case t.phase == refusedIt || t.phase == outside || p.stopped:
		p.end(t)
	case t.phase == waiting && a != nil && slices.Contains(a.queue, t.op):
		a.queue = slices.DeleteFunc(a.queue, func(o opID) bool { return o == t.op })
		p.end(t)
	default:
		t.left = true
		if t.phase == asked && !t.known {
			p.acquire(port, t)
		}
	}
}

// release releases what a client holds.
func (p *Pool) release(port fabric.Port, t *ticket) {
	a := p.agents[t.lock]
	if p.stopped {
		t.phase = releasing
		return
	}
	if a == nil || !a.drop(t.op) {
		t.phase, t.Tries = releasing, 0
		p.part(port, t)
		return
	}
	if a.slot == t.op.slot() {
		t.phase = kept
	} else {
		p.end(t)
	}
	p.leaveIfEmpty(port, a)
}

// part sends RELEASE.
func (p *Pool) part(port fabric.Port, t *ticket) {
	p.watch(port, t)
	p.send(port, p.to, msgRelease, uint64(t.lock), uint64(t.op))
}

// watch has the agent Port send anew what is sent now, unless it is answered.
func (p *Pool) watch(port fabric.Port, t *ticket) {
	if p.cfg.ResendNs == 0 {
		return
	}
	t.Start(port.Now(), p.cfg.ResendNs)
	p.looksAgain(port)
}

// looksAgain has the agent Port look for what is to be sent anew.
func (p *Pool) looksAgain(port fabric.Port) {
	if !p.watched {
		p.watched = true
		p.send(port, p.self, msgWake)
	}
}

// drop takes a holder out.
func (a *agent) drop(o opID) bool {
	i := slices.Index(a.holders, o)
	if i >= 0 {
		a.holders = slices.Delete(a.holders, i, i+1)
	}
	return i >= 0
}

// leaveIfEmpty sends the agent of a lock without holders to the first waiter's machine, or gives it up.
func (p *Pool) leaveIfEmpty(port fabric.Port, a *agent) {
	if len(a.holders) > 0 || len(a.beyond) > 0 { // the switch would refuse, for a reader whose request is not here yet
		return
	}
	if a.home {
		p.serve(port, a)
		return
	}
	delete(p.agents, a.lock)
	t := &p.slots[a.slot]
	*t = ticket{op: t.op.next(0), phase: leaving, lock: a.lock, agent: a}
	if len(a.queue) > 0 {
		t.next = a.queue[0]
		a.queue = slices.Delete(a.queue, 0, 1)
		more := inMore
		if p.cfg.Acks {
			more--
		}
		for i := inMove; i < len(a.queue); i += more { // the switch takes one packet
			body := [7]uint64{uint64(a.lock), uint64(t.op), uint64(i)}
			for k, o := range a.queue[i:min(i+more, len(a.queue))] {
				body[3+k] = uint64(o)
			}
			p.send(port, fabric.AgentOf(t.next.cn()), msgWaiters, body[:]...)
		}
	}
	p.depart(port, t)
}

// depart sends FREE or TRANSFER.
func (p *Pool) depart(port fabric.Port, t *ticket) {
	a := t.agent
	p.watch(port, t)
	info := a.seen
	if a.mode == lock.Exclusive {
		info |= exclusive
	}
	if t.next == 0 {
		p.send(port, p.to, msgFree, uint64(t.lock), uint64(t.op), info)
		return
	}
	body := [7]uint64{uint64(t.lock), uint64(t.op), info, uint64(t.next), uint64(len(a.queue))}
	for i, o := range a.queue[:min(inMove, len(a.queue))] {
		body[5+i] = uint64(o)
	}
	p.send(port, p.to, msgTransfer, body[:]...)
}

// install makes a machine that of a lock's agent. The queue's readers hold the lock with a first one.
func (p *Pool) install(port fabric.Port, l fabric.Addr, first opID, seen uint64, queue []opID, slot int) {
	if p.agents[l] != nil {
		panic(fmt.Sprintf("fiss: two agents of %v on %v", l, p.cn))
	}
	a := p.newAgent(l)
	a.mode, a.seen, a.holders, a.slot = first.mode(), seen, append(a.holders, first), slot
	for _, o := range queue {
		if !a.admits(&p.cfg, o.mode()) {
			a.queue = append(a.queue, o)
			continue
		}
		a.add(o)
		p.send(port, fabric.AgentOf(o.cn()), msgGrant, uint64(l), uint64(o))
	}
}

// newAgent makes a lock's agent, without holders.
func (p *Pool) newAgent(l fabric.Addr) *agent {
	var a *agent
	if n := len(p.spare); n > 0 {
		a, p.spare = p.spare[n-1], p.spare[:n-1]
	} else {
		a = new(agent)
	}
	clear(a.beyond)
	*a = agent{lock: l, beyond: a.beyond, holders: a.holders[:0], queue: a.queue[:0]}
	p.agents[l] = a
	return a
}

// grant says that a ticket's client has the lock.
func (p *Pool) grant(port fabric.Port, t *ticket) {
	t.phase = holds
	if t.left {
		p.release(port, t)
		return
	}
	p.wake(port, t)
}

// wake has a ticket's client look at it.
func (p *Pool) wake(port fabric.Port, t *ticket) {
	if port.ID() != t.client {
		p.send(port, t.client, msgWake, uint64(t.lock), uint64(t.op))
	}
}
