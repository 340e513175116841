package fiss

import (
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/pswitch"
	"github.com/declock/declock/lock"
)

// fail has a machine crash, and be known to have.
func (r *rig) fail(machine int) {
	r.view.Live.Remove(r.pools[machine].cn)
	r.lose()
}

// failSwitch has the switch fail, and be there again with empty registers.
func (r *rig) failSwitch() {
	r.t.Helper()
	program, err := r.program.Restart()
	if err != nil {
		r.t.Fatal(err)
	}
	r.program, r.sw = program, pswitch.New(program)
	r.lose()
}

// lose has all machines know of a failure.
func (r *rig) lose() {
	r.view.Lost++
	r.news()
}

// news has all machines know of another view.
func (r *rig) news() {
	r.view.Epoch++
	for i, p := range r.pools {
		if r.view.Live.Has(p.cn) {
			p.handle(r.port(i, 0), &fabric.Message{Kind: fabric.MsgView})
		}
	}
}

// askFor is ask, for another lock.
func (r *rig) askFor(l fabric.Addr, machine, index int, m lock.Mode) *ticket {
	p := r.pools[machine]
	return &p.slots[p.begin(r.port(machine, index), &lock.Request{Lock: l, Mode: m})]
}

// want checks phases.
func (r *rig) want(when string, phases map[*ticket]phase) {
	r.t.Helper()
	for t, want := range phases {
		if t.phase != want {
			r.t.Errorf("%s: %#x is in phase %d, want %d", when, t.op, t.phase, want)
		}
	}
}

// Locks whose agent or holder was on a machine that has failed go to others; what others hold stays held.
func TestMachineFails(t *testing.T) {
	r := newRig(t, 3, Config{Device: true})
	const other = theLock + 64
	crashed := r.ask(0, 1, lock.Exclusive)
	r.settle()
	waits := r.ask(1, 1, lock.Exclusive)
	agent := r.askFor(other, 0, 2, lock.Shared)
	r.settle()
	reader := r.askFor(other, 2, 1, lock.Shared)
	r.settle()
	r.want("before", map[*ticket]phase{crashed: holds, agent: holds, waits: waiting, reader: holds})
	r.fail(0)
	r.settle()
	r.want("after", map[*ticket]phase{waits: holds, reader: holds})
	writer := r.askFor(other, 1, 2, lock.Exclusive)
	r.settle()
	r.want("beside a reader whose agent has gone", map[*ticket]phase{writer: waiting})
	r.release(2, reader)
	r.settle()
	r.want("once it has released", map[*ticket]phase{writer: holds})
}

// The registers of a switch that has failed are restored from the machines; waiters go on waiting.
func TestSwitchFails(t *testing.T) {
	r := newRig(t, 3, Config{Device: true})
	const other = theLock + 64
	holder, waits := r.ask(0, 1, lock.Exclusive), r.ask(1, 1, lock.Exclusive)
	first, second := r.askFor(other, 1, 2, lock.Shared), r.askFor(other, 2, 1, lock.Shared)
	r.settle()
	r.failSwitch()
	r.settle()
	r.want("after", map[*ticket]phase{holder: holds, waits: waiting, first: holds, second: holds})
	writer := r.askFor(other, 0, 2, lock.Exclusive)
	late := r.ask(2, 2, lock.Shared)
	r.settle()
	r.want("behind a writer", map[*ticket]phase{late: waiting})
	r.release(0, holder)
	r.release(1, first)
	r.settle()
	r.want("after a release", map[*ticket]phase{waits: holds, second: holds, writer: waiting})
	r.release(2, second)
	r.settle()
	r.want("after the last reader's", map[*ticket]phase{writer: holds})
}

// What was under way when a round began has no effect in it.
func TestRoundBeforeIsOver(t *testing.T) {
	r := newRig(t, 3, Config{Device: true})
	gone := r.ask(0, 1, lock.Exclusive)
	late := r.take(msgAcquire)
	r.fail(0)
	r.settle()
	r.deliver(late)
	if r.settle(); r.held() {
		t.Fatal("a machine that has failed is granted a lock")
	}
	holder := r.ask(1, 1, lock.Exclusive)
	r.settle()
	r.release(1, holder)
	late = r.take(msgFree)
	r.failSwitch()
	again := r.ask(2, 1, lock.Exclusive)
	r.settle()
	r.deliver(late)
	if r.settle(); !r.held() || again.phase != holds || gone.phase != asked {
		t.Fatalf("a lock is free by what its holder before did: held %v, phases %d and %d", r.held(), again.phase, gone.phase)
	}
}

// A client that releases while its machine has paused releases once that resumes; one that gives up is granted nothing.
func TestReleasedWhilePaused(t *testing.T) {
	r := newRig(t, 2, Config{Device: true})
	holder, waits := r.ask(0, 1, lock.Exclusive), r.ask(1, 1, lock.Exclusive)
	r.settle()
	r.failSwitch()
	for !r.pools[0].stopped || !r.pools[1].stopped {
		s := r.under[0]
		r.under = r.under[1:]
		r.deliver(s)
	}
	r.release(0, holder)
	gives := r.ask(0, 2, lock.Exclusive)
	r.pools[0].giveUp(r.port(0, 2), gives)
	r.want("at once", map[*ticket]phase{gives: idle})
	r.settle()
	r.want("after", map[*ticket]phase{waits: holds, gives: idle})
}

// A machine that joins after a recovery asks in a round that is over, hears of the present one, and asks anew.
func TestJoinsAfterARecovery(t *testing.T) {
	r := newRig(t, 3, Config{Device: true})
	joins := r.pools[2].cn
	r.view.Live.Remove(joins)
	r.failSwitch()
	r.settle()
	r.view.Live.Add(joins)
	first := r.ask(2, 1, lock.Exclusive)
	r.settle()
	r.want("a machine that has joined", map[*ticket]phase{first: holds})
}

// A leader that begins anew, for another machine has failed, leads no round twice, whatever late answers of the switch say.
func TestNoRoundIsLedTwice(t *testing.T) {
	r := newRig(t, 3, Config{Device: true})
	holder := r.ask(1, 1, lock.Exclusive)
	r.settle()
	r.failSwitch()
	var late []sent
	for lead := r.pools[0].lead; lead.step < collects || lead.waits.Len() > 1; {
		s := r.under[0]
		r.under = r.under[1:]
		if s.to == r.pools[2].self {
			continue
		}
		if s.Kind == msgRound {
			late = append(late, s)
		}
		r.deliver(s)
	}
	r.fail(2)
	for _, s := range late {
		r.deliver(s)
	}
	r.settle()
	if r.pools[0].stopped || r.pools[1].stopped || r.pools[0].lead != nil {
		t.Errorf("the recovery does not end: it leads %+v", r.pools[0].lead)
	}
	r.want("after", map[*ticket]phase{holder: holds})
}

// A leader that fails is followed by another, which leads a round of its own.
func TestLeaderFails(t *testing.T) {
	r := newRig(t, 3, Config{Device: true})
	holder, waits := r.ask(1, 1, lock.Exclusive), r.ask(2, 1, lock.Exclusive)
	r.settle()
	r.failSwitch()
	for r.pools[0].lead.step != restores {
		s := r.under[0]
		r.under = r.under[1:]
		r.deliver(s)
	}
	r.fail(0)
	r.settle()
	r.want("after", map[*ticket]phase{holder: holds, waits: waiting})
	r.release(1, holder)
	r.settle()
	r.want("after a release", map[*ticket]phase{waits: holds})
}
