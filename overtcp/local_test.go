package overtcp_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// Where compute nodes execute operations on the memory of memory nodes of their machine, failovers are as over the loopback: a killed primary is replaced, and one
// that was deposed while it stood still is not believed, though its memory could be read and changed all the time.

const lent = "&local=true"

func TestLocalStoreFailover(t *testing.T) {
	t.Parallel()
	killed(t, false, lent)
}

func TestLocalTreeFailover(t *testing.T) {
	t.Parallel()
	killed(t, true, lent)
}

func TestLocalStoreFailoverStopped(t *testing.T) {
	t.Parallel()
	stopped(t, false, 0, lent)
}

func TestLocalTreeFailoverStopped(t *testing.T) {
	t.Parallel()
	stopped(t, true, 0, lent)
}

// The tests above would say nothing if memory were not lent.
func TestLocalReplicas(t *testing.T) {
	t.Parallel()
	x := newReplicasOn(t, nil, false, lent)
	for i, p := range newStoreLoad(x).processes {
		maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", p.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(maps), "memfd:declock-mn"); n < len(x.mns) {
			t.Errorf("client %d has the memory of %d numbers, want %d", i, n, len(x.mns))
		}
	}
}
