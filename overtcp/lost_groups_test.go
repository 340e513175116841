package overtcp_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/declock/declock"
	"github.com/declock/declock/fabric/member"
)

// etcd loses all its data after a failover. Each number is served by the memory node that served it, in the same term, with all that its store had; tokens grow.
func TestReplicatedEtcdLosesItsData(t *testing.T) {
	t.Parallel()
	x := newReplicas(t)
	c, s := open(t, x.address)
	locks, err := c.Locks(t.Context(), "l", 3)
	if err != nil {
		t.Fatal(err)
	}
	var stores [failoverNumbers]*declock.Store
	for number := range stores {
		if stores[number], err = failoverStore(t.Context(), c, 0, number); err != nil {
			t.Fatal(err)
		}
	}
	set := func(key string) {
		t.Helper()
		for number, st := range stores {
			if err := st.Set(t.Context(), []byte(key), fmt.Append(nil, key, number), declock.SetOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	set("before")
	kill(t, x.mns[0])
	set("after") // at those that serve now
	x.start(0)
	x.whole()
	var tokens [3]uint64
	for i := range tokens {
		g, err := s.Lock(t.Context(), locks.At(i))
		if err != nil {
			t.Fatal(err)
		}
		tokens[i] = uint64(g.Token())
		if err := g.Unlock(); err != nil {
			t.Fatal(err)
		}
	}
	set("last")
	before := x.whole()

	kill(t, x.etcd)
	if err := os.RemoveAll(filepath.Join(x.dir, "data")); err != nil {
		t.Fatal(err)
	}
	x.etcd = startEtcd(t, x.dir)
	after := x.await("all numbers are served", func(s *member.State) bool {
		for _, g := range s.Groups {
			if !g.Serving {
				return false
			}
		}
		return len(s.Groups) == len(x.mns) && len(s.Waiting) == 0
	})
	for i, g := range after.Groups {
		if was := before.Groups[i]; g.Term != was.Term || g.Origin != was.Origin || g.Replicas[0].ID != was.Replicas[0].ID {
			t.Errorf("%+v, and before etcd lost its data %+v", *g, *was)
		}
	}
	c, s = open(t, x.address)
	for number := range stores {
		st, err := failoverStore(t.Context(), c, 0, number)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"before", "after", "last"} {
			if got, err := st.Get(t.Context(), []byte(key), nil); err != nil || string(got) != fmt.Sprint(key, number) {
				t.Errorf("%s on number %d is %q, %v", key, number, got, err)
			}
		}
	}
	if locks, err = c.Locks(t.Context(), "l", 3); err != nil {
		t.Fatal(err)
	}
	for i, was := range tokens {
		if g, err := s.Lock(t.Context(), locks.At(i)); err != nil || uint64(g.Token()) <= was {
			t.Errorf("token %#x after %#x, %v", uint64(g.Token()), was, err)
		}
	}
	x.whole() // copies are made again
}
