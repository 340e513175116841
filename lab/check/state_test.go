package check

import (
	"slices"
	"testing"

	"github.com/declock/declock/lab/explore"
)

// audit explores a program by all that clients were ever told, and looks whether AppendState methods and Forget are right.
func audit(t *testing.T, name string) explore.Report {
	t.Helper()
	x, err := ParseExploration(name)
	if err != nil {
		t.Fatal(err)
	}
	cfg := x.config()
	cfg.Audit, cfg.MaxStates = true, 3000
	return explore.Explore(cfg, x.build)
}

// The AppendState methods leave nothing out that clients go by: of two histories that lead to equal states, the
// same choices lead to the same. And exploration by states reaches the same ends. (In these programs much of a state follows from the lock
// and other fields: a single field that is left out may go unnoticed. That audits object is shown by TestAuditObjects of lab/explore.)
func TestStatesLeaveNothingOut(t *testing.T) {
	exact, merged := 0, 0
	for _, name := range []string{
		"cql [1x 2s] x1, 4 entries, 27 version bits, one crash", "cql [1s 2x] x1, 4 entries, 27 version bits, one cancellation",
		"cql [1x 2x] x1, 2 entries, 2 version bits, used 3 times", "declock+no-train [1s 2x] x1, 4 entries, 27 version bits, one crash",
		"declock+no-train [1s 1x] x1, 4 entries, 27 version bits", "declock+no-train [1s 2x] x2, 2 entries, 27 version bits", "cql [1x 2x] x1, 4 entries, 27 version bits, one restart",
		"cql [1x 1x] x1, 4 entries, 27 version bits, one cancellation", "cql [1s 1x 2x] x1, 4 entries, 27 version bits, one crash",
		"declock+no-train [1x 2x] x1, 4 entries, 27 version bits, one restart, one crash",
		"declock [1s 2x 3x] x1, 8 entries, 27 version bits", "declock [1x 2x 3x] x1, 8 entries, 27 version bits, one cancellation",
		"declock [1x 2x 3x] x1, 8 entries, 27 version bits, a link cut both ways",
		"cql [1x 2r] x1, 4 entries, 27 version bits, primary ends", "declock [1x] x1, 4 entries, 27 version bits, primary given up",
	} {
		r := audit(t, name)
		if r.Audit != "" || r.Failure != nil {
			t.Errorf("%s: %v %s", name, r, r.Audit)
		}
		if !r.Exhaustive {
			continue
		}
		x, _ := ParseExploration(name)
		some := Explore(x, Bounds{})
		if !slices.Equal(r.Ends, some.Ends) {
			t.Errorf("%s: ends differ: %v, by all that was ever told %v", name, some, r)
		}
		exact += r.States
		merged += some.States
	}
	if t.Logf("%d states, %d by all that clients were ever told", merged, exact); merged >= exact {
		t.Error("nothing is forgotten")
	}
}
