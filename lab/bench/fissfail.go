package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/pswitch"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks"
	"github.com/declock/declock/lab/locks/fiss"
	"github.com/declock/declock/lock"
)

// A fissFail is a run in which a machine fails, and FissLock's switch with it, while each client holds some locks; then those of other machines ask for the locks of the clients that failed.
type fissFail struct {
	simulation
	m     Micro
	holds int // of each client
	plan  plan

	failed fabric.Time // when the machine and the switch fail
	known  fabric.Time // when all nodes that failed are fenced
	last   fabric.Time // when the last lock of a client that failed was granted to another
	free   int         // how many have been
	// steps are when the first message of each step of FissLock's recovery was sent, and when its last one came.
	steps [4]struct{ from, to fabric.Time }
}

// Observe implements sim.Observer.
func (f *fissFail) Observe(e *sim.Event) {
	if e.Step == sim.StepFence {
		f.known = e.Time
	}
	if e.Msg == nil {
		return
	}
	if s := fiss.RecoveryStep(e.Msg.Kind); s > 0 && e.Step == sim.StepSend && f.steps[s].from == 0 {
		f.steps[s].from = e.Time
	} else if s > 0 && e.Step == sim.StepDeliver {
		f.steps[s].to = e.Time
	}
}

// failPatienceNs is for how long a run goes on after the failure, at most.
const failPatienceNs = 200 * fabric.Millisecond

// join returns what sets compute nodes up, and the switch's program, if there is one.
func (f *fissFail) join() (func(fabric.Node) (*locks.Node, error), *fiss.Program, lock.Layout, error) {
	if !strings.HasPrefix(f.m.Lock, "fiss") {
		sys, err := f.m.system(fabric.At(0, counterOffset), locks.ServerNs)
		if err != nil {
			return nil, nil, lock.Layout{}, err
		}
		return sys.Join, nil, sys.Layout(), nil
	}
	cfg := fiss.Config{Plain: true, Device: true, Slots: 64 + 2*f.each()*f.holds, Machines: f.m.CNs + 2}
	program, err := fiss.NewProgram(cfg)
	return func(n fabric.Node) (*locks.Node, error) { return locks.Fiss(cfg)(n), nil }, program, cfg.Layout(), err
}

// each is how many clients a machine has.
func (f *fissFail) each() int { return f.m.Clients / f.m.CNs }

func (f *fissFail) run(ctx context.Context) error {
	join, program, layout, err := f.join()
	if err != nil {
		return err
	}
	cfg := f.m.cluster()
	cfg.Observer = f
	f.c = sim.New(cfg)
	defer f.c.Close()
	f.plan = newPlan(layout, f.m.Clients*f.holds, 0)
	f.c.AddMN(f.plan.size())
	if program != nil {
		f.device = f.c.AddSwitch(pswitch.Program(program), switchModel)
	}
	f.failed = fabric.Millisecond + fabric.Time(f.holds)*20*fabric.Microsecond
	var first *sim.Node
	for i := range f.m.CNs {
		node := f.c.AddCN()
		joined, err := join(node)
		if err != nil {
			return err
		}
		f.startAgent(joined, node)
		for k := range f.each() {
			f.c.Go(node, fmt.Sprintf("client %d of node %d", k, i), func(p fabric.Port) { f.fail(f.client(joined.Locker(p), k*f.m.CNs+i)) })
		}
		first = node
	}
	f.c.At(f.failed, func() {
		f.c.Kill(first) // the last one: another leads the recovery
		if program != nil {
			f.failSwitch(program)
		}
	})
	for end := f.failed + failPatienceNs; f.free < f.each()*f.holds && f.err == nil; {
		if now := f.c.Now(); now >= end {
			return fmt.Errorf("bench: of %d locks of a machine that failed %d are free after %d ms", f.each()*f.holds, f.free, failPatienceNs/fabric.Millisecond)
		} else if err := errors.Join(f.c.RunUntil(now+fabric.Millisecond), ctx.Err()); err != nil {
			return err
		}
	}
	return f.err
}

// failSwitch has the switch fail. Another with empty registers takes its place once that is known.
func (f *fissFail) failSwitch(program *fiss.Program) {
	old := f.device
	f.c.Kill(old)
	var replace func()
	replace = func() {
		if !old.Fenced() {
			f.c.At(f.c.Now()+10*fabric.Microsecond, replace)
			return
		}
		next, err := program.Restart()
		if err != nil {
			f.fail(err)
			return
		}
		f.device = f.c.AddSwitch(next, switchModel)
	}
	replace()
}

// client takes its locks. Once a machine has failed, it asks for its part of the locks of the clients there.
func (f *fissFail) client(l lock.Locker, k int) error {
	hold := make([]lock.Hold, f.holds)
	for i := range hold {
		if err := l.Acquire(&hold[i], &lock.Request{Lock: f.plan.addr(uint64(k*f.holds + i)), Mode: lock.Exclusive}); err != nil {
			return err
		}
	}
	if l.Port().Now() > f.failed {
		return fmt.Errorf("bench: client %d has its locks only at %d", k, l.Port().Now())
	}
	if err := l.Port().Pause(f.failed + fabric.Microsecond); err != nil {
		return err
	}
	survivors := f.m.CNs - 1
	if k%f.m.CNs == survivors { // it has failed
		return l.Port().Pause(fabric.Forever)
	}
	for i := k/f.m.CNs*survivors + k%f.m.CNs; i < f.each()*f.holds; i += f.each() * survivors {
		var h lock.Hold
		owner := i/f.holds*f.m.CNs + survivors
		if err := l.Acquire(&h, &lock.Request{Lock: f.plan.addr(uint64(owner*f.holds + i%f.holds)), Mode: lock.Exclusive}); err != nil {
			return err
		}
		f.free++
		f.last = l.Port().Now()
		if err := l.Release(&h, nil); err != nil {
			return err
		}
	}
	return nil
}

// metrics are times of the recovery since all that failed is fenced, in microseconds.
func (f *fissFail) metrics() Metrics {
	m := Metrics{"free_us": float64(f.last-f.known) / 1e3, "recovery_us": 0}
	for s := 1; s < len(f.steps); s++ {
		m[fmt.Sprintf("s%d_us", s)] = float64(f.steps[s].to-f.steps[s].from) / 1e3
		m["recovery_us"] = max(m["recovery_us"], float64(f.steps[s].to-f.known)/1e3)
	}
	if f.device == nil {
		m["recovery_us"] = 0
	}
	return m
}

var expFiss17b = &Experiment{
	Name: "fiss17b", Other: true, Title: "FissLock's Fig. 17, middle: recovery of a machine and the switch that fail at once, by locks held",
	Paper: "FissLock's paper, section 7.8: collecting the states of machines (S1) and repairing them (S2) takes most of the time, in proportion to the number of locks, whose metadata is scanned; restoring the switch (S3) is trivial, for it " +
		"is of held locks only. Here 8 machines of 20 clients hold 1 to 100 locks each. DecLock needs no switch: there a machine fails, and each of its locks is reset when it is asked for.",
	Columns: []string{"lock", "held", "s1_us", "s2_us", "s3_us", "recovery_us", "free_us"},
	Points: func(o Options) []Point {
		return across(pick(o, []int{1, 10, 100}, 1, 10), []string{"fiss", "declock", "declock-tf"}, func(holds int, lock string) Point {
			m := Default(lock)
			fissTestbed(&m)
			m = m.sized(o).WithDefaults()
			return Point{Cost: 1e8 * float64(holds), Measure: one(Params{{"lock", lock}, {"held", holds * m.Clients}}, func(ctx context.Context, seed uint64) (Metrics, error) {
				f := &fissFail{m: m, holds: holds}
				f.m.Seed = seed
				if err := f.run(ctx); err != nil {
					return nil, err
				}
				return f.metrics(), nil
			})}
		})
	},
	Judge: func(rows Rows) []Claim {
		of := rows.Where("lock", "fiss")
		most, least := of.Find("held", 16_000), of.Find("held", 160) // which quick runs do not have
		s := func(r Row, step int) float64 { return valueOf(r, fmt.Sprintf("s%d_us", step)) }
		note := "only holders are reported and rebuilt, one message for each, and no metadata of other locks is scanned; the leader has the switch restore each held lock by a message of its own, which is answered: " + inWords(of, "fiss", "held", "s1_us") + "; " +
			inWords(of, "fiss", "held", "s2_us") + "; " + inWords(of, "fiss", "held", "s3_us")
		few, many := rows.Where("held", 160), rows.Where("held", 16_000)
		free := byLock(few, "free_us") + " with 160 held; " + byLock(many, "free_us") + " with 16,000"
		return []Claim{
			Claim{Text: "S1 and S2, of the time of S1 to S3", Unit: "%", Note: note}.AtLeast(100*(s(most, 1)+s(most, 2))/(s(most, 1)+s(most, 2)+s(most, 3)), 90),
			Claim{Text: "S1 and S2 with 100 times the locks held: in proportion", Unit: "x", Paper: 100, Note: note}.Near((s(most, 1)+s(most, 2))/(s(least, 1)+s(least, 2)), 2),
			Claim{Own: true, Text: "160 locks held: until all locks of the failed machine are granted again, declock's time over FissLock's", Unit: "x", Note: free}.AtMost(Ratio(few.Find("lock", "declock"), few.Find("lock", "fiss"), "free_us"), 1),
			Claim{Own: true, Text: "16,000 locks held: the same", Unit: "x", Note: free}.AtMost(Ratio(many.Find("lock", "declock"), many.Find("lock", "fiss"), "free_us"), 1),
		}
	},
}
