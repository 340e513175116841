package fiss

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/pswitch"
	"github.com/declock/declock/lock"
)

// A rig is machines and a switch whose messages a test delivers one by one.
type rig struct {
	t       *testing.T
	program *Program
	sw      *pswitch.Switch
	pools   []*Pool // of cn2, cn3, ...
	under   []sent
	view    fabric.View
	sent    map[fabric.CNID]uint64 // packets to the switch
}

// sent is a message under way.
type sent struct {
	to fabric.ClientID
	fabric.Message
}

// wire is a Port of a rig: only what a Pool uses.
type wire struct {
	fabric.Port
	r  *rig
	id fabric.ClientID
}

func (w wire) ID() fabric.ClientID { return w.id }
func (w wire) Now() fabric.Time    { return 0 }
func (w wire) Send(to fabric.ClientID, m *fabric.Message) error {
	w.r.under = append(w.r.under, sent{to, *m})
	x := &w.r.under[len(w.r.under)-1]
	x.From = w.id
	if w.r.program.published.numbers && to == fabric.AgentOf(switchAt) && m.Kind != msgTransfer {
		w.r.sent[w.id.CN()]++
		x.Body[5] = w.r.sent[w.id.CN()]
	}
	return nil
}

// switchAt is the switch's number.
const switchAt fabric.CNID = 1

const theLock = fabric.Addr(4096)

func newRig(t *testing.T, machines int, cfg Config) *rig {
	program, err := NewProgram(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, program: program, sw: pswitch.New(program), sent: map[fabric.CNID]uint64{}}
	r.view.Epoch = 1
	r.view.Live.Add(switchAt)
	for i := range machines {
		p := newPool(fabric.CNID(2+i), switchAt, cfg)
		p.view = func() fabric.View { return r.view }
		r.pools = append(r.pools, p)
		r.view.Live.Add(p.cn)
	}
	for i := range r.pools {
		r.join(i)
	}
	return r
}

// join has a machine know which nodes are live.
func (r *rig) join(machine int) {
	p := r.pools[machine]
	p.incarnation = func(cn fabric.CNID) uint64 {
		if cn == switchAt {
			return 1
		}
		return uint64(r.pools[cn-2].key)
	}
	p.look(p.view())
	p.gone, p.since = 0, r.view.Epoch
}

func (r *rig) port(machine, index int) fabric.Port {
	return wire{r: r, id: fabric.Client(r.pools[machine].cn, index)}
}

// ask has a client of a machine ask for the lock, and returns its ticket.
func (r *rig) ask(machine, index int, m lock.Mode) *ticket {
	p := r.pools[machine]
	return &p.slots[p.begin(r.port(machine, index), &lock.Request{Lock: theLock, Mode: m})]
}

func (r *rig) release(machine int, t *ticket) { r.pools[machine].release(r.port(machine, 1), t) }

// take takes the first message of a kind out of those under way.
func (r *rig) take(kind fabric.MsgKind) sent {
	r.t.Helper()
	i := slices.IndexFunc(r.under, func(s sent) bool { return s.Kind == kind })
	if i < 0 {
		r.t.Fatalf("no message of kind %d is under way: %+v", kind-msgAcquire, r.under)
	}
	s := r.under[i]
	r.under = slices.Delete(r.under, i, i+1)
	return s
}

// deliver delivers a message.
func (r *rig) deliver(s sent) {
	if s.to == fabric.AgentOf(switchAt) {
		r.sw.Handle(&s.Message, func(to fabric.ClientID, m *fabric.Message) {
			r.under = append(r.under, sent{to, *m})
			r.under[len(r.under)-1].From = fabric.AgentOf(switchAt)
		})
		return
	}
	if r.view.Live.Has(s.to.CN()) {
		r.pools[s.to.CN()-2].handle(wire{r: r, id: s.to}, &s.Message)
	}
}

// settle delivers all that is under way and what comes of it, in order.
func (r *rig) settle() {
	r.t.Helper()
	for k := 0; len(r.under) > 0; k++ {
		if k == 100_000 {
			r.t.Fatalf("messages go round for ever: %+v", r.under)
		}
		s := r.under[0]
		r.under = r.under[1:]
		r.deliver(s)
	}
}

func (r *rig) held() bool { return r.program.held.Load(0) != 0 }

// A GRANT that comes after its client has given up, and after what it granted was released, makes no agent.
//
// The paper takes any GRANT with an agent. After a time-out its client releases, the switch frees the lock and grants it to
// another; a late GRANT then makes a second agent, and its machine grants the lock to its own clients.
func TestLateGrantMakesNoAgent(t *testing.T) {
	r := newRig(t, 2, Config{})
	gone := r.ask(0, 1, lock.Exclusive)
	r.deliver(r.take(msgAcquire))
	late := r.take(msgGranted)
	r.pools[0].giveUp(r.port(0, 1), gone)
	r.settle() // the answer to a copy of the ACQUIRE is granted to nobody, so the lock is freed
	if r.held() {
		t.Fatal("a lock that was granted to a client that has given up is held still")
	}
	other := r.ask(1, 1, lock.Exclusive)
	r.settle()
	r.deliver(late)
	again := r.ask(0, 2, lock.Exclusive)
	r.settle()
	if other.phase != holds || again.phase == holds {
		t.Fatalf("after a late GRANT: phases %d and %d, want one holder", other.phase, again.phase)
	}
	r.release(1, other)
	r.settle()
	if again.phase != holds {
		t.Errorf("the next client is in phase %d, want holds", again.phase)
	}
}

// The registers of a million locks, for 1,200 clients too, fit a Tofino with 16 bits for an incarnation, and those of the paper's 1.68 million with 8, as published.
func TestRegistersFitTheSwitch(t *testing.T) {
	for _, x := range []struct {
		cfg    Config
		width  int
		stages int
		kib    uint64
	}{
		{Config{}, 16, 12, 4225},
		{Config{Slots: 3000, Machines: 10}, 16, 12, 3807},
		{Config{Locks: 1_680_000, IncarnationBits: 8, Slots: 3000, Machines: 10}, 8, 12, 4248},
		{Config{Locks: 2000, Slots: 400, Machines: 10}, 32, 8, 57},
	} {
		stages, bits, err := x.cfg.Registers()
		if width := x.cfg.withDefaults().IncarnationBits; err != nil || width != x.width || stages != x.stages || bits>>13 != x.kib {
			t.Errorf("%+v: incarnations of %d bits, %d stages, %d KiB, %v: want %d, %d, %d", x.cfg, width, stages, bits>>13, err, x.width, x.stages, x.kib)
		}
	}
	if _, err := NewProgram(Config{IncarnationBits: 32}); !errors.Is(err, pswitch.ErrMemory) || !strings.Contains(err.Error(), "shared: ") {
		t.Errorf("a million locks with incarnations of 32 bits: %v", err)
	}
}

// As many readers as an incarnation has values are granted by the switch while the agent has heard of none. With 8 bits, as published, the agent
// then leaves, and a writer is granted the lock beside them. The paper says that 8 bits are more than enough, and bounds the readers by nothing; with 32 bits
// there would have to be 2^32 of them.
func TestIncarnationWraps(t *testing.T) {
	for _, x := range []struct {
		bits   int
		excess bool
	}{{8, true}, {32, false}} {
		r := newRig(t, 4, Config{IncarnationBits: x.bits, Locks: 64})
		first := r.ask(0, 1, lock.Shared)
		r.settle()
		for i := range 256 {
			r.ask(1+i%2, 1+i, lock.Shared)
			r.deliver(r.take(msgAcquire))
			r.take(msgAsk) // it comes late
			r.deliver(r.take(msgGranted))
		}
		r.release(0, first)
		for len(r.under) > 0 && r.under[0].Kind != msgRefused {
			r.deliver(r.take(r.under[0].Kind))
		}
		writer := r.ask(3, 1, lock.Exclusive)
		for range 6 {
			if len(r.under) > 0 {
				r.deliver(r.take(r.under[0].Kind))
			}
		}
		if excess := writer.phase == holds; excess != x.excess {
			t.Errorf("%d bits: a writer beside 256 readers: %v, want %v", x.bits, excess, x.excess)
		}
	}
}

// A copy of an Ask that comes after as many grants more is taken for new if the incarnation has 8 bits: its reader, which has long
// since released, holds the lock for ever.
func TestIncarnationWrapsUnderACopy(t *testing.T) {
	for _, x := range []struct {
		bits  int
		leaks bool
	}{{8, true}, {32, false}} {
		r := newRig(t, 2, Config{IncarnationBits: x.bits, Locks: 64})
		r.ask(0, 1, lock.Shared)
		r.settle()
		var copied sent
		for i := range 256 {
			k := r.ask(1, 1, lock.Shared)
			r.deliver(r.take(msgAcquire))
			if i == 0 {
				copied = r.under[slices.IndexFunc(r.under, func(s sent) bool { return s.Kind == msgAsk })]
			}
			r.settle()
			r.release(1, k)
			r.settle()
		}
		r.deliver(copied)
		if leaks := len(r.pools[0].agents[theLock].holders) > 1; leaks != x.leaks {
			t.Errorf("%d bits: a copy of 256 grants ago is taken for new: %v, want %v", x.bits, leaks, x.leaks)
		}
	}
}

// The published program marks a lock as held with each packet but FREE, so a RELEASE of a free lock leaves it held without an agent. The paper's text says that
// ACQUIRE and FREE set the bit.
func TestPublishedHeldBitLeaks(t *testing.T) {
	for _, published := range []bool{true, false} {
		r := newRig(t, 2, Config{})
		r.program.published.held = published
		k := r.ask(0, 1, lock.Shared)
		r.settle()
		r.release(0, k)
		r.settle()
		again := wire{r: r, id: fabric.Client(2, 1)} // a RELEASE that comes twice, as one that was sent anew does
		_ = again.Send(fabric.AgentOf(switchAt), &fabric.Message{Kind: msgRelease, Body: [7]uint64{uint64(theLock), uint64(newOp(2, 7, 0))}})
		r.settle()
		if r.held() != published {
			t.Errorf("published %v: held is %v after a RELEASE of a free lock", published, r.held())
		}
		if published {
			continue // a client would ask for ever
		}
		k = r.ask(1, 1, lock.Exclusive)
		r.settle()
		if k.phase != holds {
			t.Errorf("after a RELEASE of a free lock a client is in phase %d", k.phase)
		}
	}
}

// A lost packet that a later one of the same machine overtakes is executed when it is sent anew: operations are numbered by slot. Numbered by server, as
// published, it is taken for a copy, which changes no register and is forwarded like any other: an ACQUIRE is granted, and the lock stays free for others; a FREE is acknowledged, and the lock stays held by nobody.
func TestOvertakenPacketIsExecuted(t *testing.T) {
	for _, numbers := range []bool{true, false} {
		r := newRig(t, 2, Config{})
		r.program.published.numbers = numbers
		first := r.ask(0, 1, lock.Exclusive)
		lost := r.take(msgAcquire)
		second := r.askFor(theLock+64, 0, 2, lock.Exclusive)
		r.settle()
		r.deliver(lost) // sent anew
		r.settle()
		other := r.ask(1, 1, lock.Exclusive)
		r.settle()
		if first.phase != holds || second.phase != holds || (other.phase == holds) != numbers {
			t.Errorf("numbers by server %v: phases %d and %d, and %d of another machine", numbers, first.phase, second.phase, other.phase)
		}
	}
	for _, numbers := range []bool{true, false} {
		r := newRig(t, 2, Config{})
		r.program.published.numbers = numbers
		first := r.ask(0, 1, lock.Exclusive)
		r.settle()
		r.release(0, first)
		lost := r.take(msgFree)
		other := r.askFor(theLock+64, 0, 2, lock.Exclusive)
		r.settle()
		r.deliver(lost) // sent anew
		r.settle()
		if r.held() != numbers || r.pools[0].agents[theLock] != nil || first.phase != idle || other.phase != holds {
			t.Errorf("numbers by server %v: held %v after FREE, phase %d, the other's %d", numbers, r.held(), first.phase, other.phase)
		}
		if numbers {
			continue // a client would ask for ever
		}
		next := r.ask(1, 1, lock.Exclusive)
		if r.settle(); next.phase != holds {
			t.Errorf("the next client is in phase %d", next.phase)
		}
	}
}

// A RELEASE from the agent's machine releases its own client's hold and no other: while a GRANT to one client of a machine is under way, another of the machine gives
// up. By the paper's rule, that client sends a RELEASE, and the switch frees the lock beneath the first, and grants it to another machine's client as well.
func TestGivingUpFreesNoOtherHold(t *testing.T) {
	for _, release := range []bool{true, false} {
		r := newRig(t, 2, Config{})
		r.program.published.release = release
		first := r.ask(0, 1, lock.Exclusive)
		r.deliver(r.take(msgAcquire))
		grant := r.take(msgGranted)
		second := r.ask(0, 2, lock.Exclusive)
		r.deliver(r.take(msgAcquire))
		r.take(msgAsk) // it comes late
		if release {
			r.pools[0].part(r.port(0, 2), second)
		} else {
			r.pools[0].giveUp(r.port(0, 2), second)
		}
		r.settle()
		r.deliver(grant)
		r.settle()
		other := r.ask(1, 1, lock.Exclusive)
		r.settle()
		if first.phase != holds || (other.phase == holds) != release {
			t.Errorf("RELEASE after a time-out %v: phases %d and %d", release, first.phase, other.phase)
		}
	}
}

// An agent that does not know of a reader whom the switch has granted the lock is refused its FREE, and is back.
func TestFreeIsRefusedWhileAReaderIsMissing(t *testing.T) {
	r := newRig(t, 3, Config{})
	first := r.ask(0, 1, lock.Shared)
	r.settle()
	reader := r.ask(1, 1, lock.Shared)
	r.deliver(r.take(msgAcquire))
	late := r.take(msgAsk)
	r.deliver(r.take(msgGranted))
	r.release(0, first)
	r.settle()
	if !r.held() || r.pools[0].agents[theLock] == nil {
		t.Fatal("the lock is free while a reader holds it")
	}
	writer := r.ask(2, 1, lock.Exclusive)
	r.settle()
	if writer.phase == holds {
		t.Fatal("a writer beside a reader")
	}
	r.deliver(late)
	r.release(1, reader)
	r.settle()
	if writer.phase != holds {
		t.Errorf("the writer is in phase %d", writer.phase)
	}
}

// An agent takes note of the switch's grants in any order, however far one is ahead of those that it knows: what it does not take comes back, and a busy agent gets
// through nothing else any more.
func TestGrantsFarAhead(t *testing.T) {
	const readers = 100
	r := newRig(t, 2, Config{})
	r.ask(0, 1, lock.Shared)
	r.settle()
	for i := range readers {
		r.ask(1, 1+i, lock.Shared)
		r.deliver(r.take(msgAcquire))
	}
	for _, s := range slices.Backward(slices.Clone(r.under)) {
		if s.Kind == msgAsk {
			r.deliver(s)
		}
	}
	a := r.pools[0].agents[theLock]
	if back := slices.ContainsFunc(r.under, func(s sent) bool { return s.Kind == msgBounce }); back || len(a.holders) != 1+readers || len(a.beyond) > 0 {
		t.Errorf("%d holders, %d grants beyond those that are known, one sent back: %v", len(a.holders), len(a.beyond), back)
	}
}

// Readers that come one after the other, so that some hold the lock all the time, pass a writer that waits for a while, and then wait behind it.
func TestReadersDoNotStarveAWriter(t *testing.T) {
	const passes, machines = 4, 3
	r := newRig(t, machines, Config{Locks: 1, Passes: passes})
	held := r.ask(0, 1, lock.Shared)
	r.settle()
	writer := r.ask(1, 1, lock.Exclusive)
	r.settle()
	passed := 0
	for k := range 100 {
		next := r.ask(1+k%2, 2, lock.Shared) // the agent, which knows of the writer, is elsewhere
		r.settle()
		if next.phase != holds {
			break
		}
		passed++
		r.release(int(held.op.cn()-2), held)
		r.settle()
		held = next
	}
	r.release(int(held.op.cn()-2), held)
	r.settle()
	if writer.phase != holds || passed > 2*passes {
		t.Fatalf("after %d readers the writer is in phase %d", passed, writer.phase)
	}
	r.release(1, writer)
	r.settle()
	for i, p := range r.pools { // and the readers that were barred have it
		for k := range p.slots {
			if p.slots[k].phase == holds {
				r.release(i, &p.slots[k])
			}
		}
	}
	if r.settle(); r.held() {
		t.Fatal("the lock is not free in the end")
	}
}
