package scheme

import (
	"fmt"
	"io/fs"
	"testing"

	"github.com/declock/declock/fabric/member"
	"github.com/declock/declock/fabric/shm"
)

// A memory node that the cluster has had and nobody runs is shown, and the cluster is not whole.
func TestMemoryNodeThatIsDownIsShown(t *testing.T) {
	info, err := describeState("tcp://x/y", &member.State{Revision: 9, MNs: []member.MN{{ID: 0, Size: 4096, Epoch: 2}}, Down: []member.MN{{ID: 1, Epoch: 5}}})
	if err != nil {
		t.Fatal(err)
	}
	if len(info.Memory) != 2 || !info.Memory[0].Alive || info.Memory[1].Alive || info.Memory[1].Node != "mn1" || info.Memory[1].Epoch != 5 {
		t.Errorf("memory nodes are %+v", info.Memory)
	}
	if info.State != "partial" {
		t.Errorf("the cluster is %q", info.State)
	}
}

// Files that this user may not open are not broken.
func TestClusterOfAnotherUserIsNotBroken(t *testing.T) {
	for why, want := range map[error]string{fmt.Errorf("open x: %w", fs.ErrPermission): Denied, shm.ErrForeign: Denied, shm.ErrFormat: Broken} {
		if got := shmState(&shm.ClusterInfo{Broken: why}); got != want {
			t.Errorf("%v: %q", why, got)
		}
	}
}
