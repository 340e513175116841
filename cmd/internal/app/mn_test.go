package app

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/declock/declock/cmd/internal/command"
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
