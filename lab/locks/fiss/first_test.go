package fiss

import (
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// A machine joins in the lowest number, and another leaves in order before its Pool is made: the first look of that shows nobody gone, and those that have seen both take the first for the one that leads.
func TestLeavesBeforeThePoolOfTheFirst(t *testing.T) {
	for _, acks := range []bool{false, true} {
		r := newRig(t, 3, Config{Device: true, Acks: acks})
		r.absent(0)
		gone := r.ask(2, 1, lock.Exclusive)
		r.settle()
		waits := r.ask(1, 1, lock.Exclusive)
		r.settle()
		r.want("before", map[*ticket]phase{gone: holds, waits: waiting})
		r.joins(0)
		r.pools[1].look(r.pools[1].view())
		r.view.Live.Remove(r.pools[2].cn)
		r.replace(0) // the Pool is made only now
		r.pools[0].viewed(r.port(0, 0))
		r.pools[1].viewed(r.port(1, 0))
		r.settle()
		r.want("after", map[*ticket]phase{waits: holds})
		r.recovered("after")
	}
}

// A first machine that is told of a view which it does not know yet waits for that, and leads one recovery then.
func TestFirstIsToldOfAViewToCome(t *testing.T) {
	r := newRig(t, 3, Config{Device: true})
	gone := r.ask(2, 1, lock.Exclusive)
	r.settle()
	waits := r.ask(1, 1, lock.Exclusive)
	r.settle()
	early := r.view
	r.pools[0].view = func() fabric.View { return early }
	r.view.Live.Remove(r.pools[2].cn)
	r.news()
	r.settle()
	if r.want("before", map[*ticket]phase{gone: holds, waits: waiting}); r.program.rounds != 0 {
		t.Errorf("a recovery has begun that waits for the machine that has gone")
	}
	r.pools[0].view = r.pools[1].view
	r.news()
	r.settle()
	if r.want("after", map[*ticket]phase{waits: holds}); r.program.rounds != 1 {
		t.Errorf("%d recoveries, want 1", r.program.rounds)
	}
}

// A client whose request was refused just before its machine paused sees that afterwards.
func TestRefusedBeforeAPause(t *testing.T) {
	r := newRig(t, 2, Config{Device: true})
	holder := r.ask(0, 1, lock.Exclusive)
	r.settle()
	p := r.pools[1]
	tries := &p.slots[p.begin(r.port(1, 1), &lock.Request{Lock: theLock, Mode: lock.Exclusive, Try: true})]
	r.settle()
	r.want("before", map[*ticket]phase{holder: holds, tries: refusedIt})
	free := len(p.idle)
	r.failSwitch()
	r.settle()
	if r.want("after", map[*ticket]phase{holder: holds, tries: refusedIt}); len(p.idle) != free {
		t.Errorf("%d slots are free, want %d: the client has not let go of its own", len(p.idle), free)
	}
}

// A copy of a Restore that comes when the round is open changes nothing: the lock may be free by then.
func TestRestoreAfterOpen(t *testing.T) {
	r := newRig(t, 2, Config{Device: true})
	holder := r.ask(0, 1, lock.Exclusive)
	r.settle()
	r.failSwitch()
	late := r.take(msgBegin)
	for r.deliver(late); r.pools[0].lead.step != restores; {
		r.some(1)
	}
	late = r.take(msgRestore)
	r.deliver(late)
	r.settle()
	r.release(0, holder)
	r.settle()
	r.deliver(late)
	r.settle()
	next := r.ask(1, 1, lock.Exclusive)
	r.settle()
	r.want("after a copy", map[*ticket]phase{next: holds})
}

// More locks than are restored at once are restored, and no timer is waited for.
func TestManyLocksAreRestored(t *testing.T) {
	r := newRig(t, 2, Config{Device: true, Slots: 4 * restoreWindow, Locks: 4 * restoreWindow})
	var held []*ticket
	for i := range 3 * restoreWindow {
		held = append(held, r.askFor(theLock+fabric.Addr(64*i), i%2, 1+i, lock.Exclusive))
	}
	r.settle()
	r.failSwitch()
	r.settle()
	r.recovered("after")
	for i, h := range held {
		if h.phase != holds {
			t.Errorf("lock %d is in phase %d", i, h.phase)
		}
	}
	var waits []*ticket
	for i := range held {
		waits = append(waits, r.askFor(theLock+fabric.Addr(64*i), 1-i%2, 1+i, lock.Exclusive))
	}
	r.settle()
	for i, w := range waits {
		if w.phase == holds {
			t.Errorf("lock %d is held twice", i)
		}
	}
}

// An agent that comes in a round is taken, though one from the same slot has come in the round before, under a greater number.
func TestMovesOfTheRoundBefore(t *testing.T) {
	r := newRig(t, 2, Config{Device: true, Slots: 1})
	pass := func() {
		for k := range 9 {
			from := k % 2
			holder := r.ask(from, 1, lock.Exclusive)
			r.settle()
			next := r.ask(1-from, 1, lock.Exclusive)
			r.settle()
			r.release(from, holder)
			r.settle()
			r.want("handed over", map[*ticket]phase{next: holds})
			r.release(1-from, next)
			r.settle()
		}
	}
	pass()
	r.failSwitch()
	r.settle()
	pass()
}

// A Resume of the round before does not let the clients go on in the present one: the switch is closed, and would not hear what they ask.
func TestResumeOfTheRoundBefore(t *testing.T) {
	r := newRig(t, 3, Config{Device: true})
	holder := r.ask(1, 1, lock.Exclusive)
	r.settle()
	r.failSwitch()
	var late []sent
	for len(r.under) > 0 {
		s := r.under[0]
		r.under = r.under[1:]
		if s.Kind == msgResume && s.to == r.pools[1].self {
			late = append(late, s)
			continue
		}
		r.deliver(s)
	}
	r.failSwitch()
	for last := r.pools[1].round; r.pools[1].round == last; {
		r.some(1)
	}
	if len(late) != 1 {
		t.Fatalf("%d messages Resume to the machine, want 1", len(late))
	}
	r.deliver(late[0])
	if !r.pools[1].stopped {
		t.Error("the machine goes on in a round that is not open")
	}
	r.settle()
	r.recovered("after")
	r.want("after", map[*ticket]phase{holder: holds})
}

// A switch that is back in a later view is asked at once: the leader does not wait for its timer.
func TestSwitchIsBack(t *testing.T) {
	r := newRig(t, 2, Config{Device: true})
	holder := r.ask(1, 1, lock.Exclusive)
	r.settle()
	r.view.Live.Remove(switchAt)
	r.failSwitch()
	r.settle()
	lead := r.pools[0].lead
	if lead == nil || lead.step != begins {
		t.Fatalf("the first leads %+v", lead)
	}
	lead.due = fabric.Second
	r.view.Live.Add(switchAt)
	r.news()
	r.settle()
	r.recovered("after")
	r.want("after", map[*ticket]phase{holder: holds})
}

// The registers of a round that begins are empty, all of them.
func TestRegistersOfARoundAreEmpty(t *testing.T) {
	r := newRig(t, 2, Config{Device: true, Locks: 8, Slots: 8, Machines: 8})
	p := r.program
	all := map[string]interface {
		Store(int, uint64)
		Load(int) uint64
	}{"owner": p.owner, "last": p.last, "outcome": p.outcome, "bar": p.bar, "incarnation": p.incarnation, "held": p.held, "shared": p.shared, "mid": p.mid}
	for _, a := range all {
		a.Store(1, 1)
	}
	p.begin()
	for name, a := range all {
		if a.Load(1) != 0 {
			t.Errorf("%s is not empty", name)
		}
	}
}

// A machine that joins when another has crashed takes it that none has made up for that: in the lowest number it leads a recovery, else it tells the lowest.
func TestJoinsAfterACrash(t *testing.T) {
	r := newRig(t, 3, Config{Device: true})
	for i := range 2 {
		r.view.Lost = 1
		p := NewPool(member{cn: r.pools[i].cn, view: r.view}, Config{Device: true})
		p.viewed(r.port(i, 0))
		if s := r.under[0]; i == 0 && s.Kind != msgBegin || i == 1 && (s.Kind != msgLook || s.to != r.pools[0].self) {
			t.Errorf("machine %d, when it joins, sends %+v", i, s)
		}
		r.under = nil
	}
}

// A member is a node with one view.
type member struct {
	fabric.Node
	cn   fabric.CNID
	view fabric.View
}

func (m member) ID() fabric.CNID   { return m.cn }
func (m member) View() fabric.View { return m.view }
