package fiss

import (
	"slices"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// leave has a machine leave in order, and the others know it.
func (r *rig) leave(machine int) {
	r.view.Live.Remove(r.pools[machine].cn)
	r.news()
}

// replace has another machine come in the number of one that has left, which no other machine has noticed.
func (r *rig) replace(machine int) {
	old := r.pools[machine]
	p := newPool(old.cn, switchAt, old.cfg)
	p.view, p.key = old.view, old.key+1
	r.view.Epoch += 2
	r.pools[machine] = p
	r.join(machine)
}

// A machine that leaves may have the agent of a lock that others hold, or wait for: it goes to another.
func TestMachineLeaves(t *testing.T) {
	r := newRig(t, 3, Config{Device: true})
	const other = theLock + 64
	first := r.ask(0, 1, lock.Shared)
	r.settle()
	second := r.ask(1, 1, lock.Shared)
	r.settle()
	r.release(0, first)
	r.settle()
	gone := r.askFor(other, 0, 2, lock.Exclusive)
	r.settle()
	waits := r.askFor(other, 1, 2, lock.Exclusive)
	r.settle()
	r.want("before", map[*ticket]phase{second: holds, gone: holds, waits: waiting})
	r.leave(0)
	r.settle()
	r.want("after", map[*ticket]phase{second: holds, waits: holds})
	writer := r.ask(2, 1, lock.Exclusive)
	r.settle()
	r.want("beside a reader whose agent has left", map[*ticket]phase{writer: waiting})
	r.release(1, second)
	r.settle()
	r.want("once it has released", map[*ticket]phase{writer: holds})
}

// A recovery does not wait for a machine that leaves meanwhile, in any of its steps; nor for its leader.
func TestMachineLeavesInRecovery(t *testing.T) {
	for _, leaves := range []int{0, 2} {
		for s := begins; s <= opens; s++ {
			r := newRig(t, 3, Config{Device: true})
			holder := r.ask(1, 1, lock.Exclusive)
			r.settle()
			r.failSwitch()
			for r.pools[0].lead.step != s {
				m := r.under[0]
				r.under = r.under[1:]
				r.deliver(m)
			}
			r.leave(leaves)
			r.settle()
			for i, p := range r.pools {
				if i != leaves && (p.stopped || p.lead != nil) {
					t.Errorf("machine %d leaves in step %d: machine %d has stopped (%v) or leads %+v", leaves, s, i, p.stopped, p.lead)
				}
			}
			r.want("after", map[*ticket]phase{holder: holds})
			waits := r.ask(2-leaves, 1, lock.Exclusive)
			r.settle()
			r.release(1, holder)
			r.settle()
			r.want("after a release", map[*ticket]phase{waits: holds})
		}
	}
}

// A machine that joins in the number of one that has left unnoticed does not get the answers to what that one has asked for: it begins a new round.
func TestJoinsInTheNumberOfAnother(t *testing.T) {
	r := newRig(t, 3, Config{Device: true})
	const other = theLock + 64
	gone := r.askFor(other, 2, 1, lock.Exclusive)
	holder := r.ask(1, 1, lock.Exclusive)
	r.settle()
	r.want("before", map[*ticket]phase{gone: holds, holder: holds})
	waits := r.askFor(other, 1, 2, lock.Exclusive)
	r.settle()
	r.replace(2)
	joins := r.ask(2, 1, lock.Exclusive)
	r.settle()
	r.want("after", map[*ticket]phase{holder: holds, waits: holds, joins: waiting})
	r.release(1, holder)
	r.settle()
	r.want("after a release", map[*ticket]phase{joins: holds})
}

// A machine that joins when all others have left finds their locks free.
func TestJoinsAlone(t *testing.T) {
	r := newRig(t, 2, Config{Device: true})
	gone := r.ask(0, 1, lock.Exclusive)
	r.settle()
	r.want("before", map[*ticket]phase{gone: holds})
	r.view.Live.Remove(r.pools[0].cn)
	r.replace(1)
	r.pools[1].viewed(r.port(1, 0)) // what an agent does when it starts
	r.pools[1].alone(r.port(1, 0))
	next := r.ask(1, 1, lock.Exclusive)
	r.settle()
	r.want("after", map[*ticket]phase{next: holds})
}

// A machine that joins while the switch is away, even in the lowest number that is live then, knows where the switch is going to be.
func TestJoinsWhileTheSwitchIsAway(t *testing.T) {
	var v fabric.View
	v.Live.Add(5)
	cfg := Config{Device: true, Switch: switchAt}
	if at := cfg.switchOf(v); at != switchAt {
		t.Errorf("a machine takes %v for the switch, want %v", at, switchAt)
	}
	v.Live.Add(switchAt)
	cfg.Switch = 0
	if at := cfg.switchOf(v); at != switchAt {
		t.Errorf("without its number in the configuration a machine takes %v for the switch, want %v", at, switchAt)
	}
}

// Another machine in the number of one that has left is noticed, whatever step a recovery is in, and though it asks for nothing.
func TestReplacedInRecovery(t *testing.T) {
	for s := begins; s <= opens; s++ {
		r := newRig(t, 3, Config{Device: true})
		gone := r.ask(2, 1, lock.Exclusive)
		r.settle()
		waits := r.ask(1, 1, lock.Exclusive)
		r.settle()
		r.failSwitch()
		for r.pools[0].lead.step != s {
			m := r.under[0]
			r.under = r.under[1:]
			r.deliver(m)
		}
		r.want("before", map[*ticket]phase{gone: holds})
		r.replace(2)
		r.news()
		r.settle()
		for i, p := range r.pools {
			if p.stopped || p.lead != nil {
				t.Errorf("replaced in step %d: machine %d has stopped (%v) or leads %+v", s, i, p.stopped, p.lead)
			}
		}
		r.want("after", map[*ticket]phase{waits: holds})
	}
}

// Of two leaders the one that has begun the last round goes on, though it learns of another failure before a late word of the other.
func TestTwoLeaders(t *testing.T) {
	r := newRig(t, 3, Config{Device: true})
	holder := r.ask(2, 1, lock.Exclusive)
	r.settle()
	r.failSwitch()
	second := r.pools[1]
	second.missed(r.port(1, 0))
	late := func(s sent) bool { return s.Kind == msgPause && s.to == second.self }
	for last := r.program.rounds + 2; r.program.rounds < last; {
		i := slices.IndexFunc(r.under, func(s sent) bool { return !late(s) })
		s := r.under[i]
		r.under = slices.Delete(r.under, i, i+1)
		r.deliver(s)
	}
	r.view.Lost++
	r.view.Epoch++
	second.handle(r.port(1, 0), &fabric.Message{Kind: fabric.MsgView})
	i := slices.IndexFunc(r.under, late)
	s := r.under[i]
	r.under = slices.Delete(r.under, i, i+1)
	r.deliver(s)
	r.settle()
	for i, p := range r.pools {
		if p.stopped || p.lead != nil {
			t.Errorf("machine %d has stopped (%v) or leads %+v", i, p.stopped, p.lead)
		}
	}
	r.want("after", map[*ticket]phase{holder: holds})
}

// absent takes machines out that have not been there yet.
func (r *rig) absent(machines ...int) {
	for _, i := range machines {
		r.view.Live.Remove(r.pools[i].cn)
	}
	for i := range r.pools {
		r.join(i)
	}
}

// joins has a machine join, after others in its number perhaps.
func (r *rig) joins(machine int) {
	old := r.pools[machine]
	p := newPool(old.cn, switchAt, old.cfg)
	p.view, p.key = old.view, old.key+1
	r.pools[machine] = p
	r.view.Live.Add(p.cn)
	r.view.Epoch++
	r.join(machine)
}

// closes has a leader begin a round, and returns the switch's answer to it.
func (r *rig) closes() sent {
	r.t.Helper()
	r.deliver(r.take(msgBegin))
	r.deliver(r.take(msgRound))
	r.deliver(r.take(msgBegin))
	if r.program.round.Load(0) != closed {
		r.t.Fatal("the switch is not closed")
	}
	return r.take(msgRound)
}

// A leader may close the switch and leave before any machine has paused. Machines that join later, so many that none is alone, have seen nobody leave: the switch tells the one that asks, and that one tells
// the first, which asks for nothing; also if that has the leader's number.
func TestSwitchIsLeftClosed(t *testing.T) {
	for _, joins := range [][]int{{2, 3}, {0, 3}} {
		r := newRig(t, 4, Config{Device: true})
		r.absent(2, 3)
		gone := r.ask(1, 1, lock.Exclusive)
		r.settle()
		r.want("before", map[*ticket]phase{gone: holds})
		r.leave(1)
		r.closes()
		r.view.Live.Remove(r.pools[0].cn)
		r.view.Epoch++
		r.under = nil
		for _, i := range joins {
			r.joins(i)
		}
		next := r.ask(joins[1], 1, lock.Exclusive)
		r.settle()
		r.want("after", map[*ticket]phase{next: holds})
		if first := r.pools[joins[0]]; r.program.rounds != 2 || first.led != 2 {
			t.Errorf("%v has led round %d, the last one is %d, want 2", first.cn, first.led, r.program.rounds)
		}
	}
}

// While the machine that has closed the switch is live no other begins a round, whoever asks.
func TestClosedSwitchHasALeader(t *testing.T) {
	r := newRig(t, 3, Config{Device: true})
	r.absent(2)
	r.pools[1].missed(r.port(1, 0))
	late := r.closes()
	r.joins(2)
	old, joined := r.ask(0, 1, lock.Exclusive), r.ask(2, 1, lock.Exclusive)
	r.settle()
	r.want("before the leader goes on", map[*ticket]phase{old: asked, joined: asked})
	if r.program.rounds != 1 || r.pools[0].lead != nil || r.pools[2].lead != nil {
		t.Errorf("another leads: there are %d rounds, want 1", r.program.rounds)
	}
	r.deliver(late)
	r.settle()
	r.want("after", map[*ticket]phase{old: holds, joined: waiting})
}

// A machine that has joined in the lowest number leads though it has not seen that another had gone before: a machine that has tells it.
func TestFirstHasNotSeenWhoHasGone(t *testing.T) {
	for _, acks := range []bool{false, true} {
		r := newRig(t, 3, Config{Device: true, Acks: acks})
		r.absent(0)
		gone := r.ask(2, 1, lock.Exclusive)
		r.settle()
		waits := r.ask(1, 1, lock.Exclusive)
		r.settle()
		r.want("before", map[*ticket]phase{gone: holds, waits: waiting})
		r.view.Live.Remove(r.pools[2].cn)
		r.joins(0)
		r.news()
		r.settle()
		r.want("after", map[*ticket]phase{waits: holds})
		if first := r.pools[0]; first.led == 0 || first.led != r.program.rounds {
			t.Errorf("the first machine has led round %d, the last one is %d", first.led, r.program.rounds)
		}
	}
}

// A machine that joins may stop in a round of a leader that then gives way to one that does not know it: it leads another, whether or not that one knows it by the end of its round.
func TestStoppedInARoundThatIsOver(t *testing.T) {
	for _, known := range []bool{false, true} {
		r := newRig(t, 4, Config{Device: true})
		r.absent(3)
		joins, early := r.pools[3].cn, r.view
		r.joins(3)
		for _, i := range []int{1, 2} {
			r.pools[i].view = func() fabric.View { return early }
		}
		holder := r.ask(2, 1, lock.Exclusive)
		r.settle()
		r.pools[0].missed(r.port(0, 0))
		var late []sent // to the machine that joins, which has not begun
		settle := func() {
			for len(r.under) > 0 {
				s := r.under[0]
				r.under = r.under[1:]
				if known && r.program.rounds == 2 && r.program.round.Load(0) != closed {
					r.pools[1].view = r.pools[0].view
				}
				if s.to.CN() == joins {
					late = append(late, s)
				} else {
					r.deliver(s)
				}
			}
		}
		settle()
		r.pools[1].missed(r.port(1, 0))
		settle()
		for i := range r.pools {
			r.pools[i].view = func() fabric.View { return r.view }
		}
		if r.program.rounds != 2 || r.pools[0].stopped {
			t.Fatalf("there are %d rounds, want 2, and the first machine has stopped: %v", r.program.rounds, r.pools[0].stopped)
		}
		for _, s := range late {
			r.deliver(s)
		}
		waits := r.ask(3, 1, lock.Exclusive)
		r.settle()
		for i, p := range r.pools {
			if p.stopped || p.lead != nil || p.round != r.program.rounds {
				t.Errorf("machine %d has stopped (%v) in round %d of %d, or leads %+v", i, p.stopped, p.round, r.program.rounds, p.lead)
			}
		}
		r.want("after", map[*ticket]phase{holder: holds, waits: waiting})
	}
}

// A client that tries behind a release of its machine, and gives up, is not asked for anew: no client would release what it is granted.
func TestGivenUpBehindARelease(t *testing.T) {
	r := newRig(t, 2, Config{Device: true})
	p, port := r.pools[0], r.port(0, 1)
	holder := r.ask(0, 1, lock.Exclusive)
	r.settle()
	r.release(0, holder)
	tries := &p.slots[p.begin(port, &lock.Request{Lock: theLock, Mode: lock.Shared, Try: true})]
	p.giveUp(port, tries)
	reader := r.ask(0, 2, lock.Shared)
	r.want("before", map[*ticket]phase{tries: asked, reader: asked})
	p.handle(port, &fabric.Message{Kind: msgGranted, Body: [7]uint64{uint64(theLock), uint64(reader.op), withAgent}})
	p.handle(port, &fabric.Message{Kind: msgBusy, Body: [7]uint64{uint64(theLock), uint64(tries.op)}})
	r.want("after", map[*ticket]phase{tries: idle, reader: holds})
}
