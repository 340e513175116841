//go:build !shmonly

package etcd_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/declock/declock/coordinator/etcd"
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

// wantLost wants the error of a join that is lost with a restored backup: it is fenced, unless a request of it was under way when etcd was cut off.
func wantLost(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, fabric.ErrFenced) && !errors.Is(err, member.ErrUnreachable) {
		t.Errorf("a join that is lost: %v", err)
	}
}

// A backup of etcd that is restored takes numbers and epochs back. Members that are in it, and whose leases it has, are fenced like those that it does not
// have; a memory node joins again in an epoch behind its last.
func TestRestoredBackup(t *testing.T) {
	s := start(t)
	c := connect(t, options(s.Endpoint(), "test"))
	a := joinCN(t, c)
	backup := s.backUp(t)
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
	s.restore(t, backup)
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

// restore stops etcd, puts a backup in the place of its data, and starts it.
func (s *server) restore(t *testing.T, backup string) {
	t.Helper()
	s.swap(t, func(data string) error {
		return errors.Join(os.RemoveAll(data), os.CopyFS(data, os.DirFS(backup)))
	})
}

// restoreBusy is restore, but before nodes reach it, by a proxy, others write until it has passed all revisions that there ever were.
func (s *server) restoreBusy(t *testing.T, p *proxy, backup string) {
	t.Helper()
	p.cut()
	s.restore(t, backup)
	s.others(t, 100)
	p.restore()
}

// others have keys of their own in etcd, and change them n times.
func (s *server) others(t *testing.T, n int) {
	t.Helper()
	others := raw(t, s.Endpoint())
	for range n {
		if _, err := others.Put(bounded(t), "/others", "x"); err != nil {
			t.Fatal(err)
		}
	}
}

func (s *server) backUp(t *testing.T) string {
	t.Helper()
	backup := filepath.Join(t.TempDir(), "data")
	s.swap(t, func(data string) error { return os.CopyFS(backup, os.DirFS(data)) })
	return backup
}

// A backup is restored, and others have written so much by the time the nodes come back that no revision is lower than one before. All nodes that
// knew what is lost are fenced.
func TestRestoredBusyBackup(t *testing.T) {
	t.Parallel()
	s := start(t)
	p := startProxy(t, s.Endpoint())
	c := connect(t, options(p.endpoint(), "test"))
	mn, err := c.JoinMN(bounded(t), member.MN{ID: 0, Size: 8}, acknowledge)
	if err != nil {
		t.Fatal(err)
	}
	b := joinCN(t, c)
	backup := s.backUp(t)
	a := joinCN(t, c)
	for _, m := range []member.Member{mn, a, b} {
		etcd.AwaitAck(bounded(t), m)
	}
	s.restoreBusy(t, p, backup)
	for _, m := range []member.Member{mn, a, b} {
		fencedSoon(t, m)
	}
	again := joinCN(t, c)
	if st, _ := again.State(); st.Has(a.CN().Incarnation) || st.Has(b.CN().Incarnation) {
		t.Errorf("%+v", *st)
	}
}

// backedUp joins a node by a proxy, backs etcd up when it has the node's acknowledgement, and lets the node acknowledge nothing more while deaf is set.
func backedUp(t *testing.T, s *server, p *proxy) (a member.Member, deaf *atomic.Bool, backup string) {
	t.Helper()
	deaf = new(atomic.Bool)
	o := options(p.endpoint(), "test")
	o.TTL = time.Minute // its lease is not what these tests are about
	a, err := connect(t, o).JoinCN(bounded(t), "a", func(m member.Member) { acknowledgeUnless(m, deaf) })
	if err != nil {
		t.Fatal(err)
	}
	etcd.AwaitAck(bounded(t), a) // it is fenced if that is lost
	backup = s.backUp(t)
	await(t, a, "no other node", func(s *member.State) bool { return len(s.CNs) == 1 })
	deaf.Store(true)
	return a, deaf, backup
}

// A node that has seen a change and not acknowledged it when it is lost with a restored backup goes on, with what etcd has; and it
// acknowledges no change of etcd's that it has not seen.
func TestRestoredBeforeItIsAcknowledged(t *testing.T) {
	t.Parallel()
	s := start(t)
	p := startProxy(t, s.Endpoint())
	c := connect(t, options(p.endpoint(), "test"))
	a, deaf, backup := backedUp(t, s, p)
	lost := []<-chan error{joinCNInBackground(t, c, "lost"), joinCNInBackground(t, c, "lost")}
	await(t, a, "the changes that will be lost", func(s *member.State) bool { return len(s.CNs) == 3 })
	s.restoreBusy(t, p, backup)
	for _, l := range lost {
		wantLost(t, <-l)
	}
	next := joinCNInBackground(t, c, "next")
	isNext := func(n member.CN) bool { return n.Addr == "next" }
	st := await(t, a, "the next that joins", func(s *member.State) bool { return slices.ContainsFunc(s.CNs, isNext) })
	if len(st.CNs) != 2 || len(st.Fencing) != 0 {
		t.Errorf("it sees what is lost beside what is there: %+v", *st)
	}
	select {
	case err := <-next:
		t.Errorf("joined though a has not acknowledged it: %v; %+v", err, *st)
	case <-time.After(50 * time.Millisecond):
	}
	deaf.Store(false)
	a.Ack(st.Revision)
	if err := <-next; err != nil {
		t.Error(err)
	}
	if err := a.Err(); err != nil {
		t.Error(err)
	}
}

// A backup is restored, and others write until etcd has the very revision that a node has seen. The node goes on, with what etcd has.
func TestRestoredToTheSameRevision(t *testing.T) {
	t.Parallel()
	s := start(t)
	p := startProxy(t, s.Endpoint())
	c := connect(t, options(p.endpoint(), "test"))
	a, deaf, backup := backedUp(t, s, p)
	lost := joinInBackground(t, c, "lost", nil) // it acknowledges nothing: that would be a revision more, which a may have seen or not
	seen := await(t, a, "the change that will be lost", func(s *member.State) bool { return len(s.CNs) == 2 })
	p.cut()
	s.restore(t, backup)
	others := raw(t, s.Endpoint())
	for at := uint64(0); at < seen.Revision; {
		got, err := others.Put(bounded(t), "/others", "x")
		if err != nil {
			t.Fatal(err)
		}
		if at = uint64(got.Header.Revision); at > seen.Revision {
			t.Fatalf("etcd is at revision %d, a has seen %d", at, seen.Revision)
		}
	}
	p.restore()
	a.Ack(seen.Revision) // its answer shows that the history is another
	st := await(t, a, "nobody else", func(s *member.State) bool { return len(s.CNs) == 1 })
	if err := a.Err(); err != nil || st.Revision <= seen.Revision {
		t.Errorf("%+v after %+v: %v", *st, *seen, err)
	}
	deaf.Store(false)
	a.Ack(st.Revision)
	etcd.AwaitAck(bounded(t), a)
	wantLost(t, <-lost)
	joinCN(t, c)
	if err := a.Err(); err != nil {
		t.Error(err)
	}
}

// A node acknowledges a state that is lost with a restored backup. That is no acknowledgement of what has happened since in the etcd that was restored, whose
// revisions are lower.
func TestRestoredStateIsAcknowledged(t *testing.T) {
	t.Parallel()
	s := start(t)
	p := startProxy(t, s.Endpoint())
	c := connect(t, options(p.endpoint(), "test"))
	a, deaf, backup := backedUp(t, s, p)
	s.others(t, 100) // so that the revision is beyond what follows in the etcd that is restored
	lost := joinCNInBackground(t, c, "lost")
	seen := await(t, a, "the change that will be lost", func(s *member.State) bool { return len(s.CNs) == 2 })
	p.cut()
	s.restore(t, backup)
	direct := connect(t, options(s.Endpoint(), "test"))
	next := joinCNInBackground(t, direct, "next")
	w, err := direct.Watch(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	isNext := func(n member.CN) bool { return n.Addr == "next" }
	await(t, w, "the next that joins", func(s *member.State) bool { return slices.ContainsFunc(s.CNs, isNext) })
	s.others(t, 200)
	p.restore()
	a.Ack(seen.Revision)
	for sees := false; !sees; {
		st, changed := a.State()
		if sees = slices.ContainsFunc(st.CNs, isNext); sees && len(st.CNs) != 2 {
			t.Errorf("%+v", *st)
		}
		select {
		case err := <-next:
			t.Fatalf("joined, and a has not seen it: %v; %+v", err, *st)
		case <-changed:
		case <-time.After(50 * time.Millisecond):
		}
	}
	select {
	case err := <-next:
		t.Fatalf("joined, and a has not acknowledged it: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	deaf.Store(false)
	st, _ := a.State()
	a.Ack(st.Revision)
	if err := <-next; err != nil {
		t.Error(err)
	}
	wantLost(t, <-lost)
}

// A node waits to be admitted when its publication is lost with a restored backup. Acknowledgements of what happens then in the etcd that was
// restored do not admit it, though they are of later revisions.
func TestJoinThatIsLostIsNotAdmitted(t *testing.T) {
	t.Parallel()
	s := start(t)
	p := startProxy(t, s.Endpoint())
	o := options(p.endpoint(), "test")
	o.TTL = time.Minute // so that it is not a renewal that ends the join
	c := connect(t, o)
	var deaf atomic.Bool
	a, err := c.JoinCN(bounded(t), "a", func(m member.Member) { acknowledgeUnless(m, &deaf) })
	if err != nil {
		t.Fatal(err)
	}
	etcd.AwaitAck(bounded(t), a) // it is fenced if that is lost
	backup := s.backUp(t)
	await(t, a, "nobody else", func(s *member.State) bool { return len(s.CNs) == 1 })
	deaf.Store(true)
	s.others(t, 50) // room for what happens in the etcd that is restored before its revision is that of the publication
	lost := joinCNInBackground(t, c, "lost")
	await(t, a, "the join that will be lost", func(s *member.State) bool { return len(s.CNs) == 2 })
	kv := raw(t, s.Endpoint())
	for range 200 { // revisions that the watches see, and that are no change of the State
		if _, err := kv.Put(bounded(t), "/declock/test/strange", "x"); err != nil {
			t.Fatal(err)
		}
	}
	strange, err := kv.Get(bounded(t), "/declock/test/strange")
	if err != nil {
		t.Fatal(err)
	}
	etcd.AwaitRevision(bounded(t), a, strange.Header.Revision)
	p.cut()
	s.restore(t, backup)
	s.others(t, 120)
	next := joinCNInBackground(t, connect(t, options(s.Endpoint(), "test")), "next")
	w, err := connect(t, options(s.Endpoint(), "test")).Watch(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	await(t, w, "the next that joins", func(s *member.State) bool { return len(s.CNs) == 2 })
	s.others(t, 300)
	deaf.Store(false)
	st, _ := a.State()
	p.restore()
	a.Ack(st.Revision)
	if err := <-next; err != nil {
		t.Errorf("the join of the etcd that was restored: %v", err)
	}
	wantLost(t, <-lost)
}

// So are all when etcd has lost all its data.
func TestWipedEtcd(t *testing.T) {
	s := start(t)
	c := connect(t, options(s.Endpoint(), "test"))
	a := joinCN(t, c)
	s.swap(t, os.RemoveAll)
	fencedSoon(t, a)
	if b := joinCN(t, c); b.CN().ID != 1 || b.CN().Incarnation == a.CN().Incarnation {
		t.Errorf("%+v after %+v", b.CN(), a.CN())
	}
}
