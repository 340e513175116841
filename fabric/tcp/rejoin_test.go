//go:build linux

package tcp

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/declock/declock/coordinator/coordtest"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peer"
	"github.com/declock/declock/fabric/member"
)

// A replaceable coordinator may lose all that it knows: another one takes its place.
type replaceable struct{ *coordtest.Replaceable }

func newReplaceable() *replaceable { return &replaceable{coordtest.NewReplaceable(fabric.MaxCN)} }

func (r *replaceable) options(t *testing.T) Options {
	o := testOptions(t, nil)
	o.Members = r
	return o
}

func (r *replaceable) serve(t *testing.T, o Options) *MemoryServer {
	t.Helper()
	s, err := Serve(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func (r *replaceable) join(t *testing.T) *node {
	t.Helper()
	n, err := Join(context.Background(), r.options(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n.(*node)
}

// back waits until a memory node serves in a later epoch.
func back(t *testing.T, s *MemoryServer, epoch uint32) {
	t.Helper()
	await(t, "the memory node has joined again", func() bool { return s.Away() == nil && s.Epoch() > epoch })
}

// word is where the tests have something in memory.
var word = fabric.At(0, 64)

// A memory node that the cluster has given up, as one that was stopped for longer than its lease, joins again with its memory. It
// executes nothing of before in the new epoch.
func TestMemoryNodeJoinsAgainWithItsMemory(t *testing.T) {
	r := newReplaceable()
	o := r.options(t)
	o.Size = 1 << 16
	s, n := r.serve(t, o), r.join(t)
	p := open(t, n)
	do(t, p, fabric.FAA(word, 7))
	for range 3 {
		was := s.Member()
		release := r.Hold()
		conn := s.connOf(t, laneKey{n.Own.Incarnation, 0})
		r.Now().Kill(was.Incarnation)
		await(t, "it is away", func() bool { return s.Away() != nil })
		if !conn.isCut.Load() {
			t.Error("a connection of before is still served")
		}
		if err := p.Do([]fabric.Op{fabric.FAA(word, 1000)}); err == nil {
			t.Error("an operation on a memory node that is no member")
		}
		release()
		back(t, s, was.Epoch)
		if s.Epoch() != was.Epoch+1 {
			t.Errorf("epoch %d after %d", s.Epoch(), was.Epoch)
		}
		await(t, "the compute node has found out", func() bool {
			m := n.Memory()
			return len(m) == 1 && m[0].Epoch == s.Epoch()
		})
		await(t, "a Port of before is told so", func() bool { // down, as long as the node is not done with the news
			err := p.Do([]fabric.Op{fabric.FAA(word, 1000)})
			if !errors.Is(err, fabric.ErrStaleEpoch) && !errors.Is(err, fabric.ErrNodeDown) {
				t.Errorf("a Port of before: %v", err)
			}
			return errors.Is(err, fabric.ErrStaleEpoch)
		})
		await(t, "the memory can be reached", func() bool { return p.Reattach(0, s.Epoch()) == nil && p.Do([]fabric.Op{fabric.FAA(word, 1)}) == nil })
	}
	if got := s.Word(64).Load(); got != 10 {
		t.Errorf("the word is %d: 7, and once 1 in each epoch, is 10", got)
	}
	select {
	case <-s.Done():
		t.Errorf("it has ended: %v", s.Err())
	default:
	}
}

// A compute node has not heard that the memory node was given up, and goes on using the connections that it has: nothing of that is executed.
func TestGivenUpMemoryNodeExecutesNothingOfBefore(t *testing.T) {
	c := newTestCluster(t)
	t.Cleanup(c.Close)
	c.change = func(o *Options) { o.Heartbeat, o.DeadAfter = 100*time.Millisecond, time.Second }
	s, n := c.serve(0, 1<<16), c.join()
	p := open(t, n)
	do(t, p, fabric.FAA(word, 7))
	deaf := c.way.of(n.Own.Incarnation)
	deaf.detach()
	t.Cleanup(deaf.reattach)
	was := s.Member()
	c.members.Kill(was.Incarnation)
	await(t, "it serves in a new epoch", func() bool { return s.Epoch() > was.Epoch && s.Away() == nil })
	if err := p.Do([]fabric.Op{fabric.FAA(word, 1000)}); err == nil {
		t.Error("an operation of the epoch before")
	}
	if got := s.Word(64).Load(); got != 7 {
		t.Errorf("the word is %d", got)
	}
}

// The coordinator loses all that it knows: the memory node joins the one that follows, with its memory and a later epoch.
func TestCoordinatorLosesItsStorage(t *testing.T) {
	r := newReplaceable()
	o := r.options(t)
	o.Size = 1 << 16
	s, n := r.serve(t, o), r.join(t)
	do(t, open(t, n), fabric.FAA(word, 7))
	for range 20 { // so that the revisions of the new one are lower
		r.join(t).Close()
	}
	was, old := s.Member(), r.Now()
	r.Replace()
	old.Kill(was.Incarnation)
	old.Kill(n.Own.Incarnation)
	back(t, s, was.Epoch)
	<-n.Fenced()
	again := r.join(t)
	p := open(t, again)
	do(t, p, fabric.FAA(word, 1))
	if got := s.Word(64).Load(); got != 8 || again.Memory()[0].Epoch != was.Epoch+1 {
		t.Errorf("the word is %d, want 8; memory is %+v, was at epoch %d", got, again.Memory(), was.Epoch)
	}
	// What follows is followed: a death, for one.
	r.Now().Kill(again.Own.Incarnation)
	await(t, "the fenced node is shut out", func() bool {
		return errors.Is(p.Do([]fabric.Op{fabric.FAA(word, 1)}), fabric.ErrFenced)
	})
}

// A file of memory brings its epoch along, too: the coordinator may have lost its storage while nobody served it.
func TestFileBringsItsEpoch(t *testing.T) {
	r := newReplaceable()
	o := r.options(t)
	o.Size, o.File = 1<<16, filepath.Join(t.TempDir(), "memory")
	for want := uint32(1); want < 4; want++ {
		s := r.serve(t, o)
		if s.Epoch() != want {
			t.Errorf("epoch %d, want %d", s.Epoch(), want)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	r.Replace()
	if s := r.serve(t, o); s.Epoch() != 4 {
		t.Errorf("epoch %d of a coordinator that knows nothing, want 4", s.Epoch())
	}
}

// Another process has served the number while the memory node was given up, and has left: what that one had is newer.
func TestMemoryNodeThatWasReplacedEnds(t *testing.T) {
	r := newReplaceable()
	o := r.options(t)
	o.Size = 1 << 16
	for _, leaves := range []bool{true, false} {
		s := r.serve(t, o)
		release := r.Hold()
		r.Now().Kill(s.Member().Incarnation)
		await(t, "it is away", func() bool { return s.Away() != nil })
		m, err := r.Now().JoinMN(context.Background(), member.MN{Size: 1 << 16}, func(m member.Member) {
			go func() {
				for {
					st, newer := m.State()
					m.Ack(st.Revision)
					select {
					case <-newer:
					case <-m.Done():
						return
					}
				}
			}()
		})
		if err != nil {
			t.Fatal(err)
		}
		want := member.ErrInUse
		if leaves {
			want = ErrSuperseded
			_ = m.Leave(context.Background())
		}
		release()
		select {
		case <-s.Done():
		case <-time.After(20 * time.Second):
			t.Fatal("it does not end")
		}
		if err := s.Err(); !errors.Is(err, want) {
			t.Errorf("it ends with %v, want %v", err, want)
		}
		_ = m.Leave(context.Background())
	}
}

// One that is closed while it joins again leaves nobody behind.
func TestCloseWhileJoiningAgain(t *testing.T) {
	r := newReplaceable()
	o := r.options(t)
	o.Size = 1 << 16
	for range 20 {
		s := r.serve(t, o)
		r.Now().Kill(s.Member().Incarnation)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		w, err := r.Now().Watch(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		await(t, "nobody is there", func() bool { st, _ := w.State(); return len(st.MNs) == 0 })
	}
}

// A memory node, or a compute node, that has joined acts on a state from before its own publication until a later one comes. By that it lets nobody in: who is
// in it may have been given up before the node was published, and the node was not asked to shut it out.
func TestNobodyIsLetInByAStateOfBefore(t *testing.T) {
	r := newReplaceable()
	o := r.options(t)
	o.Size = 1 << 16
	s, n, other := r.serve(t, o), r.join(t), r.join(t)
	cn := func(n *node) []member.CN { return []member.CN{n.Own} }
	for _, x := range []struct {
		who      string
		standing *peer.Standing
		enter    func(*guest) error
		to       member.Incarnation
		after    *member.State // with the one that joined, and without the guest
	}{
		{"memory node", &s.peer.Standing, func(g *guest) error {
			s.peer.Mu.Lock()
			defer s.peer.Mu.Unlock()
			_, _, err := s.enter(g)
			return err
		}, s.peer.Own.Incarnation, &member.State{Revision: 101, MNs: []member.MN{s.peer.Own}}},
		{"compute node", &other.Standing, func(g *guest) error {
			other.Mu.Lock()
			defer other.Mu.Unlock()
			_, _, err := other.enter(g)
			return err
		}, other.Own.Incarnation, &member.State{Revision: 101, CNs: cn(other)}},
	} {
		g := &guest{hello: hello{from: uint64(n.Own.Incarnation), to: uint64(x.to), cn: uint8(n.Own.ID), index: 9, revision: 101}}
		x.standing.Take(&member.State{Revision: 100, CNs: cn(n)})
		if err := x.enter(g); !errors.Is(err, peer.ErrBehind) {
			t.Errorf("%s, by a state of before: %v", x.who, err)
		}
		x.standing.Take(x.after)
		if err := x.enter(g); !errors.Is(err, fabric.ErrFenced) {
			t.Errorf("%s, by the state with which it joined: %v", x.who, err)
		}
	}
}
