package netlock

import (
	"slices"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/pswitch"
	"github.com/declock/declock/lock"
)

// A rig is a machine, a switch and a server, whose messages a test delivers one by one. Others are further machines.
type rig struct {
	t       *testing.T
	program *Program
	sw      *pswitch.Switch
	pool    *Pool
	others  map[fabric.CNID]*Pool
	server  *overflow
	under   []sent
}

// sent is a message under way.
type sent struct {
	to fabric.ClientID
	fabric.Message
}

// wire is a Port of a rig: only what Pools and servers use.
type wire struct {
	fabric.Port
	r  *rig
	id fabric.ClientID
}

func (w wire) ID() fabric.ClientID { return w.id }
func (w wire) Now() fabric.Time    { return 0 }
func (w wire) Send(to fabric.ClientID, m *fabric.Message) error {
	w.r.under = append(w.r.under, sent{to, *m})
	w.r.under[len(w.r.under)-1].From = w.id
	return nil
}

// Numbers of the switch, the server and the machine.
const (
	switchAt fabric.CNID = 1 + iota
	serverAt
	machineAt
)

const theLock = fabric.Addr(4096)

func newRig(t *testing.T, cfg Config) *rig {
	program, err := NewProgram(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, program: program, sw: pswitch.New(program), pool: newPool(machineAt, switchAt, serverAt, 1, cfg)}
	r.server = newOverflow(wire{r: r, id: fabric.AgentOf(serverAt)})
	return r
}

// ask has a client ask for the lock, and returns its ticket.
func (r *rig) ask(client int, m lock.Mode) *ticket {
	return r.request(r.pool, client, lock.Request{Lock: theLock, Mode: m})
}

// request has a client of a machine make a request.
func (r *rig) request(p *Pool, client int, q lock.Request) *ticket {
	return &p.slots[p.begin(wire{r: r, id: fabric.Client(p.cn, client)}, &q)]
}

// release releases what a ticket holds.
func (r *rig) release(t *ticket) {
	r.t.Helper()
	if t.phase != holds {
		r.t.Fatalf("%v is in phase %d, want holds", t.client, t.phase)
	}
	l, mode, p := t.lock, t.op.mode(), r.pool
	if o := r.others[t.client.CN()]; o != nil {
		p = o
	}
	t.phase = idle // its slot is not used again
	p.release(wire{r: r, id: t.client}, l, mode)
}

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
	switch s.to {
	case pswitch.Itself, fabric.AgentOf(switchAt):
		r.sw.Handle(&s.Message, func(to fabric.ClientID, m *fabric.Message) { _ = wire{r: r, id: fabric.AgentOf(switchAt)}.Send(to, m) })
	case fabric.AgentOf(serverAt):
		r.server.handle(&s.Message)
	default:
		p := r.pool
		if o := r.others[s.to.CN()]; o != nil {
			p = o
		}
		p.handle(wire{r: r, id: s.to}, &s.Message)
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

// A release that comes twice takes out one entry. By the published program, whose releases have no numbers, the second takes out
// another's, and two writers hold the lock.
func TestCopiedReleaseTakesOneEntry(t *testing.T) {
	r := newRig(t, Config{})
	first, second, third := r.ask(1, lock.Exclusive), r.ask(2, lock.Exclusive), r.ask(3, lock.Exclusive)
	r.settle()
	r.release(first)
	again := r.under[0]
	r.settle()
	r.deliver(again)
	r.settle()
	if second.phase != holds || third.phase != asked {
		t.Errorf("after a release that came twice the others are in phases %d and %d, want holds and asked", second.phase, third.phase)
	}
}

// A reader that arrives while the switch is granting waiting readers does not pass those that it has not come to: it waits, and is granted by the same passes. By the
// published program it is granted at once, and when it releases, the entry at the head is free, which may be one that no pass has seen yet.
func TestReadersDoNotPassThosePassesAreFor(t *testing.T) {
	r := newRig(t, Config{Queue: 4})
	writer := r.ask(1, lock.Exclusive)
	readers := []*ticket{r.ask(2, lock.Shared), r.ask(3, lock.Shared)}
	r.settle()
	r.release(writer)
	r.deliver(r.take(msgRelease))
	late := r.ask(4, lock.Shared)
	r.deliver(r.take(msgAcquire)) // before the first pass
	if slices.ContainsFunc(r.under, func(s sent) bool { return s.Kind == msgGranted }) {
		t.Error("a reader that has just arrived is granted before those that wait")
	}
	last := r.ask(5, lock.Exclusive)
	r.settle()
	for i, x := range append(readers, late) {
		if x.phase != holds {
			t.Errorf("reader %d is in phase %d, want holds", i, x.phase)
		}
	}
	for _, x := range append(readers, late) {
		if last.phase == holds {
			t.Error("a writer holds the lock beside readers")
		}
		r.release(x)
		r.settle()
	}
	if last.phase != holds {
		t.Errorf("the writer behind the readers is in phase %d, want holds", last.phase)
	}
}

// The writer behind readers is granted the lock by the last pass, if all of these have released by then.
func TestWriterBehindReadersThatHaveGone(t *testing.T) {
	r := newRig(t, Config{})
	first, reader, last := r.ask(1, lock.Exclusive), r.ask(2, lock.Shared), r.ask(3, lock.Exclusive)
	r.settle()
	r.release(first)
	r.deliver(r.take(msgRelease))
	r.deliver(r.take(msgNext)) // grants the reader
	r.deliver(r.take(msgGranted))
	r.release(reader)
	r.deliver(r.take(msgRelease)) // before the pass that comes to the writer
	r.settle()
	if last.phase != holds {
		t.Errorf("the writer is in phase %d, want holds", last.phase)
	}
}

// Requests for which there is no entry are granted by the order of arrival, though the server keeps them.
func TestOverflowKeepsOrder(t *testing.T) {
	for length := 1; length <= 4; length++ {
		r := newRig(t, Config{Queue: length})
		var waiting []*ticket
		for i := range 10 {
			waiting = append(waiting, r.ask(1+i, lock.Exclusive))
		}
		r.settle()
		for i, x := range waiting {
			for k, y := range waiting[i+1:] {
				if y.phase == holds {
					t.Fatalf("queue of %d: request %d is granted before %d", length, i+1+k, i)
				}
			}
			r.release(x)
			r.settle()
		}
	}
}

// The switch asks for no more requests than it has entries, however often it asks: a message to the server may come twice, or late.
func TestRefillIsBounded(t *testing.T) {
	r := newRig(t, Config{Queue: 2})
	var all []*ticket
	for i := range 8 {
		all = append(all, r.ask(1+i, lock.Exclusive))
	}
	r.settle()
	r.release(all[0])
	r.settle()
	r.release(all[1])
	r.deliver(r.take(msgRelease))
	refill := r.take(msgRefill)
	for range 3 {
		r.deliver(refill)
	}
	pushed := 0
	for _, s := range r.under {
		if s.Kind == msgPush {
			pushed++
		}
	}
	if pushed != 2 {
		t.Errorf("the server sends %d requests to a queue of 2", pushed)
	}
	r.settle()
	r.deliver(refill)
	r.settle()
	for _, x := range all[2:] {
		r.release(x)
		r.settle()
	}
}

// Of locks with a profile, those that are not in it go to the server at once, and the switch has registers for the others alone.
func TestProfile(t *testing.T) {
	r := newRig(t, Config{Hot: []fabric.Addr{theLock, theLock + 64}, Locks: 1})
	if !r.pool.onSwitch(theLock) || r.pool.onSwitch(theLock+64) || r.pool.onSwitch(theLock+128) {
		t.Error("the locks on the switch are not the hottest one")
	}
	holder := r.ask(1, lock.Exclusive)
	r.settle()
	r.release(holder)
}

// The pass that looks behind a reader's entry knows when its place has become another's: the reader there has released, and the queue was full. By the published program it
// takes what is there now for the first in the queue: a writer behind others is granted the lock beside readers.
func TestLookAtAPlaceThatIsAnothersNow(t *testing.T) {
	r := newRig(t, Config{Queue: 4})
	readers := []*ticket{r.ask(1, lock.Shared), r.ask(2, lock.Shared), r.ask(3, lock.Shared)}
	first := r.ask(4, lock.Exclusive)
	r.settle()
	r.release(readers[0])
	r.deliver(r.take(msgRelease))
	look := r.take(msgNext) // for the second reader's place
	r.release(readers[1])
	r.deliver(r.take(msgRelease))
	behind := []*ticket{r.ask(5, lock.Exclusive), r.ask(6, lock.Exclusive)} // the second one gets that place
	r.deliver(r.take(msgAcquire))
	r.deliver(r.take(msgAcquire))
	r.deliver(look)
	r.settle()
	for i, x := range append(behind, first) {
		if x.phase == holds {
			t.Fatalf("writer %d holds the lock beside a reader", i)
		}
	}
	r.release(readers[2])
	r.settle()
	if first.phase != holds {
		t.Errorf("the first writer is in phase %d, want holds", first.phase)
	}
}

// What the server has been asked for ends with the requests that it has then: once the switch has all of them, others take entries of the queue again.
func TestRefillEnds(t *testing.T) {
	r := newRig(t, Config{Queue: 3})
	var all []*ticket
	ask := func(n int) {
		for range n {
			all = append(all, r.ask(len(all)+1, lock.Exclusive))
		}
		r.settle()
	}
	done := 0
	release := func(n int) {
		for range n {
			r.release(all[done])
			r.settle()
			done++
		}
	}
	ask(4)     // three entries, and one at the server
	release(3) // the queue is empty: the server may send one, and does
	ask(2)     // the queue is full
	ask(1)     // at the server, which sends nothing now
	if s := r.server.locks[theLock]; len(s.queue) != 1 {
		t.Errorf("the server has %d requests for a full queue, want 1", len(s.queue))
	}
	release(4)
}
