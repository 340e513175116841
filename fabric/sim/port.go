package sim

import (
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/ram"
)

// A WaitKind is what the user of a Port waits for.
type WaitKind uint8

// What a client waits for.
const (
	WaitNone  WaitKind = iota
	WaitChain          // the completion of chain waitFor
	WaitRoom           // fewer chains in flight
	WaitRecv           // a message, an interrupt or a time
	WaitPause          // an interrupt or a time
	WaitPoll           // a time
)

// A Port implements fabric.Port. It is used within the coroutines that
// Cluster.Go starts. Used by the goroutine that owns the cluster, while Run does
// not run, a wait runs the cluster until it is over: good for setting up.
type Port struct {
	c     *Cluster
	node  *Node
	core  *core
	index uint32 // in Cluster.ports
	id    fabric.ClientID

	wait    WaitKind
	waiter  *Task
	waitGen uint64
	waitFor uint32
	since   fabric.Time
	until   fabric.Time // virtual; of WaitRecv, WaitPause, WaitPoll
	held    bool        // woken while the node was paused

	timerAt  fabric.Time // of the timer event that is under way, Forever: none
	timerGen uint64

	inflight    int // chains posted and not completed
	inflightRA  int // of these, chains with READs or atomics
	interrupted bool
	closed      bool
	epochs      []uint32 // of the memory nodes when this Port first saw them

	stats fabric.Stats
	rng   Rand
	in    inbox
	mem   ram.Arena

	ready bool // what it waits for has come; in an untimed cluster
}

var _ fabric.Port = (*Port)(nil)

func (n *Node) newPort(index int) *Port {
	c := n.c
	c.streams++
	p := &Port{c: c, node: n, core: n.coreOf(index), index: uint32(len(c.ports)),
		id: fabric.Client(n.id, index), timerAt: fabric.Forever}
	if c.untimed != nil {
		p.rng = NewRand(c.cfg.Seed, 1<<32|uint64(p.id)) // the same whichever Ports were opened before
	} else {
		p.rng = NewRand(c.cfg.Seed, c.streams)
	}
	for i := range c.mns {
		p.epochs = append(p.epochs, n.epochOf(fabric.MemID(i)))
	}
	c.ports = append(c.ports, p)
	n.clients[index] = client{state: clientOpen, port: p}
	return p
}

// enter is the start of each method that does something.
func (p *Port) enter() {
	if t := p.c.cur; t != nil {
		t.enter()
	}
}

// block waits until the event loop wakes the Port.
func (p *Port) block(kind WaitKind) {
	if t := p.blocks(kind); t != nil {
		t.goesOn(t.yield(struct{}{}))
	}
}

// blocks is block but for its end: the task that it returns is to yield, and then to go on. A processor has forgotten where calls return to when another
// coroutine has run, so that each takes some 20 cycles then: those who wait most often have no call in between.
func (p *Port) blocks(kind WaitKind) *Task {
	if p.wait != WaitNone {
		panic(fmt.Sprintf("sim: port %v is used by two clients at once", p.id))
	}
	p.wait = kind
	p.waitGen++
	p.since = p.c.now
	p.waiter = p.c.cur
	if t := p.waiter; t != nil {
		if p.c.untimed != nil && t.daemon && kind == WaitRecv {
			p.c.untimed.listener.Waits(t)
		}
		return t
	}
	if p.c.untimed != nil {
		p.c.untimed.blockOutside(p)
		return nil
	}
	for p.wait != WaitNone {
		if p.c.err != nil {
			panic(p.c.err)
		}
		at, ok := p.c.events.first()
		if !ok {
			panic(fmt.Sprintf("sim: port %v, used outside of a client, waits for ever for %s", p.id, p.waitsFor()))
		}
		p.c.step(at)
	}
	return nil
}

// wake ends a wait, as the last that an event does: the client is resumed after it. It checks what it has waited for.
func (c *Cluster) wake(p *Port) {
	if p.node.paused {
		p.held = true
		return
	}
	p.wait = WaitNone
	c.woken = p.waiter
}

// awake returns the client that was woken and is to be resumed, or nil.
func (c *Cluster) awake() *Task {
	t := c.woken
	c.woken = nil
	return t
}

// wakeOnCPU wakes the Port as soon as its core is free.
func (c *Cluster) wakeOnCPU(p *Port) {
	if c.untimed != nil {
		p.ready = true
		return
	}
	if p.core.free > c.now {
		c.post(p.core.free, evWake, p.index, p.waitGen)
		return
	}
	c.wake(p)
}

// waitsFor says what the Port waits for.
func (p *Port) waitsFor() string {
	switch p.wait {
	case WaitChain:
		ch := p.c.chains[p.waitFor]
		return fmt.Sprintf("a chain of %d operations on %v, first %v", len(ch.ops), ch.qp.mn.id, ch.ops[0])
	case WaitRoom:
		return "room for a chain"
	case WaitRecv:
		if p.until > fabric.Forever/16 { // configurations that never wake it have a part of Forever as their interval
			return "a message"
		}
		return fmt.Sprintf("a message until %d ns", p.until)
	case WaitPause, WaitPoll:
		return fmt.Sprintf("%d ns", p.until)
	}
	return "nothing"
}

// setTimer makes sure that a timer event comes at p.until. One that is under
// way and comes earlier will do: it is put off when it fires. So a client that
// receives with a far deadline again and again leaves no trail of timers.
func (p *Port) setTimer() {
	if p.until == fabric.Forever || p.timerAt <= p.until || p.c.untimed != nil {
		return
	}
	p.timerGen++
	p.timerAt = p.until
	p.c.post(p.until, evTimer, p.index, p.timerGen)
}

func (p *Port) timerFired(gen uint64) {
	if gen != p.timerGen {
		return
	}
	p.timerAt = fabric.Forever
	if p.wait < WaitRecv {
		return
	}
	if p.c.now >= p.until {
		p.c.wake(p)
		return
	}
	p.setTimer()
}

// ID returns the client's ID.
func (p *Port) ID() fabric.ClientID { return p.id }

// Caps returns what the fabric can do.
func (p *Port) Caps() fabric.Caps { return p.c.caps() }

// Now returns the clock of the compute node.
func (p *Port) Now() fabric.Time {
	p.enter()
	now := p.node.clock.local(p.c.now)
	p.c.tell(uint64(now))
	return now
}

// Rand returns 64 random bits of the Port's own stream.
func (p *Port) Rand() uint64 { return p.rng.Uint64() }

// Alloc returns registered memory.
func (p *Port) Alloc(n int) []byte { return p.mem.Alloc(n) }

// Lend implements fabric.Port.
func (p *Port) Lend(buf []byte) bool { return p.mem.Lend(buf) }

// Free gives memory of Alloc back. That of a closed Port is the garbage collector's.
func (p *Port) Free(buf []byte) {
	if !p.closed {
		p.mem.Free(buf)
	}
}

// Stats returns the Port's counters.
func (p *Port) Stats() *fabric.Stats { return &p.stats }

// Recv returns the next message.
func (p *Port) Recv(deadline fabric.Time) (fabric.Message, error) {
	p.enter()
	m, err := p.recv(deadline)
	if u := p.c.untimed; u != nil && u.cur != nil {
		u.listener.Received(p, m, err)
	}
	return m, err
}

func (p *Port) recv(deadline fabric.Time) (fabric.Message, error) {
	until := p.node.clock.virtual(p.c.now, deadline)
	kind := WaitRecv
	if until <= p.c.now && p.in.len == 0 {
		// An empty poll takes its time, lest a client that polls in a loop stop the clock.
		kind, until = WaitPoll, p.c.now+p.c.nic.Poll
		if p.c.untimed != nil {
			until = p.c.now // it is over when it is chosen to be
			p.until = until
			p.block(kind)
		}
	}
	for {
		if p.closed {
			return fabric.Message{}, fabric.ErrClosed
		}
		if p.in.len > 0 {
			p.core.free = max(p.core.free, p.c.now) + p.c.nic.Poll
			return p.in.pop(), nil
		}
		if until <= p.c.now {
			return fabric.Message{}, fabric.ErrDeadline
		}
		if p.interrupted && kind == WaitRecv {
			return fabric.Message{}, fabric.ErrInterrupted
		}
		p.until = until
		p.setTimer()
		p.block(kind)
		until = p.until // the node's clock may have been put on
	}
}

// Pause waits until a time.
func (p *Port) Pause(deadline fabric.Time) error {
	p.enter()
	err := p.pause(deadline)
	if err != nil {
		p.acted(err)
	}
	return err
}

func (p *Port) pause(deadline fabric.Time) error {
	until := p.node.clock.virtual(p.c.now, deadline)
	for until > p.c.now {
		if p.closed {
			return fabric.ErrClosed
		}
		if p.interrupted {
			return fabric.ErrInterrupted
		}
		p.until = until
		p.setTimer()
		p.block(WaitPause)
		until = p.until
	}
	return nil
}

// Interrupt ends the present or next wait of Recv or Pause, and with Config.Grace that for a chain. It may be called
// by any client, and by functions of Cluster.At.
func (p *Port) Interrupt() {
	p.interrupted = true
	if u := p.c.untimed; u != nil {
		u.Touched.Port(p)
		u.listener.Interrupted(p)
	}
	p.hurry()
}

// hurry has a wait look at why it should end. Not at once: the caller may be a coroutine.
func (p *Port) hurry() {
	if p.wait == WaitRecv || p.wait == WaitPause || p.c.cfg.Grace > 0 && (p.wait == WaitChain || p.wait == WaitRoom) {
		p.c.post(p.c.now, evWake, p.index, p.waitGen)
	}
}

// ClearInterrupt ends Interrupt.
func (p *Port) ClearInterrupt() { p.interrupted = false }

// Abandon gives the inbox up for a new one.
func (p *Port) Abandon() error {
	p.enter()
	if p.closed {
		return fabric.ErrClosed
	}
	n := p.node
	p.shuts()
	if p == n.agent {
		return fmt.Errorf("sim: Abandon by the agent of %v: %w", n.id, fabric.ErrUnsupported)
	}
	i, err := n.takeIndex()
	if err != nil {
		return err
	}
	n.clients[p.id.Index()] = client{state: clientAbandoned}
	moved := p.in.len > 0
	n.agent.shuts() // it gets what is sent to the ID from now on
	if u := p.c.untimed; u != nil && moved {
		u.Touched.Port(n.agent)
	}
	for p.in.len > 0 {
		n.agent.in.push(p.in.pop())
	}
	if moved && n.agent.wait == WaitRecv {
		p.c.post(p.c.now, evWake, n.agent.index, n.agent.waitGen)
	}
	was := p.id
	p.id = fabric.Client(n.id, i)
	n.clients[i] = client{state: clientOpen, port: p}
	p.c.observe(Event{Step: StepAbandon, Client: was, To: p.id})
	return nil
}

// Close gives the client's ID and memory back.
func (p *Port) Close() error {
	if p.closed {
		return nil
	}
	p.shut()
	p.node.release(p.id.Index())
	return nil
}

// shut closes the Port without giving its index back.
func (p *Port) shut() {
	p.closed = true
	p.shuts()
	p.in = inbox{}
	p.mem = ram.Arena{}
	p.hurry()
}
