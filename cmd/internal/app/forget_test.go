package app

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cmd/internal/scheme"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

// A describer is a cluster that is only looked at, and of which memory nodes are forgotten.
type describer struct {
	scheme.Cluster
	info      *scheme.Info
	needed    fabric.MemID // of a number that nothing serves
	forgotten []fabric.MemID
}

func (d *describer) Address() string                                { return "tcp://x" }
func (d *describer) Describe(context.Context) (*scheme.Info, error) { return d.info, nil }

func (d *describer) Forget(_ context.Context, id fabric.MemID) error {
	if id == d.needed {
		return fmt.Errorf("%w: nothing serves mn0", member.ErrReplica)
	}
	d.forgotten = append(d.forgotten, id)
	return nil
}

// A memory node that has gone, and is listed as the host of copies only, is forgotten; one that may have the only copy of a number is not, and the error says what gives that up.
func TestForgetAHostOfCopies(t *testing.T) {
	copies := func(nodes ...string) (list []scheme.ReplicaInfo) {
		for i, node := range nodes {
			list = append(list, scheme.ReplicaInfo{Node: node, Alive: i == 0, Phase: member.InSync.String()})
		}
		return list
	}
	d := &describer{needed: 3, info: &scheme.Info{
		Memory: []scheme.MemoryInfo{{Node: "mn0", Alive: true}, {Node: "mn2", Alive: true}},
		Groups: []scheme.GroupInfo{{Number: "mn0", Copies: copies("mn0", "mn1")}, {Number: "mn1", Copies: copies("mn2", "mn3")}},
	}}
	for id, want := range map[fabric.MemID]exit.Code{0: exit.InUse, 1: exit.OK, 3: exit.InUse, 4: exit.NotFound} {
		var out bytes.Buffer
		err := forget(t.Context(), &command.Env{Stdout: &out}, d, d, id, false)
		if exit.Of(err) != want || (err == nil) != strings.Contains(out.String(), "Other copies are made") {
			t.Errorf("%v: %v, %s", id, err, out.String())
		}
	}
	if len(d.forgotten) != 1 || d.forgotten[0] != 1 {
		t.Errorf("forgotten are %v", d.forgotten)
	}
}
