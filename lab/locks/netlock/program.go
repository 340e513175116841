package netlock

import (
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/pswitch"
	"github.com/declock/declock/lock"
)

// A Program is what the switch does with the packets of the locks.
type Program struct {
	cfg Config

	// numbers are those of the locks' registers: a match-action table that the control plane fills, by the profile before there are packets. Without a profile it is filled as locks are asked for, in no time.
	numbers map[fabric.Addr]int

	// The register arrays in the order of the stages. seen and outcome have a register for each slot of each machine: its last number, and what has become of
	// that request. counts, taken, head and tail have one for each lock; ops and clients one for each entry of each lock's queue.
	seen, counts, taken, head, tail, ops, clients, outcome *pswitch.Array

	out fabric.Message // the packet that leaves
}

// NewProgram returns the program, in the memory of a switch.
func NewProgram(cfg Config) (*Program, error) {
	cfg = cfg.withDefaults()
	var m pswitch.Memory
	p := &Program{cfg: cfg, numbers: map[fabric.Addr]int{}}
	slots, entries := (int(fabric.MaxCN)+1)*cfg.Slots, cfg.Locks*cfg.Queue
	for _, a := range []struct {
		array    **pswitch.Array
		n, width int
	}{{&p.seen, slots, 64}, {&p.counts, cfg.Locks, 64}, {&p.taken, cfg.Locks, 32}, {&p.head, cfg.Locks, 32}, {&p.tail, cfg.Locks, 32},
		{&p.ops, entries, 64}, {&p.clients, entries, 32}, {&p.outcome, slots, 64}} {
		var err error
		if *a.array, err = m.Array(a.n, a.width); err != nil {
			return nil, fmt.Errorf("netlock: %w", err)
		}
	}
	for _, l := range cfg.Hot[:min(len(cfg.Hot), cfg.Locks)] {
		p.numbers[l] = len(p.numbers)
	}
	return p, nil
}

// A tally is the register that says what is in a lock's queue.
type tally struct {
	x, s uint64 // entries by mode
	away uint64 // requests that the server has for it
	// chain: the switch is granting waiting readers, one in a pass; gone is how many of them have released meanwhile, modulo 2^countBits: while readers keep coming
	// the passes do not end. A queue has fewer entries, so that differences of such counts are exact.
	chain bool
	gone  uint64
}

const (
	countBits = 12
	countMask = 1<<countBits - 1
	awayBits  = 27
)

func unpack(w uint64) tally {
	return tally{x: w & countMask, s: w >> countBits & countMask, gone: w >> (2 * countBits) & countMask, away: w >> (3 * countBits) & (1<<awayBits - 1), chain: w>>63 != 0}
}

func (t tally) pack() uint64 {
	w := t.x | t.s<<countBits | t.gone<<(2*countBits) | t.away<<(3*countBits)
	if t.chain {
		w |= 1 << 63
	}
	return w
}

// of returns the count of a mode.
func (t *tally) of(m lock.Mode) *uint64 {
	if m == lock.Shared {
		return &t.s
	}
	return &t.x
}

// locked reports whether a request of a mode must wait.
func (t *tally) locked(m lock.Mode) bool { return t.chain || t.x > 0 || m != lock.Shared && t.s > 0 }

// A state is what has become of a request.
type state uint64

const (
	queued state = iota
	granted
	busy // and the client does not wait
	kept // by the server
)

// The register of an outcome: the number of the request, whether its client has given up, the state.
const (
	outcomeState  = 3
	outcomeLeft   = 4
	outcomeNumber = 3
)

// A packet is one on its way through the stages.
type packet struct {
	*pswitch.Pass
	in    *fabric.Message
	op    opID
	lock  int  // number of the lock
	again bool // it has been executed before: nothing changes
	now   tally
	state state
	takes bool // an entry
}

// Packet implements pswitch.Program.
func (p *Program) Packet(pass *pswitch.Pass, in *fabric.Message) {
	k := packet{Pass: pass, in: in, op: opID(in.Body[1])}
	if !up(in.Kind) || k.op.slot() >= p.cfg.Slots {
		return
	}
	var ok bool
	if k.lock, ok = p.number(fabric.Addr(in.Body[0])); !ok {
		p.out = *in
		p.out.Kind = msgOutside
		pass.Send(fabric.ClientID(in.Body[3]), &p.out) // of a lock outside, there are no packets but ACQUIRE
		return
	}
	switch {
	case in.Kind == msgNext:
		p.next(&k)
	case in.Kind == msgLast:
		p.last(&k)
	case !p.isNew(&k) && !k.again:
	case in.Kind == msgRelease:
		p.release(&k)
	default:
		p.acquire(&k)
	}
}

// slot returns the number of a slot's registers.
func (p *Program) slot(o opID) int { return int(o.cn())*p.cfg.Slots + o.slot() }

// number returns the number of a lock's registers; false if it has none.
func (p *Program) number(l fabric.Addr) (int, bool) {
	n, ok := p.numbers[l]
	if !ok && p.cfg.Hot == nil && len(p.numbers) < p.cfg.Locks {
		n, ok = len(p.numbers), true
		p.numbers[l] = n
	}
	return n, ok
}

// isNew is the first stage: it reports whether the packet is newer than all that its slot has sent, and notes whether it is a copy of the last.
func (p *Program) isNew(k *packet) bool {
	v := k.op.number()
	if k.in.Kind == msgPush {
		v++
	}
	old := k.Update(p.seen, p.slot(k.op), func(old uint64) uint64 {
		if newer(v, old) {
			return v
		}
		return old
	})
	k.again = old == v && k.in.Kind != msgPush || old == v+1 && k.in.Kind == msgAcquire
	return newer(v, old)
}

// acquire handles a request that comes from its client, or from the server, which has kept it.
func (p *Program) acquire(k *packet) {
	mode, pushed := k.op.mode(), k.in.Kind == msgPush
	k.Update(p.counts, k.lock, func(old uint64) uint64 {
		t := unpack(old)
		k.now = t
		full := t.away > 0 || t.x+t.s >= uint64(p.cfg.Queue)
		switch locked := t.locked(mode); {
		case k.again:
			return old
		case k.op.try() && (locked || full):
			k.state = busy
			return old
		case !pushed && full:
			k.state = kept
			t.away++
		default:
			k.takes = true
			if !locked {
				k.state = granted
			}
			*t.of(mode)++
			if pushed {
				t.away--
			}
		}
		k.now = t
		return t.pack()
	})
	taken := k.Update(p.taken, k.lock, func(old uint64) uint64 {
		if k.takes && pushed {
			old++
		}
		return old
	})
	if k.takes {
		p.enqueue(k)
	}
	p.answer(k, taken)
}

// enqueue puts a request into the queue.
func (p *Program) enqueue(k *packet) {
	at := place(k.Update(p.tail, k.lock, p.advance))
	n := p.entry(k.lock, at)
	k.Update(p.ops, n, func(uint64) uint64 { return uint64(k.op) })
	k.Update(p.clients, n, func(uint64) uint64 { return k.in.Body[3] | at.lap()<<clientLap })
}

// A place is one of a queue, and in which lap of the queue it is used: 16 bits, and 10. An entry has the lap beside its client.
type place uint64

const (
	lapBits   = 10
	clientLap = fabric.ClientIDBits
)

func (a place) lap() uint64 { return uint64(a >> 16) }

// entry returns the number of the registers of a place of a lock's queue.
func (p *Program) entry(lock int, a place) int { return lock*p.cfg.Queue + int(a&0xffff) }

// advance returns the place behind one of a queue.
func (p *Program) advance(at uint64) uint64 {
	if a := place(at); int(a&0xffff)+1 == p.cfg.Queue {
		return (a.lap() + 1) & (1<<lapBits - 1) << 16
	}
	return at + 1
}

// answer is the last stage of a request: its outcome, or what that is of a request that comes again.
func (p *Program) answer(k *packet, taken uint64) {
	gaveUp := k.in.Kind == msgAcquire && k.in.Body[2]&left != 0
	k.Update(p.outcome, p.slot(k.op), func(old uint64) uint64 {
		gaveUp = gaveUp || old>>outcomeNumber == k.op.number() && old&outcomeLeft != 0
		if k.again {
			k.state = state(old & outcomeState)
		}
		w := k.op.number()<<outcomeNumber | uint64(k.state)
		if gaveUp {
			w |= outcomeLeft
		}
		return w
	})
	client := fabric.ClientID(k.in.Body[3])
	if gaveUp {
		client = fabric.AgentOf(k.op.cn())
	}
	switch k.state {
	case granted:
		p.send(k, client, msgGranted, 0)
	case busy:
		p.send(k, client, msgBusy, 0)
	case kept:
		info := uint64(0)
		if k.now.x+k.now.s == 0 {
			info = p.upTo(taken, k.now.away)
		}
		p.send(k, fabric.ClientID(k.in.Body[5]), msgKeep, info)
	}
}

// upTo says up to which request in all the server may send, when the queue is empty: no more than there are entries, and than it has by now. What it gets later
// comes when the queue is empty again; once the switch has all of them, requests take entries again.
func (p *Program) upTo(taken, away uint64) uint64 {
	return room | uint64(uint32(taken)+uint32(min(uint64(p.cfg.Queue), away)))
}

// send sends what the packet has become.
func (p *Program) send(k *packet, to fabric.ClientID, kind fabric.MsgKind, info uint64) {
	p.out = *k.in
	p.out.Kind, p.out.Body[2] = kind, info
	k.Send(to, &p.out)
}
