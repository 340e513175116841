package check

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/declock/declock/fabric/sim"
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

// The asymmetric locks hold under every schedule of two local clients and one remote one, with budgets of 1 and 2, and of another remote one as far as some states
// go: "declock-lab sim explore" takes all of them.
func TestExploresNear(t *testing.T) {
	for _, name := range []string{"qplock", "alock"} {
		if e := exploreNear(t, name+" [1x 2x 3x] x1, 4 entries, 27 version bits, 2 near"); e.Report.Failure != nil {
			t.Error(e)
		}
		x, err := ParseExploration(name + " [1x 2x 3x 4x] x1, 4 entries, 27 version bits, 2 near")
		if err != nil {
			t.Fatal(err)
		}
		if e := (&Explored{x, Explore(x, Bounds{States: 10_000})}); e.Report.Failure != nil {
			t.Error(e)
		}
	}
}

// The asymmetric locks keep the promises of a lock while clients give up, and budgets run out.
func TestNear(t *testing.T) {
	u, err := Faults(context.Background(), Options{Classes: []Class{Near}, First: *flagFirst, Runs: 100, Keep: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range u.Failures {
		t.Errorf("%v", f)
	}
	if u.Grants < 3000 {
		t.Errorf("%d operations: that is too little", u.Grants)
	}
}

// So does a lock with a server on each compute node, and locks that are at compute nodes, whose clients take them without a message.
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
