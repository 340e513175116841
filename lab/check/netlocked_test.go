package check

import (
	"context"
	"testing"
)

// NetLock keeps the promises of a lock whatever its switch does to packets, with queues so short that the server keeps requests.
func TestNetLocked(t *testing.T) {
	u, err := Faults(context.Background(), Options{Classes: []Class{NetLocked}, First: *flagFirst, Runs: 100, Keep: 1})
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
