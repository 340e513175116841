package check

import (
	"context"
	"errors"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/internal/stats"
)

var (
	flagSeeds    = flag.Int("seeds", 50, "seeds of each class")
	flagFirst    = flag.Uint64("first", 0, "the first seed")
	flagClass    = flag.String("class", "", "classes, with commas")
	flagKeep     = flag.Int("keep", 1, "failures to collect")
	flagScenario = flag.String("scenario", "", "a scenario line to run")
)

func TestSeeds(t *testing.T) {
	classes := Classes()
	if *flagClass != "" {
		var err error
		if classes, err = ParseClasses(*flagClass); err != nil {
			t.Fatal(err)
		}
	}
	var effects sim.FaultStats
	all := 0
	for _, c := range classes {
		t.Run(string(c), func(t *testing.T) {
			begin := time.Now()
			runs := *flagSeeds
			if strings.HasPrefix(string(c), "store") || strings.HasPrefix(string(c), "tree") {
				runs = (runs + 2) / 3 // to judge histories takes longer
			}
			u, err := Faults(context.Background(), Options{Classes: []Class{c}, First: *flagFirst, Runs: runs, Keep: *flagKeep})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%v, %v", u, time.Since(begin).Round(time.Millisecond))
			for _, f := range u.Failures {
				t.Errorf("%v", f)
			}
			all += u.Runs
			stats.Add(&effects, &u.Effects)
			if want, ok := gone[c]; ok && runs > 20 && [2]bool{u.Evicted > 0, u.Expired > 0} != want {
				t.Errorf("%d objects evicted, %d expired", u.Evicted, u.Expired)
			}
		})
	}
	if *flagClass != "" || *flagSeeds < 50 {
		return
	}
	for i, n := range effects { // every kind of fault is drawn, and hits something
		if n == 0 {
			t.Errorf("no %v in %d runs", sim.FaultEffect(i), all)
		}
	}
}

// gone is whether objects are evicted and expire: where they are meant to, and nowhere else.
var gone = map[Class][2]bool{Store: {false, false}, StoreExpiry: {false, true}, StoreEvict: {true, true}}

func TestScenario(t *testing.T) {
	if *flagScenario == "" {
		t.Skip("no -scenario")
	}
	s, err := ParseScenario(*flagScenario)
	if err != nil {
		t.Fatal(err)
	}
	_, f, err := Judge(s, false)
	if err != nil {
		t.Fatal(err)
	}
	if f != nil {
		t.Errorf("%v", f)
	}
}

// lines returns the lines of a file of testdata that are no comments.
func lines(t *testing.T, name string) (list []string) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(string(text)) {
		if l = strings.TrimSpace(l); l != "" && l[0] != '#' {
			list = append(list, l)
		}
	}
	return list
}

func TestRegressions(t *testing.T) {
	for _, l := range lines(t, "regressions.txt") {
		s, err := ParseScenario(l)
		if err != nil {
			t.Fatal(err)
		}
		_, f, err := Judge(s, false)
		if err != nil {
			t.Fatal(err)
		}
		if f != nil {
			t.Errorf("%v", f)
		}
	}
}

// What is known to fail fails as it is known to. A line that does not fail any
// more belongs to regressions.txt.
func TestKnownBugs(t *testing.T) {
	for _, l := range lines(t, "known.txt") {
		judge, line, _ := strings.Cut(l, ": ")
		s, err := ParseScenario(line)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Run(s)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case !r.Bad():
			t.Logf("mended, move it to regressions.txt: %s", l)
		case r.Violations[0].Judge != judge:
			t.Errorf("%s: objects now, not %s: %v\n%s", r.Violations[0].Judge, judge, r.Violations[0], line)
		}
	}
}

// A scenario is its line, and a run is its scenario.
func TestScenariosRepeat(t *testing.T) {
	for seed := range uint64(40) {
		s := Draw(seed, Classes()...)
		back, err := ParseScenario(s.String())
		if err != nil || back.String() != s.String() {
			t.Fatalf("%s\nis read as\n%s\n%v", s, back, err)
		}
		a, err1 := Run(s)
		b, err2 := run(back, true)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		if a.Hash != b.Hash || a.Events != b.Events {
			t.Errorf("two histories: %#x of %d events, %#x of %d: %s", a.Hash, a.Events, b.Hash, b.Events, s)
		}
	}
}

func TestBadScenarios(t *testing.T) {
	good := Draw(1, Locks).String()
	for _, l := range []string{
		"", "cns", "colour=red", strings.Replace(good, "policy=", "policy=x", 1), good + " cns=0", good + " cap=99",
		good + " locks=x", good + ` plan="5 kill cn9"`, good + ` plan="5 eat cn1"`, good + ` plan="5 kill`, good + " late=never",
	} {
		if s, err := ParseScenario(l); !errors.Is(err, ErrScenario) {
			t.Errorf("%q: %v, %v", l, s, err)
		}
	}
	if _, err := ParseClasses("locks,nonsense"); !errors.Is(err, ErrScenario) {
		t.Error(err)
	}
	if c, err := ParseClasses(""); err != nil || !slices.Equal(c, Classes()) {
		t.Error(c, err)
	}
}

// A failure is reported with all that is needed, and shrunk. (No client can be done that soon after the faults.)
func TestFailureReport(t *testing.T) {
	s := Draw(3, Crash)
	s.PatienceNs, s.Rounds = 1, 30
	_, f, err := Judge(s, true)
	if err != nil {
		t.Fatal(err)
	}
	if f == nil {
		t.Fatal("all are done in a nanosecond")
	}
	text := f.String()
	for _, want := range []string{"FAILED: seed 3", "declock-lab sim faults --scenario '", "the last operations", "history hash", "* "} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in the report:\n%s", want, text)
		}
	}
	if f.Shrunk.Scenario.Rounds >= s.Rounds || !f.Shrunk.Bad() {
		t.Errorf("not shrunk: %s", f.Shrunk.Scenario)
	}
}

// seedsOf runs seeds of a class, of which none may fail.
func seedsOf(t *testing.T, class Class, runs int) *Summary {
	t.Helper()
	u, err := Faults(context.Background(), Options{Classes: []Class{class}, First: *flagFirst, Runs: runs, Keep: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range u.Failures {
		t.Errorf("%v", f)
	}
	return u
}

// hasEffects judges that faults have done something.
func hasEffects(t *testing.T, u *Summary, effects ...sim.FaultEffect) {
	t.Helper()
	for _, e := range effects {
		if u.Effects[e] == 0 {
			t.Errorf("no %v in %d runs", e, u.Runs)
		}
	}
}
