//go:build !shmonly

package etcd_test

import (
	"context"
	"testing"
	"time"

	"github.com/declock/declock/coordinator/etcd"
	"github.com/declock/declock/fabric/member"
)

// Of the acknowledgements of a change, which all members write, memory nodes learn, and no compute node that has joined: else a change would cost the square of the members. What
// waits for them goes on all the same, also when the last memory node has gone, and when one is back.
func TestFewSeeAcknowledgements(t *testing.T) {
	s := start(t)
	c := connect(t, options(s.Endpoint(), "few"))
	watch, err := c.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	joinMN := func() member.Member {
		t.Helper()
		m, err := c.JoinMN(bounded(t), member.MN{ID: 0, Addr: "mn.example:1", Size: 1 << 20}, acknowledge)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Leave(context.Background()) })
		return m
	}
	// change has a node join, which all acknowledge, and crash, which all must acknowledge until it is forgotten.
	change := func(what string) {
		t.Helper()
		m := joinCN(t, c)
		etcd.Expire(c, m)
		await(t, watch, "a crashed node to be forgotten, "+what, func(st *member.State) bool { return len(st.CNs) == 3 && len(st.Fencing) == 0 })
	}
	all := func(nodes ...member.Member) (n int) {
		time.Sleep(50 * time.Millisecond) // what is watched has come
		for _, m := range nodes {
			for _, other := range nodes {
				if m != other && etcd.SeesAcks(m, other) {
					n++
				}
			}
		}
		return n
	}
	mn := joinMN()
	cns := []member.Member{joinCN(t, c), joinCN(t, c), joinCN(t, c)}
	change("with a memory node")
	change("once more")
	for ctx := bounded(t); !etcd.SeesAcks(mn, cns[0]) || !etcd.SeesAcks(mn, cns[1]) || !etcd.SeesAcks(mn, cns[2]); time.Sleep(time.Millisecond) {
		if ctx.Err() != nil {
			t.Fatal("the memory node does not see the acknowledgements of the last change")
		}
	}
	if n := all(cns...); n > 0 {
		t.Errorf("compute nodes see %d acknowledgements of the last change", n)
	}
	etcd.Expire(c, mn)
	change("without memory node")
	if n := all(cns...); n == 0 {
		t.Error("without memory node no compute node sees acknowledgements")
	}
	joinMN()
	change("with a memory node again")
	change("once more")
	if n := all(cns...); n > 0 {
		t.Errorf("compute nodes see %d acknowledgements of the last change", n)
	}
}
