package fiss

import (
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// A machine joins, is granted a lock, and leaves before another has looked at the views between: what it held is free, whether or not the second machine has seen it come.
func TestJoinsAndLeavesUnseen(t *testing.T) {
	for _, seen := range []bool{false, true} {
		r := newRig(t, 3, Config{Device: true})
		r.absent(2)
		r.joins(2)
		if seen {
			r.pools[1].handle(r.port(1, 0), &fabric.Message{Kind: fabric.MsgView})
		}
		gone := r.ask(2, 1, lock.Exclusive)
		r.settle()
		r.want("before", map[*ticket]phase{gone: holds})
		r.leave(2)
		r.settle()
		next := r.ask(1, 1, lock.Exclusive)
		r.settle()
		r.want("after", map[*ticket]phase{next: holds})
	}
}

// A switch that fails again, wherever a recovery is, is restored: an answer of before is not taken for one of the round that has begun since, though the one to that is lost.
func TestSwitchFailsAgain(t *testing.T) {
	for _, lost := range []bool{false, true} {
		for cut := range 40 {
			when := fmt.Sprintf("fails again after %d messages, an answer is lost: %v", cut, lost)
			r := newRig(t, 3, Config{Device: true, Locks: 8, Slots: 8, Machines: 8})
			holder := r.ask(1, 1, lock.Exclusive)
			r.settle()
			waits := r.ask(2, 1, lock.Exclusive)
			r.settle()
			r.failSwitch()
			r.some(cut)
			r.failSwitch()
			for drop := lost; drop && len(r.under) > 0; {
				if s := r.under[0]; s.Kind == msgRound && s.Body[2] == r.program.rounds {
					r.under, drop = r.under[1:], false
					continue
				}
				r.some(1)
			}
			r.settle()
			for i, p := range r.pools {
				if p.lead != nil {
					p.lead.due = 0
					p.leads(r.port(i, 0))
				}
			}
			r.settle()
			r.recovered(when)
			r.want(when, map[*ticket]phase{holder: holds, waits: waiting})
			r.release(1, holder)
			r.settle()
			r.want(when+"; released", map[*ticket]phase{waits: holds})
		}
	}
}

// some delivers so many messages, as far as there are.
func (r *rig) some(n int) {
	for ; n > 0 && len(r.under) > 0; n-- {
		s := r.under[0]
		r.under = r.under[1:]
		r.deliver(s)
	}
}

// recovered checks that no machine leads a recovery, or waits for the end of one.
func (r *rig) recovered(when string) {
	r.t.Helper()
	for i, p := range r.pools {
		if r.view.Live.Has(p.cn) && (p.stopped || p.lead != nil) {
			r.t.Errorf("%s: machine %d has stopped (%v) in round %d of %d, or leads %+v", when, i, p.stopped, p.round, r.program.rounds, p.lead)
		}
	}
}

// Whatever happens in whichever place of a recovery, and then once more: it ends, what the living hold stays held by one, and what others held is free.
func TestAnythingInARecovery(t *testing.T) {
	const passer, none = 3, -1
	events := []struct {
		name string
		who  int // has to be there
		do   func(r *rig)
	}{
		{"the switch fails", none, (*rig).failSwitch},
		{"the first crashes", 0, func(r *rig) { r.fail(0) }},
		{"the last crashes", 2, func(r *rig) { r.fail(2) }},
		{"the first leaves", 0, func(r *rig) { r.leave(0) }},
		{"the last leaves", 2, func(r *rig) { r.leave(2) }},
		{"another comes in the number of the first", 0, func(r *rig) { r.replace(0); r.news() }},
		{"another comes in the number of the last", 2, func(r *rig) { r.replace(2); r.news() }},
		{"one joins, asks and leaves", none, func(r *rig) { r.joins(passer); r.ask(passer, 1, lock.Exclusive); r.leave(passer) }},
	}
	run := func(at [3]int, which [3]int) {
		r := newRig(t, 4, Config{Device: true, Locks: 8, Slots: 8, Machines: 8})
		r.absent(passer)
		const others = theLock + 64
		name := ""
		reader, last := r.ask(1, 1, lock.Shared), r.askFor(others, 2, 2, lock.Exclusive)
		first := r.ask(0, 1, lock.Shared)
		r.settle()
		r.want("before", map[*ticket]phase{reader: holds, last: holds, first: holds})
		for i, k := range which {
			r.some(at[i])
			if e := events[k]; e.who == none || r.view.Live.Has(r.pools[e.who].cn) {
				name += fmt.Sprintf("; after %d messages %s", at[i], e.name)
				e.do(r)
			}
		}
		r.settle()
		r.recovered(name)
		if reader.phase != holds {
			t.Errorf("%s: the reader is in phase %d", name, reader.phase)
		}
		writer := r.ask(1, 2, lock.Exclusive)
		r.settle()
		if writer.phase != waiting && writer.phase != asked {
			t.Errorf("%s: a writer beside a reader is in phase %d", name, writer.phase)
		}
		r.release(1, reader)
		for i, l := range []*ticket{0: first, 2: last} {
			if l != nil && l.phase == holds && r.view.Live.Has(r.pools[i].cn) {
				r.pools[i].release(r.port(i, 1), l)
			}
		}
		r.settle()
		after := r.askFor(others, 1, 3, lock.Exclusive)
		r.settle()
		if writer.phase != holds || after.phase != holds {
			t.Errorf("%s: the writer is in phase %d, one of another lock in %d, want %d", name, writer.phase, after.phase, holds)
		}
	}
	for a := range events {
		for b := range events {
			for i := range 45 {
				run([3]int{0, i, 0}, [3]int{a, b, 0})
			}
			for c := range events {
				for i := 1; i < 24; i += 7 {
					for j := 2; j < 24; j += 7 {
						run([3]int{0, i, j}, [3]int{a, b, c})
					}
				}
			}
			if t.Failed() {
				return
			}
		}
	}
}

// Machines that join between two looks of others, and stay, are no reason for a recovery: locks would leave the machines that they are at.
func TestJoinsTogether(t *testing.T) {
	r := newRig(t, 4, Config{Device: true})
	r.absent(2, 3)
	r.joins(2)
	r.joins(3)
	r.news()
	holder := r.ask(1, 1, lock.Exclusive)
	r.settle()
	if r.want("after", map[*ticket]phase{holder: holds}); r.program.rounds != 0 {
		t.Errorf("two machines have joined: %d recoveries", r.program.rounds)
	}
}

// A machine may have gone when another looks for its incarnation, in a view that still has it: what it held is free.
func TestGoneSinceTheView(t *testing.T) {
	r := newRig(t, 3, Config{Device: true})
	r.absent(2)
	r.joins(2)
	gone := r.ask(2, 1, lock.Exclusive)
	r.settle()
	r.want("before", map[*ticket]phase{gone: holds})
	for i := range 2 {
		p := r.pools[i]
		now := p.incarnation
		p.incarnation = func(fabric.CNID) uint64 { return 0 }
		p.handle(r.port(i, 0), &fabric.Message{Kind: fabric.MsgView})
		p.incarnation = now
	}
	r.leave(2)
	r.settle()
	next := r.ask(1, 1, lock.Exclusive)
	r.settle()
	r.want("after", map[*ticket]phase{next: holds})
}

// A leader that another leader does not know is not paused by that one: it leads a round of its own once the other's has ended.
func TestLeaderUnknownToAnother(t *testing.T) {
	r := newRig(t, 3, Config{Device: true})
	r.absent(2)
	early := r.view
	r.joins(2)
	holder := r.ask(1, 1, lock.Exclusive)
	r.settle()
	joined := r.pools[2]
	joined.missed(r.port(2, 0))
	for joined.lead.step != restores {
		r.some(1)
	}
	r.pools[0].view = func() fabric.View { return early }
	r.pools[0].missed(r.port(0, 0))
	late := r.take(msgRestore) // it comes when the other has begun
	r.settle()
	r.pools[0].view = joined.view
	r.deliver(late)
	r.settle()
	if p := joined; p.lead != nil {
		p.lead.due = 0
		p.leads(r.port(2, 0))
	}
	r.settle()
	r.recovered("after")
	waits := r.ask(2, 1, lock.Exclusive)
	r.settle()
	r.release(1, holder)
	r.settle()
	r.want("released", map[*ticket]phase{waits: holds})
}
