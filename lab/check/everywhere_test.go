package check

import (
	"flag"
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
)

var flagStride = flag.Int("stride", 0, "tests with faults everywhere: every so manieth boundary (default: few; 1: all)")

// strideOf returns the stride of a test, which -stride replaces.
func strideOf(stride int) int {
	if *flagStride > 0 {
		return *flagStride
	}
	return stride
}

// killOf and rebootOf are faults at a boundary.
func killOf(cn int) sim.Fault { return sim.Fault{Kind: sim.FaultKill, Node: sim.OfCN(fabric.CNID(cn))} }

func rebootOf(away fabric.Time) sim.Fault {
	return sim.Fault{Kind: sim.FaultReboot, Node: sim.OfMN(0), Until: away}
}

// A crash at every operation boundary of acquire, release and each step of the reset that follows; a second crash, of
// the leader of that reset or of another, at every boundary after that; and a third, at boundaries after both. The same with a node that
// joins, perhaps in the dead one's number, and with
// the memory node, which restarts with its memory. All oracles hold, and in the end every live waiter is granted the lock.
func TestEverywhere(t *testing.T) {
	list := []everywhereCase{
		{"a crash, 2 nodes", 2, []sim.Fault{killOf(1)}, 3, false},
		{"a crash, 3 nodes", 3, []sim.Fault{killOf(2)}, 5, false},
		{"two crashes, 2 nodes and the witness", 2, []sim.Fault{killOf(1), killOf(2)}, 23, false},
		{"two crashes, 3 nodes", 3, []sim.Fault{killOf(1), killOf(3)}, 17, false},
		{"three crashes, 3 nodes and the witness", 3, []sim.Fault{killOf(2), killOf(1), killOf(3)}, 61, false},
		{"a restart", 2, []sim.Fault{rebootOf(1)}, 3, false},
		{"a restart that takes long", 2, []sim.Fault{rebootOf(300 * fabric.Microsecond)}, 5, false},
		{"a restart, then a crash", 2, []sim.Fault{rebootOf(1), killOf(2)}, 29, false},
		{"a crash, then a restart", 2, []sim.Fault{killOf(1), rebootOf(1)}, 29, false},
		{"a crash, then a join", 2, []sim.Fault{killOf(1)}, 29, true},
		{"two restarts", 2, []sim.Fault{rebootOf(1), rebootOf(20 * fabric.Microsecond)}, 29, false},
	}
	if *flagStride > 0 {
		list = append(list, otherVictims()...)
	}
	for _, x := range list {
		t.Run(x.name, func(t *testing.T) {
			stride := strideOf(x.stride)
			total := faultsEverywhere{}
			for i, s := range everywhere(x.cns) {
				e := faultsEverywhere{Base: s, Faults: x.faults, Stride: stride, From: i % stride, Join: x.join}
				if err := e.Run(); err != nil {
					t.Fatal(err)
				}
				for _, f := range e.Failures {
					t.Errorf("%v", f)
				}
				total.Runs += e.Runs
				total.Resets += e.Resets
				total.Taken += e.Taken
			}
			t.Logf("%d runs, %d resets, %d taken over", total.Runs, total.Resets, total.Taken)
			if total.Runs < 20 || total.Resets < 5 {
				t.Error("that is too few: the faults hit nothing")
			}
		})
	}
}

// Another node joins while the first, which is cut off from the coordinator, works on; its lease runs out at every boundary, while the
// memory node is cut off from the coordinator, too, and serves it. A second fault is at every boundary after that. Locks are reset all the time.
func TestJoinInLeaseEverywhere(t *testing.T) {
	stride := strideOf(25)
	fence := sim.Fault{Kind: sim.FaultFence, Node: sim.OfCN(1)}
	for _, x := range []struct {
		name   string
		faults []sim.Fault
		stride int
	}{
		{"the lease runs out", []sim.Fault{fence}, stride},
		{"the lease runs out, then a crash", []sim.Fault{fence, killOf(2)}, 15 * stride},
	} {
		t.Run(x.name, func(t *testing.T) {
			runs, resets := 0, uint64(0)
			for i, s := range joinInLease() {
				e := faultsEverywhere{Base: s, Faults: x.faults, Stride: x.stride, From: i % x.stride}
				if err := e.Run(); err != nil {
					t.Fatal(err)
				}
				for _, f := range e.Failures {
					t.Errorf("%v", f)
				}
				runs, resets = runs+e.Runs, resets+e.Resets
			}
			t.Logf("%d runs, %d resets", runs, resets)
			if runs < 100 || resets < 100 {
				t.Error("that is too few")
			}
		})
	}
}

// joinInLease returns the scenarios of TestJoinInLeaseEverywhere. The joiner is known to all but the first node after some
// microseconds, and may not begin before 900.
func joinInLease() (list []Scenario) {
	for _, policy := range []string{"cql", "declock", "declock-tf"} {
		for _, reads := range []int{80, 95} {
			for _, hold := range []int{20000, 100000} {
				line := fmt.Sprintf("gen=%s class=lease seed=7 cns=2 clients=2 mns=1 policy=%s cap=3 ver=2 nic=cx4 scale=100 grain=8 locks=1 rounds=20 "+
					"reads=%d hold=%d recheck=500000 reset=10000000 detect=20000 late=keep news=1000 joins=1 joinat=2000 "+
					`plan="0 detach cn1 until 880000; 12000 detach mn0 until 900000"`, generator, policy, reads, hold)
				s, err := ParseScenario(line)
				if err != nil {
					panic(err)
				}
				list = append(list, s)
			}
		}
	}
	return list
}

type everywhereCase struct {
	name   string
	cns    int
	faults []sim.Fault
	stride int // in the package's tests
	join   bool
}

// otherVictims returns the crashes that the package's tests leave out: every one of two and three nodes, and every two of three in
// either order, so that the second to crash is the node that leads the reset by then, and one that does not.
func otherVictims() (list []everywhereCase) {
	add := func(cns int, victims ...int) {
		x := everywhereCase{name: fmt.Sprintf("crashes of %v, %d nodes", victims, cns), cns: cns, stride: 1}
		for _, v := range victims {
			x.faults = append(x.faults, killOf(v))
		}
		list = append(list, x)
	}
	for cns := 2; cns <= 3; cns++ {
		for a := 1; a <= cns; a++ {
			add(cns, a)
			for b := 1; b <= cns; b++ {
				if a != b {
					add(cns, a, b)
				}
			}
		}
	}
	return list
}

// everywhere returns the scenarios of TestEverywhere: a client on each node, which acquires and releases one lock twice. What the
// dead have under way is dropped or takes effect; nodes learn of a crash all at once, or each after a time of its own.
func everywhere(cns int) (list []Scenario) {
	for _, policy := range []string{"cql", "declock", "declock-tf"} {
		for _, reads := range []int{0, 50} {
			for _, late := range []string{"drop", "keep", "keep news=30000"} {
				line := fmt.Sprintf("gen=%s class=crash seed=7 cns=%d clients=1 mns=1 policy=%s cap=3 ver=27 nic=cx4 scale=100 grain=8 locks=1 rounds=2 "+
					"reads=%d hold=2000 recheck=500000 reset=10000000 detect=20000 late=%s", generator, cns, policy, reads, late)
				s, err := ParseScenario(line)
				if err != nil {
					panic(err)
				}
				list = append(list, s)
			}
		}
	}
	return list
}
