package fiss

import (
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/pswitch"
	"github.com/declock/declock/lock"
)

// A Program is the decider: what the switch does with the packets of the locks.
type Program struct {
	cfg Config

	// numbers are those of the locks' registers, which the control plane gives them, in no time. In the paper a daemon does, and clients remember them and have them in their packets: so this is no table of the switch.
	numbers map[fabric.Addr]int

	// The control plane keeps the last round, also when the switch fails, and until then the agent Port that began it, with its machine's incarnation. The register has the round whose packets are executed, or closed.
	rounds uint64
	leader fabric.ClientID
	leads  uint64
	round  *pswitch.Array

	// A register for each machine: the incarnation of it that acquires in this round, by its Pool.key; 0: none has; with hasGone: one of an earlier view has gone.
	owner *pswitch.Array

	// A register for each slot of each machine: its last operation, and what has become of that.
	last, outcome *pswitch.Array
	// A register for each lock, in the order of the stages.
	bar, incarnation, held, shared, mid *pswitch.Array

	out fabric.Message // the packet that leaves

	// published are rules of the paper and its program that are not followed here, for tests.
	published published
}

// A published rule is one that loses a promise.
type published struct {
	held    bool // each packet but FREE marks the lock as held
	numbers bool // a packet whose number is not greater than the last of its machine is a copy; its sixth word has that number
	release bool // RELEASE from the agent's machine frees the lock
}

// A verdict is what the switch has decided: the upper half of an outcome. The lower is the incarnation.
type verdict uint64

const (
	queued   verdict = iota // the agent decides
	granted                 // and the client's machine has the agent
	together                // shared with the holders
	busy                    // and the client does not wait
	refused
	accepted // FREE or TRANSFER
)

// NewProgram returns the decider, in the memory of a switch.
func NewProgram(cfg Config) (*Program, error) {
	cfg = cfg.withDefaults()
	p := &Program{cfg: cfg, numbers: map[fabric.Addr]int{}}
	var m pswitch.Memory
	for _, a := range p.arrays(&cfg) {
		array := m.Array
		if a.beside {
			array = m.Beside
		}
		var err error
		if *a.array, err = array(a.n, a.width); err != nil {
			return nil, fmt.Errorf("fiss: %s: %w", a.name, err)
		}
	}
	return p, nil
}

// registers are those of an array.
type registers struct {
	name     string
	array    **pswitch.Array
	n, width int
	beside   bool // in the stage of the array before
}

// arrays returns the registers in the order of the stages. Bars have nothing to do with numbers, so both are in one stage.
func (p *Program) arrays(cfg *Config) []registers {
	slots := cfg.Machines * cfg.Slots
	return []registers{
		{"round", &p.round, 1, 16, false},
		{"owners", &p.owner, cfg.Machines, 32, false},
		{"last numbers", &p.last, slots, 32, false},
		{"bars", &p.bar, cfg.Locks, 1, true},
		{"incarnations", &p.incarnation, cfg.Locks, cfg.IncarnationBits, false},
		{"held", &p.held, cfg.Locks, 1, false},
		{"shared", &p.shared, cfg.Locks, 1, false},
		{"machines", &p.mid, cfg.Locks, 8, false},
		{"outcomes", &p.outcome, slots, 64, false},
	}
}

// A packet is one on its way through the stages.
type packet struct {
	*pswitch.Pass
	in      *fabric.Message
	op      opID
	reg     int  // of the operation's slot
	lock    int  // number of the lock
	counted bool // its operation is counted
	again   bool // ... and has been before: nothing changes
	next    opID // msgTransfer
	inca    uint64
	free    bool // the lock was
	dropped bool // it goes nowhere
	shared  bool // the lock was
	valid   bool // msgFree, msgTransfer: no holder is missing
	mid     fabric.CNID
	barred  bool // readers are to wait
	verdict verdict
}

// Packet implements pswitch.Program.
func (p *Program) Packet(pass *pswitch.Pass, in *fabric.Message) {
	k := packet{Pass: pass, in: in, op: opID(in.Body[1])}
	k.reg = int(k.op.cn())*p.cfg.Slots + k.op.slot()
	switch {
	case in.Kind >= msgBegin && in.Kind <= msgOpen:
		p.control(pass, in)
		return
	case in.Kind == msgJoin:
		p.joins(pass, in)
		return
	case !up(in.Kind) || k.op.slot() >= p.cfg.Slots || int(k.op.cn()) >= p.cfg.Machines || !p.serves(&k) || !p.owns(&k):
		return
	}
	if p.cfg.Home != nil && p.rounds == 0 {
		p.toHome(pass, in)
		return
	}
	var ok bool
	if k.lock, ok = p.number(fabric.Addr(in.Body[0])); !ok {
		p.out = *in
		p.out.Kind = msgOutside
		pass.Send(fabric.ClientID(in.Body[3]), &p.out) // of a lock outside, there are no packets but ACQUIRE
		return
	}
	if in.Kind == msgTransfer {
		k.next = opID(in.Body[3])
	}
	k.counted = in.Kind == msgAcquire || in.Kind == msgFree || in.Kind == msgTransfer
	if k.counted && !p.count(&k) {
		return
	}
	p.bars(&k)
	p.check(&k)
	p.holds(&k)
	p.modes(&k)
	p.machines(&k)
	p.decide(&k)
	p.route(&k)
}

// owns reports whether an ACQUIRE is of the incarnation of its machine that acquires in this round. Another one's operations have the same names as those: it begins a new round.
func (p *Program) owns(k *packet) bool {
	if k.in.Kind != msgAcquire {
		return true
	}
	key := k.in.Body[2]
	old := k.Update(p.owner, int(k.op.cn()), func(old uint64) uint64 {
		if mayOwn(old, key) {
			return key
		}
		return old
	})
	if !mayOwn(old, key) && old != key {
		p.out = fabric.Message{Kind: msgTaken, Body: [7]uint64{1: uint64(k.op), 2: key}}
		k.Send(fabric.AgentOf(k.op.cn()), &p.out)
		return false
	}
	return true
}

// mayOwn reports whether an incarnation of a machine is the first that acquires in this round, by its register. One that had gone when another machine joined is late.
func mayOwn(register, key uint64) bool {
	return register == 0 || register&hasGone != 0 && register&^hasGone < key
}

// number returns the number of a lock's registers; false if there are none left.
func (p *Program) number(l fabric.Addr) (int, bool) {
	n, ok := p.numbers[l]
	if !ok && len(p.numbers) < p.cfg.Locks {
		n, ok = len(p.numbers), true
		p.numbers[l] = n
	}
	return n, ok
}

// count is the first stage: it reports whether the packet is no older than the last operation of its slot.
func (p *Program) count(k *packet) bool {
	if p.published.numbers {
		n := k.in.Body[5]
		old := k.Update(p.last, int(k.op.cn()), func(old uint64) uint64 { return max(old, n) })
		k.again = n <= old
		return true
	}
	n := uint64(k.op.number())
	old := k.Update(p.last, k.reg, func(old uint64) uint64 {
		if int32(uint32(n)-uint32(old)) > 0 {
			return n
		}
		return old
	})
	k.again = old == n
	return k.again || int32(uint32(n)-uint32(old)) > 0
}

// bars is the stage of the bits that keep readers from passing a writer. An agent sets and clears them, and one that finds a bit as it should not be does so again.
func (p *Program) bars(k *packet) {
	k.barred = k.Update(p.bar, k.lock, func(old uint64) uint64 {
		if k.in.Kind == msgBar {
			return k.in.Body[2] & 1
		}
		return old
	}) != 0
}

// check is the stage of the incarnations: they count what may have been granted to readers together. An agent may go only if it knows of all of them.
func (p *Program) check(k *packet) {
	grows := k.in.Kind == msgAcquire && !k.again && !k.barred && k.op.mode() == lock.Shared
	k.inca = k.Update(p.incarnation, k.lock, func(old uint64) uint64 {
		if grows {
			old++
		}
		return old
	})
	if grows {
		k.inca = p.cfg.wrap(k.inca + 1)
	}
	k.valid = k.in.Body[2]&exclusive != 0 || uint64(uint32(k.in.Body[2])) == k.inca
}

// holds is the stage of the bits that say that a lock is held.
func (p *Program) holds(k *packet) {
	// The published text has this stage before that of the machines, and does not say how it knows them.
	frees := p.published.release && k.in.Kind == msgRelease && p.mid.Load(k.lock) == uint64(k.op.cn())
	old := k.Update(p.held, k.lock, func(old uint64) uint64 {
		switch {
		case k.again:
			return old
		case frees:
			return 0
		case k.in.Kind == msgAcquire, p.published.held && k.in.Kind != msgFree:
			return 1
		case k.in.Kind == msgFree && k.valid:
			return 0
		}
		return old
	})
	k.free, k.dropped = old == 0, frees
}

// modes is the stage of the bits that say that a lock is held by readers.
func (p *Program) modes(k *packet) {
	old := k.Update(p.shared, k.lock, func(old uint64) uint64 {
		mode := k.op.mode()
		switch {
		case k.again:
			return old
		case k.in.Kind == msgAcquire && k.free:
		case k.in.Kind == msgTransfer && k.valid:
			mode = k.next.mode()
		default:
			return old
		}
		if mode == lock.Shared {
			return 1
		}
		return 0
	})
	k.shared = old != 0
}

// machines is the stage of the machines that have the agents.
func (p *Program) machines(k *packet) {
	k.mid = fabric.CNID(k.Update(p.mid, k.lock, func(old uint64) uint64 {
		switch {
		case k.again:
		case k.in.Kind == msgAcquire && k.free:
			return uint64(k.op.cn())
		case k.in.Kind == msgFree && k.valid:
			return 0
		case k.in.Kind == msgTransfer && k.valid:
			return uint64(k.next.cn())
		}
		return old
	}))
}

// decide is the last stage: what has been decided is kept for a packet that comes again.
func (p *Program) decide(k *packet) {
	if !k.counted {
		return
	}
	switch {
	case k.in.Kind != msgAcquire && k.valid:
		k.verdict = accepted
	case k.in.Kind != msgAcquire:
		k.verdict = refused
	case k.free:
		k.verdict = granted
	case k.shared && k.op.mode() == lock.Shared && !k.barred:
		k.verdict = together
	case k.op.try():
		k.verdict = busy
	}
	if p.published.numbers {
		return
	}
	old := k.Update(p.outcome, k.reg, func(old uint64) uint64 {
		if k.again {
			return old
		}
		return uint64(k.verdict)<<32 | k.inca
	})
	if k.again {
		k.verdict, k.inca = verdict(old>>32), uint64(uint32(old))
	}
}

// route sends what the packet has become.
func (p *Program) route(k *packet) {
	p.out = *k.in
	agent, client := fabric.AgentOf(k.mid), fabric.ClientID(k.in.Body[3])
	to := func(c fabric.ClientID, kind fabric.MsgKind, info uint64) {
		p.out.Kind, p.out.Body[2] = kind, info
		k.Send(c, &p.out)
	}
	switch {
	case k.in.Kind == msgBar, k.dropped:
	case k.in.Kind == msgRelease && k.free:
		to(fabric.AgentOf(k.op.cn()), msgReleased, 0)
	case k.in.Kind == msgRelease:
		to(agent, msgLeave, k.inca)
	case k.in.Kind == msgBounce:
		if !k.free { // else it is a copy of long ago
			to(agent, msgAsk, k.in.Body[2])
		}
	case k.verdict == refused:
		to(fabric.AgentOf(k.op.cn()), msgRefused, k.inca)
	case k.in.Kind == msgFree:
		to(fabric.AgentOf(k.op.cn()), msgFreed, 0)
	case k.in.Kind == msgTransfer:
		to(fabric.AgentOf(k.next.cn()), msgMove, k.inca)
	case k.verdict == granted:
		to(client, msgGranted, withAgent|k.inca)
	case k.verdict == busy:
		to(client, msgBusy, 0)
	case k.verdict == together:
		to(client, msgGranted, k.inca)
		if !k.free {
			to(agent, msgAsk, withAgent|k.inca)
		}
	case k.free: // the packet to the agent was lost, and the agent has gone
		to(client, msgAgain, 0)
	case k.barred:
		to(agent, msgAsk, barred|k.inca)
	default:
		to(agent, msgAsk, k.inca)
	}
}
