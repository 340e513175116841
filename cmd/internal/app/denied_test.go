package app

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cmd/internal/scheme"
	"github.com/declock/declock/fabric/shm"
)

// A cluster of another user is not broken: no hint says to remove it, or that it has no memory node.
func TestClusterOfAnotherUser(t *testing.T) {
	denied := fmt.Errorf("open /dev/shm/declock-x/cluster: %w", fs.ErrPermission)
	for state, why := range map[string]error{scheme.Denied: denied, scheme.Broken: shm.ErrFormat} {
		var out bytes.Buffer
		writeCluster(&out, &clusterRow{Cluster: "shm:x", State: state, Error: why.Error()})
		if advised := strings.Contains(out.String(), "declock clean"); advised != (state == scheme.Broken) || !strings.Contains(out.String(), why.Error()) {
			t.Errorf("%s: %s", state, out.String())
		}
		if err := noMemory(scheme.SHM("x", ""), &scheme.Info{State: state, Broken: why}, nil); !errors.Is(err, why) {
			t.Error(err)
		}
	}
	if err := noMemory(scheme.SHM("x", ""), &scheme.Info{}, nil); exit.Of(err) != exit.NoCluster {
		t.Error(err)
	}
}
