package etcd_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

// swap stops etcd, and starts it again with what change makes of its data.
func (s *server) swap(t *testing.T, change func(data string) error) {
	t.Helper()
	s.Close()
	if err := change(filepath.Join(s.dir, "data")); err != nil {
		t.Fatal(err)
	}
	s.start(t)
}

// fencedSoon waits until a membership has ended.
func fencedSoon(t *testing.T, m member.Member) {
	t.Helper()
	select {
	case <-m.Done():
	case <-time.After(time.Minute):
		t.Fatal("the membership goes on")
	}
	if err := m.Err(); !errors.Is(err, fabric.ErrFenced) {
		t.Errorf("Err: %v", err)
	}
}

// A backup of etcd that is restored takes numbers and epochs back. Members that are in it, and whose leases it has, are fenced like those that it does not
// have; a memory node joins again in an epoch behind its last.
func TestRestoredBackup(t *testing.T) {
	s := start(t)
	c := connect(t, options(s.Endpoint(), "test"))
	a := joinCN(t, c)
	backup := filepath.Join(t.TempDir(), "data")
	s.swap(t, func(data string) error { return os.CopyFS(backup, os.DirFS(data)) })
	b := joinCN(t, c)
	var mn member.Member
	for range 3 {
		var err error
		if mn, err = c.JoinMN(bounded(t), member.MN{ID: 7, Size: 8}, acknowledge); err != nil {
			t.Fatal(err)
		}
		if err := mn.Leave(bounded(t)); err != nil {
			t.Fatal(err)
		}
	}
	await(t, a, "b and a memory node that is down", func(s *member.State) bool { return len(s.CNs) == 2 && len(s.Down) == 1 })
	s.swap(t, func(data string) error {
		return errors.Join(os.RemoveAll(data), os.CopyFS(data, os.DirFS(backup)))
	})
	for _, m := range []member.Member{a, b} {
		fencedSoon(t, m)
	}
	again, err := c.JoinMN(bounded(t), mn.MN(), acknowledge)
	if err != nil {
		t.Fatal(err)
	}
	if again.MN().Epoch != mn.MN().Epoch+1 {
		t.Errorf("%+v after %+v", again.MN(), mn.MN())
	}
}

// So are all when etcd has lost all its data.
func TestWipedEtcd(t *testing.T) {
	s := start(t)
	c := connect(t, options(s.Endpoint(), "test"))
	a := joinCN(t, c)
	s.swap(t, os.RemoveAll)
	fencedSoon(t, a)
	if b := joinCN(t, c); b.CN().ID != 1 || b.CN().Life == a.CN().Life {
		t.Errorf("%+v after %+v", b.CN(), a.CN())
	}
}
