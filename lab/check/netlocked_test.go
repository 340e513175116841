package check

import (
	"testing"
)

// NetLock keeps the promises of a lock whatever its switch does to packets, with queues so short that the server keeps requests.
func TestNetLocked(t *testing.T) {
	u := seedsOf(t, NetLocked, 100)
	if u.Grants < 3000 {
		t.Errorf("%d operations: that is too little", u.Grants)
	}
}
