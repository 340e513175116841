package tcp

import (
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peertest"
	"github.com/declock/declock/fabric/member"
)

// What a Port says of a group is what the coordinator has, also how many copies in sync there are to be, and which was the last epoch of the term before: operations go by both.
func TestReplicasAreThoseOfTheGroup(t *testing.T) {
	g := newGroupWith(t, func(o *Options) { o.MinInSync = 2 }, func(*Options) {}, func(*Options) {})
	said := func() fabric.Replicas {
		var r fabric.Replicas
		peertest.Await(t, "the Port says what the group is", func() bool {
			x := g.now()
			want := fabric.Replicas{Epoch: x.Epoch, Before: x.Before, Term: x.Term, MinInSync: 2, Primary: x.Replicas[0].Number, N: len(x.Replicas) - 1}
			for i, b := range x.Replicas[1:] {
				want.Backups[i] = fabric.Backup{Host: uint64(b.Host), Number: b.Number, Synced: b.Phase == member.InSync}
			}
			var err error
			r, err = g.port.(fabric.Replicator).Replicas(0)
			return err == nil && r == want
		})
		return r
	}
	before := said()
	g.Promote()
	g.usable(g.port)
	if now := said(); now.Before < before.Epoch || now.Before >= now.Epoch || now.Term != before.Term+1 || now.Primary != before.Backups[0].Number {
		t.Errorf("%+v after %+v", now, before)
	}
}
