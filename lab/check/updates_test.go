package check

import (
	"testing"

	"github.com/declock/declock/fabric/sim"
)

// DSLR's update locks and leases of several slots keep their promises while clients give up, crash, and are upgraded.
func TestUpdates(t *testing.T) {
	u := seedsOf(t, Updates, 60)
	if u.Grants < 3000 || u.Upgraded < 500 || u.Effects[sim.Kills] < 5 {
		t.Errorf("that is too little: %v", u)
	}
}

// Variants of the baseline locks that other classes do not draw keep the promises of a lock while clients give up.
func TestVariantLocks(t *testing.T) {
	u := seedsOf(t, Variants, 50)
	if u.Grants < 1500 {
		t.Errorf("%d operations: that is too little", u.Grants)
	}
}

// Every lock has programs with holders for update, if need be by lock.ForUpdate; counters are those of locks that count.
func TestParseUpdates(t *testing.T) {
	for program, good := range map[string]bool{
		"dslr [1s 2u 3g] x1, 4 entries, 27 version bits, one cancellation, counters to 2": true,
		"dslr:slots [1s 2x] x2, 4 entries, 27 version bits, counters to 3":                true,
		"cas [1s 2u] x1, 4 entries, 27 version bits":                                      true,
		"declock [1s 2g] x1, 4 entries, 27 version bits":                                  true,
		"cas [1s 2x] x1, 4 entries, 27 version bits, counters to 2":                       false,
		"dslr [1s 2x] x1, 4 entries, 27 version bits, counters to -2":                     false,
		"dslr [1s 2z] x1, 4 entries, 27 version bits":                                     false,
	} {
		if x, err := ParseExploration(program); (err == nil) != good {
			t.Errorf("%s: %v, %v", program, x, err)
		}
	}
}
