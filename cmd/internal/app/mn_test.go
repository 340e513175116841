package app

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/control"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cmd/internal/scheme"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

// A ledgerMover makes changes in a ledger.
type ledgerMover struct{ l *member.Ledger }

func (x ledgerMover) Move(_ context.Context, next func(*member.State) (member.Step, error), show func(member.Step, *member.State)) error {
	for {
		s := x.l.State()
		step, err := next(s)
		if err != nil || step.What == "" {
			return err
		}
		show(step, s)
		if err := x.l.Change(*step.Change); err != nil {
			return err
		}
	}
}

// A number whose copies are all lost is given up once, also if no memory node that could take it up is there, and the command says so then only.
func TestAbandonCommand(t *testing.T) {
	for _, alive := range []bool{false, true} {
		l := member.NewLedger(4)
		e, err := l.ReserveMN(member.MN{ID: 1, Size: 1 << 20, Replicas: 2})
		if err != nil {
			t.Fatal(err)
		}
		l.Join(e)
		if !alive {
			l.End(e, member.Died)
		}
		var out bytes.Buffer
		m := &mover{env: &command.Env{Stdout: &out}, force: true}
		err = m.abandon(t.Context(), ledgerMover{l}, fabric.MemID(1))
		want := "give mn1 up\nmn1 begins anew, when a memory node joins with this number\n"
		if alive {
			want = "give mn1 up\n"
		}
		if errors.Is(err, member.ErrReplica) != alive || (err == nil) == alive || out.String() != want {
			t.Errorf("alive %v: %v, printed %q", alive, err, out.String())
		}
	}
}

// The status of a number without a copy says what gives it up, and not that too few copies are in sync. What is not said whose copy counts is refused as input.
func TestNoCopyIsLeft(t *testing.T) {
	gone := []scheme.ReplicaInfo{{Node: "mn1", Phase: member.InSync.String()}}
	var out bytes.Buffer
	writeGroups(&out, []scheme.GroupInfo{{Number: "mn1", Replicas: 2, MinInSync: 2, Term: 1, Copies: gone}}, nil)
	if text := out.String(); !strings.Contains(text, "mn1 is not served: no copy in sync is up") || !strings.Contains(text, "declock mn abandon --force mn1") || strings.Contains(text, "min-in-sync") {
		t.Error(text)
	}
	if err := (&mover{}).adopt(t.Context(), ledgerMover{member.NewLedger(4)}, 1); exit.Of(err) != exit.Usage {
		t.Errorf("adopt without --from: %v", err)
	}
}

// The status shows how far the copy to a new backup is.
func TestCopyInStatus(t *testing.T) {
	groups := []scheme.GroupInfo{{Number: "mn1", Replicas: 2, Serving: true, Term: 1, Copies: []scheme.ReplicaInfo{
		{Node: "mn1", Alive: true, Phase: member.InSync.String()}, {Node: "mn2", Alive: true, Phase: member.Copying.String()}}}}
	nodes := []computeRow{{ComputeInfo: scheme.ComputeInfo{Node: "cn0"}, Status: &control.Status{Copying: &control.Copying{Number: "mn1", Done: 30, All: 120}}}, {}}
	var out bytes.Buffer
	writeGroups(&out, groups, nodes)
	for _, want := range []string{"mn2 copying", "1 of 2", "cn0 has copied 30 of 120 buckets of mn1 (25%)"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
