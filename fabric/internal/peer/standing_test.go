package peer

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

func state(revision uint64, cns ...member.CN) *member.State {
	return &member.State{Revision: revision, CNs: cns}
}

// A state that is not newer changes nothing.
func TestStatesGrow(t *testing.T) {
	var s Standing
	for _, x := range []struct {
		revision uint64
		taken    bool
	}{{2, true}, {2, false}, {1, false}, {5, true}} {
		before, _ := s.State()
		old, ok := s.Take(state(x.revision))
		now, _ := s.State()
		if ok != x.taken || old != before || (now != before) != x.taken {
			t.Errorf("revision %d: %v, want %v", x.revision, ok, x.taken)
		}
	}
}

// A node that comes before the state that has it waits for that; one that is refused for another reason does not.
func TestNewcomersWaitForTheNews(t *testing.T) {
	var s Standing
	s.Take(state(1))
	asked := make(chan struct{}, 10)
	known := func(st *member.State) error {
		asked <- struct{}{}
		if _, ok := st.CN(7); !ok {
			return ErrBehind
		}
		return nil
	}
	done := make(chan error)
	go func() { done <- s.Await(context.Background(), known) }()
	<-asked
	s.Take(state(2, member.CN{ID: 7}))
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := s.Await(context.Background(), func(*member.State) error { return fabric.ErrFenced }); !errors.Is(err, fabric.ErrFenced) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Await(ctx, func(*member.State) error { return ErrBehind }); !errors.Is(err, ErrBehind) {
		t.Error(err)
	}
}

// A memory node that joins lets no node in before it is admitted, and a compute node keeps the newest epoch that it has heard of.
func TestNoNodeIsLetInBeforeAdmission(t *testing.T) {
	var s Standing
	if s.MemoryEpoch(3) != 0 || s.MemoryEpoch(fabric.MaxMem+1) != 0 {
		t.Error("an epoch of an unknown memory node")
	}
	for i, epoch := range []uint32{4, 5} {
		s.Reset()
		s.Take(&member.State{Revision: uint64(2 - i), MNs: []member.MN{{ID: 3, Epoch: epoch}}})
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		judge := func(*member.State) error { return nil }
		if err := s.Await(ctx, judge); !errors.Is(err, ErrBehind) {
			t.Errorf("before it is admitted: %v", err)
		}
		done := make(chan error)
		go func() { done <- s.Await(context.Background(), judge) }()
		s.Admit()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	s.Take(&member.State{Revision: 3})
	if got := s.MemoryEpoch(3); got != 5 {
		t.Errorf("the memory node was in epoch 5 when it was there last, and is in %d", got)
	}
}

// A node that is being fenced may still speak.
func TestFindFindsNodesBeingFenced(t *testing.T) {
	st := &member.State{CNs: []member.CN{{ID: 1, Incarnation: 10}}, Fencing: []member.CN{{ID: 2, Incarnation: 20}}}
	for id, want := range map[fabric.CNID]member.Incarnation{1: 10, 2: 20, 3: 0} {
		if c, ok := Find(st, id); c.Incarnation != want || ok != (want != 0) {
			t.Errorf("%v: %+v, %v", id, c, ok)
		}
	}
}

// A compute node that is declared dead has its incarnation until it is shut out everywhere: what waits for that (declock.Names.Break) waits for no less.
func TestIncarnationUntilItIsShutOut(t *testing.T) {
	var n Node
	cn := []member.CN{{ID: 2, Incarnation: 20}}
	for i, st := range []member.State{{CNs: cn}, {Fencing: cn}, {}} {
		st.Revision = uint64(i + 1)
		n.Take(&st)
		if got, want := n.Incarnation(2), []uint64{20, 20, 0}[i]; got != want {
			t.Errorf("%+v: incarnation %d, want %d", st, got, want)
		}
	}
}

func TestAddress(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Skip(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for advertise, want := range map[string]string{"": "127.0.0.1:" + port, "host": "host:" + port, "host:7": "host:7", "[fd77::1]": "[fd77::1]:" + port,
		"[fd77::1]:7": "[fd77::1]:7"} {
		if got, err := Address(l, advertise); err != nil || got != want {
			t.Errorf("%q: %s, %v; want %s", advertise, got, err, want)
		}
	}
}

// A node's clock goes on from the Unix time of its start, whatever becomes of the machine's: two nodes that started before and after
// a step differ by it for as long as they live.
func TestClockDoesNotStep(t *testing.T) {
	before := NewClock()
	after := before
	after.base += fabric.Time(time.Hour) // what the machine's clock said an hour later, at the same moment
	for range 100 {
		a, b := before.Now(), after.Now()
		if d := b - a - fabric.Time(time.Hour); d < 0 || d > fabric.Time(time.Minute) {
			t.Fatalf("clocks of nodes that started before and after a step of an hour differ by %v", b-a)
		}
		if next := before.Now(); next < a {
			t.Fatalf("%v after %v", next, a)
		}
	}
}
