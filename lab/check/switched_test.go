package check

import (
	"context"
	"testing"
)

// FissLock keeps the promises of a lock whatever its switch does to packets.
func TestSwitched(t *testing.T) {
	u, err := Faults(context.Background(), Options{Classes: []Class{Switched}, First: *flagFirst, Runs: 100, Keep: 1})
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
