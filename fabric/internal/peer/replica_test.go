package peer

import (
	"context"
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

var errRefused = errors.New("refused")

// A refusing is a coordinator that makes no change of a group, and counts what it is asked for.
type refusing struct {
	member.Service
	asked int
}

func (s *refusing) Change(context.Context, member.Change) error {
	s.asked++
	return errRefused
}

// newReplicated returns a node that has heard of number 0 in epoch 2, with a backup that is in sync, before its lanes of epoch 1 have ended; and the number and its backup as they are in use in each
// epoch.
func newReplicated(t *testing.T) (n *Node, mem, backup map[uint32]*Remote) {
	n = &Node{Config: Config{Members: &refusing{}}}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	n.Ctx, n.Work = ctx, ctx
	mns := []member.MN{{ID: 0, Incarnation: 10}, {ID: 1, Incarnation: 11}}
	g := &member.Group{Epoch: 2, Term: 2, Serving: true, Replicas: []member.Replica{{Host: 10, Number: 1, Phase: member.InSync}, {Host: 11, ID: 1, Number: 2, Phase: member.InSync}}, Changed: 7}
	n.Take(&member.State{Revision: 9, MNs: mns, Groups: []*member.Group{g}})
	mem, backup = map[uint32]*Remote{}, map[uint32]*Remote{}
	var lanes []*Remote
	for epoch := uint32(1); epoch <= 2; epoch++ {
		mem[epoch] = &Remote{Node: n, Served: Served{MN: mns[0], Term: epoch}}
		backup[epoch] = &Remote{Node: n, Served: Served{MN: mns[1], Term: epoch, Backup: 2}}
		backup[epoch].MN.ID = 0
		for _, r := range []*Remote{mem[epoch], backup[epoch]} {
			r.MN.Epoch = epoch
			r.Up.Store(true)
		}
		lanes = append(lanes, backup[epoch])
	}
	n.backups.Store(&lanes)
	return n, mem, backup
}

// A Port that is attached to an epoch gets no backups of the next: it would write to those that there are then, or to none, and go on at the primary of before.
func TestBackupsOfTheNextEpoch(t *testing.T) {
	n, mem, _ := newReplicated(t)
	p := &Port{n: n}
	p.remote[0] = mem[1]
	if g, err := p.Replicas(0); !errors.Is(err, fabric.ErrStaleEpoch) {
		t.Errorf("in the epoch before: %+v, %v", g, err)
	}
	p.remote[0] = mem[2]
	if g, err := p.Replicas(0); err != nil || g.N != 1 || g.Backups[0].Number != 2 || g.Epoch != 2 {
		t.Errorf("%+v, %v", g, err)
	}
}

// Rule 1. A chain of one epoch goes to a backup by no lane of another, though the replica is the same: what was begun before a failover would be written after it.
func TestChainToABackupOfAnotherEpoch(t *testing.T) {
	n, mem, backup := newReplicated(t)
	for _, x := range []struct {
		attached, begun uint32
		lanes           []*Remote
		want            *Remote
	}{
		{1, 1, []*Remote{backup[2]}, nil},
		{1, 2, []*Remote{backup[2]}, nil},
		{2, 1, []*Remote{backup[1]}, nil},
		{2, 1, []*Remote{backup[2]}, nil},
		{2, 2, []*Remote{backup[1], backup[2]}, backup[2]},
	} {
		n.backups.Store(&x.lanes)
		p := &Port{n: n}
		p.remote[0] = mem[x.attached]
		g := fabric.Replicas{Epoch: x.begun, N: 1}
		g.Backups[0].Number = 2
		if r, err := p.reachBackup(&g, 0); r != x.want || (r == nil) != errors.Is(err, fabric.ErrStaleEpoch) {
			t.Errorf("a Port in epoch %d, a chain of epoch %d: %v", x.attached, x.begun, err)
		}
	}
}

// What a memory node has answered counts no more when its node has heard of another primary, whose lease ends later or not.
func TestAnswerOfADeposedPrimary(t *testing.T) {
	_, mem, _ := newReplicated(t)
	r, ops := mem[1], []fabric.Op{fabric.Load(fabric.At(0, 64))}
	if err := r.Counts(ops, nil); err != nil {
		t.Error(err)
	}
	r.Up.Store(false)
	if err := r.Counts(ops, nil); !errors.Is(err, fabric.ErrUnknownOutcome) {
		t.Errorf("an answer of before: %v", err)
	}
	backup, store := &Remote{Node: r.Node, Served: r.Served}, []fabric.Op{fabric.Store(fabric.At(0, 64), 1)}
	backup.Backup = 2
	if err := backup.Counts(ops, nil); !errors.Is(err, fabric.ErrUnknownOutcome) {
		t.Errorf("what a backup of before has read: %v", err)
	}
	if err := backup.Counts(store, nil); err != nil {
		t.Errorf("what a backup of before has written: %v", err)
	}
	if err := backup.Counts(store, fabric.ErrFenced); !errors.Is(err, fabric.ErrUnknownOutcome) {
		t.Errorf("the same without a lease: %v", err)
	}
	if err := r.Counts(store, nil); !errors.Is(err, fabric.ErrUnknownOutcome) {
		t.Errorf("what the primary of before has written: %v", err)
	}
	if r.Term = 0; r.Counts(ops, nil) != nil {
		t.Error("an answer of a number that is not replicated")
	}
}

// Rule 17. A backup is not said to be dropped because its primary has ended: it is in its group yet, and serves if the primary does not come back.
func TestDropWhileThePrimaryIsDown(t *testing.T) {
	n, _, _ := newReplicated(t)
	st, _ := n.State()
	down := *st
	down.Revision, down.MNs = st.Revision+1, st.MNs[1:]
	n.Take(&down)
	g := fabric.Replicas{Epoch: 2, N: 1}
	g.Backups[0].Number = 2
	if err := n.dropUntilOver(&g, 0); err == nil {
		t.Error("it is dropped")
	}
}

// An operation of one epoch drops no backup in another: that has all which is acknowledged there.
func TestDropInAnotherEpoch(t *testing.T) {
	n, _, _ := newReplicated(t)
	g := fabric.Replicas{Epoch: 1, N: 1}
	g.Backups[0].Number = 2
	if err := n.dropBackup(n.Work, &g, 0); !errors.Is(err, fabric.ErrStaleEpoch) {
		t.Error(err)
	}
	if asked := n.Members.(*refusing).asked; asked > 0 {
		t.Errorf("the coordinator is asked %d times", asked)
	}
}

// Rule 14. What has been copied to a backup in one epoch does not make it in sync in another.
func TestCopiedInAnotherEpoch(t *testing.T) {
	n, _, _ := newReplicated(t)
	st, _ := n.State()
	st.Groups[0].Replicas[1].Phase = member.Copying
	for epoch := uint32(1); epoch <= 2; epoch++ {
		c := newBackup{number: 2, epoch: epoch, host: 11}
		if g, err := c.in(st); (g != nil) != (epoch == 2) || epoch != 2 && !errors.Is(err, member.ErrChanged) {
			t.Errorf("copied in epoch %d: %v", epoch, err)
		}
	}
}
