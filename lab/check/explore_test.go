package check

import (
	"slices"
	"testing"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/lab/explore"
	"github.com/declock/declock/lab/locks"
	"github.com/declock/declock/lock"
)

// Every small program holds under every schedule: exploration that stops early, or states that do not merge any
// more, show here, too. Of some that have more states the first are explored. "declock-lab sim explore" takes all programs, and the time they need.
func TestExploresAll(t *testing.T) {
	const maxStates = 10_000
	large := []string{
		"cql [1x 2r] x1, 4 entries, 27 version bits, primary given up", "cql [1x 2r] x1, 4 entries, 27 version bits, primary ends",
		"declock [1x 2r] x1, 4 entries, 27 version bits, primary ends", "declock [1x 2r] x1, 4 entries, 27 version bits, primary given up",
		"cql [1s 2x] x1, 2 entries, 2 version bits, used 3 times", "cql [1x 2x] x1, 2 entries, 2 version bits, used 3 times",
		"declock+no-train [1x 2x] x1, 2 entries, 2 version bits, used 3 times", "declock+no-train [1s 2x] x1, 2 entries, 2 version bits, used 3 times",
	}
	list := Explorations(true, "")
	if testing.Short() {
		list = slices.DeleteFunc(list, func(x Exploration) bool { return len(x.Clients) > len("1s 2s") })
	}
	for _, x := range list {
		bounds := Bounds{States: maxStates}
		if slices.Contains(large, x.String()) {
			bounds.States = 2000
		}
		r := Explore(x, bounds)
		if e := (Explored{x, r}); r.Failure != nil {
			t.Error(&e)
		} else if !r.Exhaustive && bounds.States == maxStates {
			t.Errorf("%v: %v", x, r)
		}
	}
}

// Sleep sets leave out executions, and no end.
func TestSleepReachesTheSameEnds(t *testing.T) {
	all, some := 0, 0
	for _, name := range []string{
		"cql [1s 2x] x2, 2 entries, 27 version bits", "cql [1s 1x 2x] x1, 4 entries, 27 version bits", "cql [1s 2s 3x] x1, 4 entries, 27 version bits",
		"cql [1s 2x] x1, 4 entries, 27 version bits, one cancellation", "cql [1x 2s] x1, 4 entries, 27 version bits, one crash",
		"declock+no-train [1s 1x] x1, 4 entries, 27 version bits", "declock+no-train [1s 2x] x1, 4 entries, 27 version bits, one crash", "cql [1x 2s] x1, 4 entries, 27 version bits, one crash, news one by one", "mcs [1x 2x] x1, 4 entries, 27 version bits",
		"declock [1x] x1, 4 entries, 27 version bits, primary ends",
	} {
		x, err := ParseExploration(name)
		if err != nil {
			t.Fatal(err)
		}
		cfg := x.config()
		sleeping := explore.Explore(cfg, x.build)
		cfg.Sleep = false
		r := explore.Explore(cfg, x.build)
		if !r.Exhaustive || !sleeping.Exhaustive || !slices.Equal(r.Ends, sleeping.Ends) {
			t.Errorf("%v: %v; without sleep sets %v", x, sleeping, r)
		}
		all += r.Schedules + r.Pruned
		some += sleeping.Schedules + sleeping.Pruned
	}
	if t.Logf("%d executions, %d without sleep sets", some, all); some >= all {
		t.Error("nothing sleeps")
	}
}

// Data begins behind the lock, whatever its size is.
func TestDataBehindLock(t *testing.T) {
	for i := range baselineLocks {
		f := &baselineLocks[i]
		m, err := locks.Lookup(f.name)
		if err != nil {
			t.Fatal(err)
		}
		s, err := m.New(locks.Config{CNs: 1, Clients: 1, Tokens: true})
		if err != nil {
			t.Fatal(err)
		}
		if s.Layout() != f.layout {
			t.Errorf("%s: the registry says %+v, the list of baseline locks %+v", f.name, s.Layout(), f.layout)
		}
	}
	y := cql.Layout{CapacityBits: 2, VersionBits: 27}
	large := &baselineLock{layout: lock.Layout{Size: 100, Align: 8}}
	if got := large.room(y); got != 104 {
		t.Errorf("the data of a lock of 100 bytes begins at %d, want 104", got)
	}
	var none *baselineLock
	if got := none.room(y); got != y.Lock().Size {
		t.Errorf("the data of DecLock's lock begins at %d, want %d", got, y.Lock().Size)
	}
}
