package check

import (
	"context"
	"errors"
	"flag"
	"strings"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/oracle"
)

// exploreNear explores a program of ParseExploration whole.
func exploreNear(t *testing.T, program string) *Explored {
	t.Helper()
	x, err := ParseExploration(program)
	if err != nil {
		t.Fatal(err)
	}
	e := &Explored{x, Explore(x, Bounds{})}
	if e.Report.Failure == nil && !e.Report.Exhaustive {
		t.Errorf("%v: %v", x, e.Report)
	}
	return e
}

// Table 1 of the asymmetric lock's paper: an atomic of the NIC and one of the CPU are not atomic with each other. So a lock that both take by CAS is
// taken twice; by the NIC alone, or where atomics are global, it is not.
func TestMixedCASFails(t *testing.T) {
	mixed := exploreNear(t, "cas [1x 2x] x1, 4 entries, 27 version bits, 1 near")
	f := mixed.Report.Failure
	if f == nil {
		t.Fatalf("no schedule of a mixed cas fails: %v", mixed)
	}
	taken := 0
	for _, line := range f.Trace {
		if strings.Contains(line, " effect CAS ") && strings.Contains(line, ": 0x0 ->") {
			taken++
		}
		if strings.Contains(line, " effect FAA mn0+0x400 ") {
			break // the first release
		}
	}
	var hang *sim.DeadlockError
	if errors.As(f.Err, &hang) || taken != 2 {
		t.Errorf("it was taken %d times: %v", taken, mixed)
	}
	for _, holds := range []string{"cas [1x 2x] x1, 4 entries, 27 version bits", "cas [1x 2x] x1, 4 entries, 27 version bits, 2 near"} {
		if e := exploreNear(t, holds); e.Report.Failure != nil {
			t.Error(e)
		}
	}
}

var flagWhole = flag.Bool("whole", false, "explore what takes long, too")

// asymmetric are the asymmetric locks.
var asymmetric = []string{"qplock", "alock"}

// holdsNear explores programs of the asymmetric locks, with budgets of 1 (local) and 2 (remote), whole. None may fail.
func holdsNear(t *testing.T, programs ...string) {
	t.Helper()
	for _, name := range asymmetric {
		for _, p := range programs {
			if e := exploreNear(t, name+" "+p); e.Report.Failure != nil {
				t.Error(e)
			}
		}
	}
}

// The six properties of the paper's TLA+ specification, by their names there. A program ends, so "infinitely often" is in each round, and "leads to" is before the program ends: whoever
// waits for ever is a deadlock to exploration, and so are clients that look again and again in vain.

// MutualExclusion: no two clients have the lock, whether they are of one cohort or of two.
func TestMutualExclusion(t *testing.T) {
	holdsNear(t, "[1x 2x 3x] x1, 4 entries, 27 version bits, 1 near", "[1x 2x 3x] x1, 4 entries, 27 version bits, 2 near")
}

// ExecsCriticalSectionInfinitelyOften: each client has the lock in each of its rounds.
func TestExecsCriticalSectionInfinitelyOften(t *testing.T) {
	program := "[1x 2x] x3, 4 entries, 27 version bits, 1 near"
	if !*flagWhole {
		program = "[1x 2x] x2, 4 entries, 27 version bits, 1 near"
	}
	holdsNear(t, program)
}

// StarvationFree: a client that asks has the lock at some time, though others ask again and again.
func TestStarvationFree(t *testing.T) {
	holdsNear(t, "[1x 2x] x2, 4 entries, 27 version bits, 1 near", "[1x 2x 3x] x1, 4 entries, 27 version bits, 2 near")
}

// DeadAndLivelockFree: if some ask, one has the lock at some time, also when another gives up.
func TestDeadAndLivelockFree(t *testing.T) {
	holdsNear(t, "[1x 2x] x1, 4 entries, 27 version bits, one cancellation, 1 near", "[1x 2x 3x] x1, 4 entries, 27 version bits, one cancellation, 2 near")
}

// CohortFairness: clients of a cohort have the lock in the order in which they have queued, under every schedule (cohorts judges that).
func TestCohortFairness(t *testing.T) {
	holdsNear(t, "[1x 2x 3x] x1, 4 entries, 27 version bits, 3 near", "[1x 2x 3x] x1, 4 entries, 27 version bits")
}

// GlobalFairness: a cohort has the lock at most as often as its budget says while the other one's leader waits, under every schedule (cohorts judges that): a remote leader may be passed by one of two
// local clients.
func TestGlobalFairness(t *testing.T) {
	holdsNear(t, "[1x 2x 3x] x1, 4 entries, 27 version bits, 2 near")
}

// All this holds under every schedule of two clients of each kind, too.
func TestExploresNear(t *testing.T) {
	if !*flagWhole {
		t.Skip("all schedules of four clients take half a minute: -whole")
	}
	holdsNear(t, "[1x 2x 3x 4x] x1, 4 entries, 27 version bits, 2 near")
}

// A grant that is not in a queue's order, and one beyond the budget, are seen.
func TestCohortsJudge(t *testing.T) {
	const l = fabric.Addr(4096)
	enters := func(q *cohorts, c fabric.ClientID, tail fabric.Addr, old fabric.ClientID) {
		op := fabric.CAS(tail, uint64(old), uint64(c))
		q.effect(&sim.Event{Step: sim.StepEffect, Client: c, Op: &op, Old: uint64(old), New: uint64(c)})
	}
	leads := func(q *cohorts, c fabric.ClientID) {
		op := fabric.Store(q.victim, 1)
		q.effect(&sim.Event{Step: sim.StepEffect, Client: c, Op: &op, New: 1})
	}
	granted := func(q *cohorts, c fabric.ClientID) string {
		return q.event(&oracle.Event{Kind: oracle.Granted, Client: c, Lock: l})
	}
	for _, name := range asymmetric {
		q := newCohorts(name, l)
		enters(q, 1, q.tails[0], 0)
		enters(q, 2, q.tails[0], 1)
		if what := granted(q, 2); !strings.HasPrefix(what, "cohort:") {
			t.Errorf("%s: out of order: %q", name, what)
		}
		q = newCohorts(name, l)
		enters(q, 9, q.tails[1], 0)
		enters(q, 1, q.tails[0], 0)
		if what := granted(q, 1); what != "" {
			t.Errorf("%s: %q", name, what)
		}
		leads(q, 9) // from here on grants count
		for i := range fabric.ClientID(3) {
			enters(q, 2+i, q.tails[0], 0)
			if what := granted(q, 2+i); strings.HasPrefix(what, "budget:") != (i == 2) {
				t.Errorf("%s: grant %d beside a waiting leader: %q", name, i+1, what)
			}
		}
	}
}

// The asymmetric locks keep the promises of a lock while clients give up, and budgets run out.
func TestNear(t *testing.T) {
	u := seedsOf(t, Near, 100)
	if u.Grants < 3000 {
		t.Errorf("%d operations: that is too little", u.Grants)
	}
}

// Locks with servers on compute nodes keep their promises while these crash: of a crashed server's part of the locks none is granted any more, and the others go on.
func TestHomesCrash(t *testing.T) {
	u := seedsOf(t, HomesCrash, 50)
	hasEffects(t, u, sim.Kills)
	if u.Grants < 1000 {
		t.Errorf("%d operations: that is too little", u.Grants)
	}
}

// So do locks with a server on each compute node, and locks that are at compute nodes, whose clients take them without a message.
func TestHomes(t *testing.T) {
	for _, class := range []Class{Homes, SwitchedLocal} {
		u, err := Faults(context.Background(), Options{Classes: []Class{class}, First: *flagFirst, Runs: 50, Keep: 1})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range u.Failures {
			t.Errorf("%v: %v", class, f)
		}
		if u.Grants < 1500 {
			t.Errorf("%v: %d operations: that is too little", class, u.Grants)
		}
	}
}
