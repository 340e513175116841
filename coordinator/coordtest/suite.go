package coordtest

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

// Run runs the suite, but for what SetAway is needed for if there is none.
func Run(t *testing.T, h Harness) {
	for _, tt := range []struct {
		name string
		run  func(*env)
	}{
		{"the lowest free number is given", lowestNumber},
		{"a member knows itself, and all know it", selfKnown},
		{"ready comes before others know", readyFirst},
		{"join waits for all acknowledgements", joinWaits},
		{"a join waits for nodes that have gone without acknowledging it", joinWaitsForGone},
		{"a join does not wait for nodes that came later and have gone", joinOutlivesLater},
		{"a join waits for no joiner that has crashed, and for no memory node that is forgotten", joinAfterDeaths},
		{"a join that is given up leaves no member behind", joinGivenUp},
		{"all numbers taken is ErrFull", full},
		{"a node that leaves is not lost", leaving},
		{"a node that fails by itself is lost", failing},
		{"a dead node is fenced until all have acknowledged", fencing},
		{"a node that crashes meanwhile is not waited for", deathOfWaitedFor},
		{"a number that is being fenced is not given out", numberOfFenced},
		{"a dead node's membership ends as fenced", fenced},
		{"a report is a crash at once", report},
		{"reports of strangers are ignored", reportStranger},
		{"a memory node's epoch grows with each incarnation", epochs},
		{"a memory node that joins again brings its epoch", epochBrought},
		{"a memory node learns in which epoch its number was a member last", servedBefore},
		{"a memory node that is forgotten is not expected back", forgotten},
		{"a memory node that is up cannot be forgotten", forgetInUse},
		{"forgetting waits for all acknowledgements", forgetWaits},
		{"a memory node that is up is in use", inUse},
		{"no node is fenced while a lost memory node may be in use", lostMemory},
		{"revisions grow", revisions},
		{"joins at the same time get numbers of their own", together},
		{"a number that is not replicated has no group", groupOfOne},
		{"a backup is promoted when all have acknowledged", promotion},
		{"a primary joins again with its memory", primaryAgain},
		{"a primary is moved", plannedMove},
		{"a coordinator that is away", away},
	} {
		t.Run(tt.name, func(t *testing.T) { run(t, h, tt.run) })
	}
}

// RunAway runs the one test of Run that needs SetAway.
func RunAway(t *testing.T, h Harness) { run(t, h, away) }

func run(t *testing.T, h Harness, f func(*env)) {
	c := h(t)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	f(&env{t, c, ctx})
}

func lowestNumber(e *env) {
	a, b, c := e.startCN(), e.startCN(), e.startCN()
	for i, n := range []*node{a, b, c} {
		if n.CN().ID != fabric.CNID(i+1) {
			e.Errorf("number %d is %v", i, n.CN().ID)
		}
	}
	e.leave(b)
	e.await(a, "b forgotten", func(s *member.State) bool { return isForgotten(s, b.CN().Incarnation) })
	d := e.startCN()
	if d.CN().ID != b.CN().ID || d.CN().Incarnation == b.CN().Incarnation || d.CN().Incarnation == 0 {
		e.Errorf("%+v has the number of %+v: want the same number in a new incarnation", d.CN(), b.CN())
	}
}

func selfKnown(e *env) {
	m, c := e.startMN(3), e.startCN()
	if got := m.MN(); got.ID != 3 || got.Size != 1<<20 || got.Addr != "mn.example:1" || got.Epoch == 0 || got.Incarnation == 0 {
		e.Errorf("memory node is %+v", got)
	}
	for _, w := range []member.Watcher{m, c, e.watch()} {
		s := e.await(w, "both", func(s *member.State) bool { return len(s.CNs) == 1 && len(s.MNs) == 1 })
		if cn, ok := s.CN(c.CN().ID); !ok || cn != c.CN() {
			e.Errorf("state has %+v, member says %+v", cn, c.CN())
		}
		if mn, ok := s.MN(3); !ok || !reflect.DeepEqual(mn, m.MN()) {
			e.Errorf("state has %+v, member says %+v", mn, m.MN())
		}
		if v := s.View(); !v.Live.Has(c.CN().ID) || v.Live.Len() != 1 || v.Epoch != s.Revision {
			e.Errorf("view is %+v", v)
		}
	}
	select {
	case <-c.Done():
		e.Errorf("Done: %v", c.Err())
	default:
	}
	if err := c.Err(); err != nil {
		e.Errorf("Err of a member: %v", err)
	}
}

func readyFirst(e *env) {
	a := e.startCN()
	n, calls := newNode(), 0
	m, err := e.Service.JoinCN(e.ctx, "cn.example:2", func(m member.Member) {
		calls++
		if s, _ := a.State(); s.Has(m.CN().Incarnation) {
			e.Error("a member knows the new one before ready")
		}
		if m.CN().ID != 2 || m.CN().Incarnation == 0 {
			e.Errorf("in ready: %+v", m.CN())
		}
		n.ready(m)
	})
	e.started(n, m, err)
	if calls != 1 {
		e.Errorf("ready was called %d times", calls)
	}
}

func joinWaits(e *env) {
	for _, memory := range []bool{false, true} {
		var old *node
		if memory {
			old = e.startMN(0)
		} else {
			old = e.startCN()
		}
		old.setDeaf(true)
		n, joined := e.join(e.ctx, "")
		e.await(old, "the new one", func(s *member.State) bool { return len(s.CNs) > 0 && s.CNs[len(s.CNs)-1].Addr == "" })
		select {
		case err := <-joined:
			e.Fatalf("join returned %v before a member has acknowledged", err)
		default:
		}
		old.setDeaf(false)
		if err := <-joined; err != nil {
			e.Fatal(err)
		}
		e.leave(n)
		e.leave(old)
	}
}

func joinGivenUp(e *env) {
	a := e.startCN()
	a.setDeaf(true)
	ctx, cancel := context.WithCancel(e.ctx)
	n, joined := e.join(ctx, "")
	e.await(a, "the new one", func(s *member.State) bool { return len(s.CNs) == 2 })
	cancel()
	if err := <-joined; !errors.Is(err, context.Canceled) {
		e.Errorf("join: %v", err)
	}
	e.awaitDone(n)
	a.setDeaf(false)
	s := e.await(a, "its end", func(s *member.State) bool { return len(s.CNs) == 1 && len(s.Fencing) == 0 })
	if s.Lost != 0 {
		e.Errorf("lost %d", s.Lost)
	}
}

func full(e *env) {
	for range MaxCN {
		e.startCN()
	}
	_, err := e.Service.JoinCN(e.ctx, "", func(member.Member) { e.Error("ready was called") })
	if !errors.Is(err, member.ErrFull) {
		e.Errorf("join: %v", err)
	}
}

func leaving(e *env) {
	a, b := e.startCN(), e.startCN()
	e.leave(b)
	e.awaitDone(b)
	if err := b.Err(); err != nil {
		e.Errorf("after leaving: %v", err)
	}
	s := e.await(a, "b forgotten", func(s *member.State) bool { return isForgotten(s, b.CN().Incarnation) })
	if s.Lost != 0 {
		e.Errorf("lost %d", s.Lost)
	}
}

func failing(e *env) {
	a, b := e.startCN(), e.startCN()
	if err := b.Fail(e.ctx); err != nil {
		e.Fatalf("fail: %v", err)
	}
	e.awaitDone(b)
	if s := e.await(a, "b forgotten", func(s *member.State) bool { return isForgotten(s, b.CN().Incarnation) }); s.Lost != 1 {
		e.Errorf("lost %d", s.Lost)
	}
}

func fencing(e *env) {
	m, a, b := e.startMN(0), e.startCN(), e.startCN()
	for i, slow := range []*node{m, a} {
		slow.setDeaf(true)
		incarnation := b.CN().Incarnation
		e.kill(b)
		s := e.await(a, "b fencing", func(s *member.State) bool { return isFencing(s, incarnation) })
		if s.Has(incarnation) || !s.View().Live.Has(b.CN().ID) || s.Lost != uint64(i) {
			e.Errorf("while it is fenced: %+v", s)
		}
		slow.setDeaf(false)
		s = e.await(a, "b forgotten", func(s *member.State) bool { return isForgotten(s, incarnation) })
		if s.View().Live.Has(b.CN().ID) || s.Lost != uint64(i+1) {
			e.Errorf("after fencing: %+v", s)
		}
		b = e.startCN()
	}
}

func deathOfWaitedFor(e *env) {
	a, b, c := e.startCN(), e.startCN(), e.startCN()
	c.setDeaf(true)
	e.kill(b)
	e.await(a, "b fencing", func(s *member.State) bool { return isFencing(s, b.CN().Incarnation) })
	e.kill(c)
	s := e.await(a, "both forgotten", func(s *member.State) bool {
		return isForgotten(s, b.CN().Incarnation) && isForgotten(s, c.CN().Incarnation)
	})
	if s.Lost != 2 {
		e.Errorf("lost %d", s.Lost)
	}
}

func numberOfFenced(e *env) {
	m, a, b := e.startMN(0), e.startCN(), e.startCN()
	m.setDeaf(true)
	e.kill(a)
	e.await(b, "a fencing", func(s *member.State) bool { return isFencing(s, a.CN().Incarnation) })
	_, joined := e.join(e.ctx, "")
	s := e.await(b, "the new one", func(s *member.State) bool { return len(s.CNs) == 2 })
	if _, ok := s.CN(a.CN().ID); ok {
		e.Errorf("%v is given out while it is fenced", a.CN().ID)
	}
	m.setDeaf(false)
	if err := <-joined; err != nil {
		e.Fatal(err)
	}
}

func fenced(e *env) {
	e.startCN()
	b := e.startCN()
	e.kill(b)
	e.awaitDone(b)
	if err := b.Err(); !errors.Is(err, fabric.ErrFenced) {
		e.Errorf("Err: %v", err)
	}
}

func report(e *env) {
	m, a, b := e.startMN(0), e.startCN(), e.startCN()
	a.Report(b.CN().Incarnation)
	s := e.await(a, "b forgotten", func(s *member.State) bool { return isForgotten(s, b.CN().Incarnation) })
	if s.Lost != 1 {
		e.Errorf("lost %d", s.Lost)
	}
	e.awaitDone(b)
	if err := b.Err(); !errors.Is(err, fabric.ErrFenced) {
		e.Errorf("Err: %v", err)
	}
	a.Report(m.MN().Incarnation)
	e.await(a, "no memory node", func(s *member.State) bool { return len(s.MNs) == 0 })
}

func reportStranger(e *env) {
	a, b := e.startCN(), e.startCN()
	e.leave(b)
	e.await(a, "b forgotten", func(s *member.State) bool { return isForgotten(s, b.CN().Incarnation) })
	a.Report(b.CN().Incarnation)
	a.Report(0)
	a.Report(1<<64 - 1)
	c := e.startCN()
	s := e.await(a, "c", func(s *member.State) bool { return s.Has(c.CN().Incarnation) })
	if s.Lost != 0 || len(s.CNs) != 2 {
		e.Errorf("%+v", s)
	}
}

func epochs(e *env) {
	a := e.startCN()
	var last member.MN
	for range 3 {
		m := e.startMN(5)
		if m.MN().Epoch <= last.Epoch || m.MN().Incarnation == last.Incarnation {
			e.Errorf("%+v after %+v", m.MN(), last)
		}
		last = m.MN()
		e.leave(m)
		s := e.await(a, "its end", func(s *member.State) bool { return len(s.MNs) == 0 })
		if len(s.Down) != 1 || s.Down[0].ID != 5 || s.Down[0].Epoch != last.Epoch {
			e.Errorf("down are %+v, want %+v", s.Down, last)
		}
	}
	m := e.startMN(5)
	e.kill(m)
	if m := e.startMN(5); m.MN().Epoch <= last.Epoch+1 {
		e.Errorf("%+v after %+v and a crash", m.MN(), last)
	}
	e.await(a, "nothing down", func(s *member.State) bool { return len(s.MNs) == 1 && len(s.Down) == 0 })
}

// A coordinator that has lost its storage, or was restored from a backup, knows less than the memory that is still there.
func epochBrought(e *env) {
	if m := e.startAgain(5, 41); m.MN().Epoch != 42 {
		e.Errorf("%+v after epoch 41 elsewhere", m.MN())
	} else {
		e.leave(m)
	}
	if m := e.startAgain(5, 7); m.MN().Epoch != 43 {
		e.Errorf("%+v after epoch 42 here and 7 of its own", m.MN())
	}
}

func servedBefore(e *env) {
	first := e.startMN(5)
	if first.MN().Served != 0 {
		e.Errorf("the first: %+v", first.MN())
	}
	e.kill(first)
	// A join that fails counts an epoch, in which there was no memory node: whether it fails before others hear of it, or while it waits for them.
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	if _, err := e.Service.JoinMN(ctx, member.MN{ID: 5, Size: 1 << 20}, func(member.Member) { cancel() }); err == nil {
		e.Fatal("a join that was cancelled has succeeded")
	}
	a := e.startCN()
	a.setDeaf(true)
	ctx, cancel = context.WithCancel(e.ctx)
	defer cancel()
	n, joined := newNode(), make(chan error, 1)
	go func() {
		_, err := e.Service.JoinMN(ctx, member.MN{ID: 5, Size: 1 << 20}, n.ready)
		joined <- err
	}()
	e.await(a, "the new one", func(s *member.State) bool { return len(s.MNs) == 1 })
	cancel()
	if err := <-joined; !errors.Is(err, context.Canceled) {
		e.Fatalf("join: %v", err)
	}
	a.setDeaf(false)
	if again := e.startMN(5); again.MN().Served != first.MN().Epoch {
		e.Errorf("%+v after %+v", again.MN(), first.MN())
	}
}

func forgotten(e *env) {
	a, m := e.startCN(), e.startMN(5)
	first := m.MN()
	e.kill(m)
	e.await(a, "m down", func(s *member.State) bool { return len(s.Down) == 1 })
	if err := e.Service.ForgetMN(e.ctx, 5); err != nil {
		e.Fatal(err)
	}
	e.await(a, "m forgotten", func(s *member.State) bool { return len(s.Down) == 0 && len(s.MNs) == 0 })
	for _, id := range []fabric.MemID{5, 6} {
		if err := e.Service.ForgetMN(e.ctx, id); !errors.Is(err, member.ErrUnknown) {
			e.Errorf("forget %v, which is unknown: %v", id, err)
		}
	}
	again := e.startMN(5)
	if again.MN().Epoch <= first.Epoch {
		e.Errorf("%+v after %+v was forgotten", again.MN(), first)
	}
	e.await(a, "it is back", func(s *member.State) bool { return len(s.MNs) == 1 })
	e.leave(again)
	e.await(a, "it is down", func(s *member.State) bool { return len(s.Down) == 1 })
}

func forgetInUse(e *env) {
	a, m := e.startCN(), e.startMN(5)
	if err := e.Service.ForgetMN(e.ctx, 5); !errors.Is(err, member.ErrInUse) {
		e.Errorf("forget a member: %v", err)
	}
	if s, _ := a.State(); !s.Has(m.MN().Incarnation) {
		e.Errorf("%+v", s)
	}
}

func forgetWaits(e *env) {
	a, m := e.startCN(), e.startMN(5)
	a.setDeaf(true)
	e.kill(m)
	e.await(a, "m gone", func(s *member.State) bool { return len(s.MNs) == 0 })
	over := make(chan error, 1)
	go func() { over <- e.Service.ForgetMN(e.ctx, 5) }()
	time.Sleep(20 * time.Millisecond) // so that it would be over, if it did not wait
	select {
	case err := <-over:
		e.Errorf("forgotten before all have acknowledged its end: %v", err)
	default:
	}
	a.setDeaf(false)
	if err := <-over; err != nil {
		e.Error(err)
	}
	e.await(a, "m forgotten", func(s *member.State) bool { return len(s.Down) == 0 })
}

func inUse(e *env) {
	e.startMN(1)
	_, err := e.Service.JoinMN(e.ctx, member.MN{ID: 1, Size: 1 << 20}, func(member.Member) { e.Error("ready was called") })
	if !errors.Is(err, member.ErrInUse) {
		e.Errorf("join: %v", err)
	}
	e.startMN(2)
}

func lostMemory(e *env) {
	m, a, b := e.startMN(0), e.startCN(), e.startCN()
	a.setDeaf(true)
	m.setDeaf(true)
	e.kill(b)
	s := e.await(a, "b fencing", func(s *member.State) bool { return isFencing(s, b.CN().Incarnation) })
	a.Ack(s.Revision)
	e.kill(m)
	// m is not waited for any more; but a may still be using it, and so may b.
	s = e.await(a, "m gone", func(s *member.State) bool { return len(s.MNs) == 0 })
	if !isFencing(s, b.CN().Incarnation) {
		e.Errorf("b is not fenced, and a has not acknowledged the end of m: %+v", s)
	}
	a.setDeaf(false)
	e.await(a, "b forgotten", func(s *member.State) bool { return isForgotten(s, b.CN().Incarnation) })
}

func revisions(e *env) {
	a := e.startCN()
	for range 3 {
		e.leave(e.startCN())
	}
	e.leave(e.startMN(0))
	s := e.await(a, "quiet", func(s *member.State) bool { return len(s.CNs) == 1 && len(s.MNs) == 0 && len(s.Fencing) == 0 })
	e.leave(a)
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := 1; i < len(a.seen); i++ {
		if a.seen[i] <= a.seen[i-1] {
			e.Errorf("revision %d after %d", a.seen[i], a.seen[i-1])
		}
	}
	if s.Revision < a.seen[len(a.seen)-1] {
		e.Errorf("state at revision %d after %v", s.Revision, a.seen)
	}
}

func together(e *env) {
	nodes := make([]*node, MaxCN)
	var wg sync.WaitGroup
	for i := range nodes {
		nodes[i] = newNode()
		wg.Go(func() {
			if _, err := e.Service.JoinCN(e.ctx, "", nodes[i].ready); err != nil {
				e.Error(err)
			}
		})
	}
	wg.Wait()
	var taken fabric.CNSet
	for _, n := range nodes {
		if n.Member != nil {
			taken.Add(n.CN().ID)
		}
	}
	if taken.Len() != MaxCN {
		e.Errorf("%d nodes have %d numbers", MaxCN, taken.Len())
	}
}

func away(e *env) {
	if e.SetAway == nil {
		e.Skip("the coordinator of this harness is always there")
	}
	m, a, b := e.startMN(0), e.startCN(), e.startCN()
	e.SetAway(true)
	defer e.SetAway(false)
	_, err := e.Service.JoinCN(e.ctx, "", func(member.Member) { e.Error("ready was called") })
	if !errors.Is(err, member.ErrUnreachable) {
		e.Errorf("join: %v", err)
	}
	e.awaitContact(a, false)
	e.kill(b)
	for _, n := range []*node{m, a} {
		select {
		case <-n.Done():
			e.Errorf("membership ended: %v", n.Err())
		default:
		}
		if s, _ := n.State(); !s.Has(b.CN().Incarnation) {
			e.Errorf("a crash came through: %+v", s)
		}
	}
	e.SetAway(false)
	s := e.await(a, "b forgotten", func(s *member.State) bool { return isForgotten(s, b.CN().Incarnation) })
	if !s.Has(a.CN().Incarnation) || !s.Has(m.MN().Incarnation) || s.Lost != 1 {
		e.Errorf("%+v", s)
	}
	e.awaitContact(a, true)
	e.startCN()
}
