//go:build !shmonly

package etcd_test

import (
	"context"
	"testing"

	"github.com/declock/declock/coordinator/etcd"
	"github.com/declock/declock/fabric/member"
)

// A memory node starts by a view that does not show yet that its number had another incarnation, which has come and gone: its epoch is a new one
// all the same.
func TestAnEpochIsNeverGivenOutTwice(t *testing.T) {
	s := start(t)
	c := connect(t, options(s.Endpoint(), "epochs"))
	joinMN := func() member.Member {
		m, err := c.JoinMN(bounded(t), member.MN{ID: 7, Size: 1 << 20, Addr: "mn.example:1"}, acknowledge)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	leave := func(m member.Member) {
		if err := m.Leave(bounded(t)); err != nil {
			t.Fatal(err)
		}
		w, err := c.Watch(bounded(t))
		if err != nil {
			t.Fatal(err)
		}
		await(t, w, "the end of the memory node", func(s *member.State) bool { return len(s.MNs) == 0 })
	}
	joinCN(t, c) // a member that forgets those that have left
	leave(joinMN())
	var between uint32
	behind, err := etcd.JoinMNBehind(c, bounded(t), 7, acknowledge, func() {
		m := joinMN()
		between = m.MN().Epoch
		leave(m)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer behind.Leave(context.Background())
	if e := behind.MN().Epoch; e <= between {
		t.Errorf("epoch %d, after epoch %d", e, between)
	}
}
