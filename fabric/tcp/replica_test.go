package tcp

import (
	"context"
	"errors"
	"regexp"
	"testing"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peer"
	"github.com/declock/declock/fabric/internal/peertest"
	"github.com/declock/declock/fabric/member"
	regions "github.com/declock/declock/memory"
	"github.com/declock/declock/mn"
)

// A group is number 0 with a primary on memory node 0 and a backup on memory node 1, in sync, and two compute nodes with a Port each.
type group struct {
	*testCluster
	t    testing.TB
	p, b *MemoryServer
	n    *node
	port fabric.Port
}

func newGroup(t *testing.T) *group {
	return newGroupWith(t, func(*Options) {}, func(*Options) {}, func(*Options) {})
}

// newGroupWith is newGroup with other options of memory nodes 0 and 1, and of compute nodes.
func newGroupWith(t *testing.T, mn0, mn1, cns func(*Options)) *group {
	c := newTestCluster(t)
	t.Cleanup(c.testClose)
	c.change = func(o *Options) { o.Heartbeat, o.DeadAfter = 100*time.Millisecond, time.Second }
	serve := c.change
	c.change = func(o *Options) { serve(o); o.Replicas, o.Room, o.Workers = 2, 1<<20, 4; mn0(o) } // one worker that is stalled keeps no other node waiting
	g := &group{testCluster: c, t: t, p: c.Serve(0, 1<<16)}
	c.change = func(o *Options) { serve(o); o.Room = 1 << 20; mn1(o) }
	g.b = c.Serve(1, 1<<16)
	c.change = func(o *Options) { serve(o); cns(o) }
	g.n, _ = c.Join(), c.Join()
	g.sync()
	g.known()
	c.change = serve
	g.port = peertest.Open(t, g.n)
	g.usable(g.port)
	return g
}

// testClose is Close of a cluster in which memory nodes may have been closed.
func (c *testCluster) testClose() {
	for _, n := range c.Nodes {
		_ = n.Close()
	}
	for _, s := range c.Servers {
		_ = s.Close()
	}
}

func (g *group) now() *member.Group { return g.State().Group(0) }

// sync says that the backup is in sync: nothing has to be copied.
func (g *group) sync() {
	g.t.Helper()
	peertest.Await(g.t, "a backup", func() bool {
		x := g.now()
		return x != nil && x.Serving && len(x.Replicas) == 2 && x.Replicas[1].Phase == member.Copying
	})
	g.wish(member.Synced, g.now().Replicas[1].Host)
}

func (g *group) wish(kind member.ChangeKind, host member.Incarnation) {
	g.t.Helper()
	for {
		err := g.Members.Change(context.Background(), member.Change{ID: 0, Kind: kind, Host: host, Seen: g.now().Changed})
		if err == nil {
			return
		}
		if !errors.Is(err, member.ErrChanged) {
			g.t.Fatal(err)
		}
	}
}

// known waits until all compute nodes know how number 0 is served, and can use it.
func (g *group) known() {
	g.t.Helper()
	for _, n := range g.Nodes {
		peertest.Await(g.t, "compute nodes know", func() bool {
			st, _ := n.State()
			r := remoteOf(n, 0)
			return st.Group(0).Changed == g.now().Changed && st.Group(0).Serving && r != nil && r.MN.Epoch == g.now().Epoch && r.lanes[0].conn.Load() != nil
		})
	}
}

// Promote is fabrictest.Promoter.
func (g *group) Promote() {
	g.wish(member.Promote, g.now().Replicas[1].Host)
	g.known()
}

// usable waits until a Port can use number 0, and attaches it to the present epoch.
func (g *group) usable(p fabric.Port) {
	g.t.Helper()
	peertest.Await(g.t, "number 0 is served", func() bool {
		return p.Reattach(0, g.n.MemoryEpoch(0)) == nil && p.Do([]fabric.Op{fabric.Load(peertest.Word)}) == nil
	})
}

// word returns the word of the tests in the copy of number 0 on a memory node.
func (g *group) word(s *MemoryServer) uint64 {
	s.peer.Mu.Lock()
	defer s.peer.Mu.Unlock()
	r := s.copyOf(0)
	if r == nil {
		return 0
	}
	return g.wordOf(r)
}

func (g *group) wordOf(r *region) uint64 {
	n := &counts{}
	o := operation{code: codeLoad, offset: peertest.Word.Offset()}
	if err := o.measure(); err != nil {
		g.t.Fatal(err)
	}
	out := r.nic.perform(&o, nil, n)
	return uint64(out[0]) | uint64(out[1])<<8
}

// awaitServed waits until a memory node serves number 0.
func (g *group) awaitServed(s *MemoryServer) {
	g.t.Helper()
	peertest.Await(g.t, "the backup serves", func() bool {
		x := g.now()
		return x.Serving && x.Primary() == s.Member().Incarnation && g.n.MemoryEpoch(0) == x.Epoch
	})
}

// A chain to the primary changes nothing at the backup, one to the backup nothing at the primary.
func TestReplicasAreApart(t *testing.T) {
	g := newGroup(t)
	peertest.Do(t, g.port, fabric.FAA(peertest.Word, 7))
	g.backupDo(fabric.Store(peertest.Word, 9))
	if p, b := g.word(g.p), g.word(g.b); p != 7 || b != 9 {
		t.Errorf("the word is %d at the primary and %d at the backup", p, b)
	}
	if m := g.n.Memory(); len(m) != 2 || m[0].Term != 1 || m[1].Term != 0 {
		t.Errorf("memory is %+v", m)
	}
}

// backupDo executes operations at the backup.
func (g *group) backupDo(ops ...fabric.Op) {
	g.t.Helper()
	g.backupDoBy(g.port, ops...)
}

func (g *group) backupDoBy(port fabric.Port, ops ...fabric.Op) {
	g.t.Helper()
	rep := port.(fabric.Replicator)
	r, err := rep.Replicas(0)
	if err != nil || r.N != 1 {
		g.t.Fatal(r, err)
	}
	p, err := rep.PostBackup(&r, 0, ops)
	if err == nil {
		err = port.Wait(p)
	}
	if err != nil {
		g.t.Fatal(err)
	}
}

// The end of the primary makes the backup serve, in a later term. A Port of before is refused until it is attached again.
func TestPrimaryEnds(t *testing.T) {
	g := newGroup(t)
	peertest.Do(t, g.port, fabric.FAA(peertest.Word, 7))
	before := *g.now()
	if err := g.p.Close(); err != nil {
		t.Error(err)
	}
	g.awaitServed(g.b)
	peertest.Await(t, "chains of before are refused", func() bool {
		return errors.Is(g.port.Do([]fabric.Op{fabric.FAA(peertest.Word, 1)}), fabric.ErrStaleEpoch)
	})
	g.usable(g.port)
	if x := g.now(); x.Term != before.Term+1 || x.Epoch <= before.Epoch {
		t.Errorf("%+v after %+v", *x, before)
	}
	if ops := peertest.Do(t, g.port, fabric.FAA(peertest.Word, 1)); ops[0].Old != 0 {
		t.Errorf("a lock word is %d after a promotion", ops[0].Old)
	}
}

// stall has the backup stand still with an operation that has been posted to it: until the exec of its connection is unlocked.
func (g *group) stall(op fabric.Op) (conn *laneConn, pending fabric.Pending) {
	g.t.Helper()
	g.backupDo(fabric.Store(peertest.Word, 1)) // there is a lane
	rep := g.port.(fabric.Replicator)
	r, err := rep.Replicas(0)
	if err != nil {
		g.t.Fatal(err)
	}
	x := g.now()
	conn = g.b.connOf(g.t, laneKey{g.n.Own.Incarnation, 0, target{id: 0, replica: x.Replicas[1].Number, epoch: x.Epoch}})
	conn.exec.Lock()
	if pending, err = rep.PostBackup(&r, 0, []fabric.Op{op}); err != nil {
		g.t.Fatal(err)
	}
	return conn, pending
}

// Rule 1. A WRITE to the backup waits in a socket while the backup is promoted: it comes to nothing.
func TestLateWriteToBackup(t *testing.T) {
	g := newGroup(t)
	conn, pending := g.stall(fabric.Store(peertest.Word, 5))
	g.wish(member.Promote, g.now().Replicas[1].Host)
	time.Sleep(50 * time.Millisecond)
	conn.exec.Unlock() // it goes on
	if err := g.port.Wait(pending); !fabric.Refused(err) {
		t.Errorf("the WRITE: %v: it was not executed, and the memory node says so", err)
	}
	g.awaitServed(g.b)
	g.usable(g.port)
	if got := g.word(g.b); got != 1 {
		t.Errorf("the word is %d", got)
	}
	if !conn.isCut() {
		t.Error("the lane of the epoch before is still served")
	}
}

// A WRITE to a backup has been executed when the connection breaks, and its client has no answer: it hears that it was, also if that backup is promoted meanwhile. Of what has a result the outcome is unknown, and of all if the
// memory node has ended, or remembers nothing of the lane.
func TestExecutedAtABackup(t *testing.T) {
	for _, then := range []string{"", "promoted", "ended", "forgotten"} {
		for _, op := range []fabric.Op{fabric.Store(peertest.Word, 5), fabric.FAA(peertest.Word, 4)} {
			g := newGroup(t)
			conn, pending := g.stall(op)
			var l *lane
			g.n.Mu.Lock()
			for m := range g.n.Remotes {
				if m.Backup != 0 && m.Up.Load() {
					l = lanesOf(m).lanes[0]
				}
			}
			g.n.Mu.Unlock()
			l.lead.Lock()                     // it is not connected anew
			time.Sleep(20 * time.Millisecond) // it has come
			l.mu.Lock()
			l.broke(l.conn.Load(), ErrLost)
			l.mu.Unlock()
			conn.exec.Unlock()
			peertest.Await(t, "it is executed", func() bool { return g.word(g.b) == 5 })
			switch then {
			case "promoted", "ended":
				g.wish(member.Promote, g.now().Replicas[1].Host)
				peertest.Await(t, "the lane ends", func() bool { return l.ctx.Err() != nil })
				if then == "ended" {
					_ = g.b.Close()
				}
			case "forgotten":
				g.b.peer.Mu.Lock()
				g.b.forget(conn.lane)
				g.b.peer.Mu.Unlock()
			}
			want := uint64(5)
			if then == "" { // sent again, it would be executed once more
				want = 6
				other := peertest.Open(t, g.Nodes[1])
				g.usable(other)
				g.backupDoBy(other, fabric.Store(peertest.Word, want))
			}
			l.lead.Unlock()
			known := op.Kind == fabric.OpWrite && then != "ended" && then != "forgotten"
			if err := g.port.Wait(pending); known && err != nil || !known && !errors.Is(err, fabric.ErrUnknownOutcome) {
				t.Errorf("%v, %s: %v", op, then, err)
			}
			if then != "ended" && g.word(g.b) != want {
				t.Errorf("%v, %s: the word is %d, want %d", op, then, g.word(g.b), want)
			}
			g.testClose()
		}
	}
}

// A primary that was deposed and runs on is not believed: neither by a Port of before, nor by a new one.
func TestDeposedPrimary(t *testing.T) {
	g := newGroup(t)
	peertest.Do(t, g.port, fabric.FAA(peertest.Word, 7))
	deaf := g.way.of(g.p.Member().Incarnation)
	deaf.detach() // it does not hear that it was given up
	t.Cleanup(deaf.reattach)
	g.Members.Now().Kill(g.p.Member().Incarnation)
	g.awaitServed(g.b)
	if err := g.port.Do([]fabric.Op{fabric.FAA(peertest.Word, 1000)}); err == nil {
		t.Error("a chain to the primary of before")
	}
	p := peertest.Open(t, g.n)
	g.usable(p)
	if ops := peertest.Do(t, p, fabric.FAA(peertest.Word, 1)); ops[0].Old != 0 {
		t.Errorf("the word is %d: it is read at the primary of before", ops[0].Old)
	}
	if got := g.word(g.p); got != 7 {
		t.Errorf("the word at the primary of before is %d", got)
	}
}

// Rule 10. A memory node that joins with a replicated number is a spare: it lends nothing of it, however it is asked.
func TestSpareLendsNothing(t *testing.T) {
	g := newGroup(t)
	if err := g.p.Close(); err != nil {
		t.Error(err)
	}
	g.awaitServed(g.b)
	change := g.change
	g.change = func(o *Options) { change(o); o.Replicas = 2 }
	spare := g.Serve(0, 1<<16)
	g.usable(g.port)
	peertest.Do(t, g.port, fabric.FAA(peertest.Word, 3))
	if got := g.word(g.b); got != 3 {
		t.Errorf("the word at the primary is %d", got)
	}
	own := spare.Member()
	for _, to := range []target{{}, {id: 0, epoch: own.Epoch}, {id: 0, epoch: g.now().Epoch}} {
		h := hello{role: roleLane, cn: uint8(g.n.Own.ID), index: 9, caps: capMasked | capAtomic16, from: uint64(g.n.Own.Incarnation), to: uint64(own.Incarnation), target: to}
		s, _, err := dial(t.Context(), &g.n.Config, peer.MemoryNode(own.ID, own.Addr), h, false)
		if !errors.Is(err, fabric.ErrStaleEpoch) {
			t.Errorf("a lane to %+v: %v", to, err)
		}
		if err == nil {
			s.close()
		}
	}
}

// Rule 12. A compute node whose lease has run out by its own clock posts nothing to a replicated number, and believes no answer; it is fenced.
func TestLapsedComputeNode(t *testing.T) {
	g := newGroup(t)
	pending, err := g.port.Post([]fabric.Op{fabric.FAA(peertest.Word, 1)})
	if err != nil {
		t.Fatal(err)
	}
	peertest.Await(t, "it is executed", func() bool { return g.word(g.p) == 1 })
	g.way.of(g.n.Own.Incarnation).lapsed.Store(true)
	if err := g.port.Wait(pending); !errors.Is(err, fabric.ErrUnknownOutcome) {
		t.Errorf("an answer that is taken when the lease has run out: %v", err)
	}
	if err := g.port.Do([]fabric.Op{fabric.FAA(peertest.Word, 1)}); !errors.Is(err, fabric.ErrFenced) {
		t.Errorf("a chain: %v", err)
	}
	select {
	case <-g.n.Fenced():
	case <-time.After(10 * time.Second):
		t.Error("the node goes on")
	}
	peertest.Await(t, "it is no member", func() bool { return !g.State().Has(g.n.Own.Incarnation) })
	if got := g.word(g.p); got != 1 {
		t.Errorf("the word is %d", got)
	}
}

// A memory node whose lease has run out by its own clock executes nothing on replicated numbers; when the lease is renewed it goes on.
func TestLapsedMemoryNode(t *testing.T) {
	g := newGroup(t)
	peertest.Do(t, g.port, fabric.FAA(peertest.Word, 1))
	lapsed := &g.way.of(g.p.Member().Incarnation).lapsed
	lapsed.Store(true)
	if err := g.port.Do([]fabric.Op{fabric.FAA(peertest.Word, 1)}); err == nil {
		t.Error("it executes chains")
	}
	if got := g.word(g.p); got != 1 {
		t.Errorf("the word is %d", got)
	}
	lapsed.Store(false)
	g.usable(g.port)
	peertest.Do(t, g.port, fabric.FAA(peertest.Word, 1))
	if got := g.word(g.p); got != 2 {
		t.Errorf("the word is %d", got)
	}
}

// Rule 16. A host that was dropped and added again, and has not heard of the time between, begins with zeroed memory; what was sent to the replica of before comes to nothing.
func TestReplicaAgain(t *testing.T) {
	g := newGroup(t)
	g.backupDo(fabric.Store(peertest.Word, 1))
	rep := g.port.(fabric.Replicator)
	r, err := rep.Replicas(0)
	if err != nil {
		t.Fatal(err)
	}
	x := g.now()
	conn := g.b.connOf(t, laneKey{g.n.Own.Incarnation, 0, target{id: 0, replica: x.Replicas[1].Number, epoch: x.Epoch}})
	deaf := g.way.of(g.b.Member().Incarnation)
	deaf.detach()
	conn.exec.Lock()
	pending, err := rep.PostBackup(&r, 0, []fabric.Op{fabric.Store(peertest.Word, 5)})
	if err != nil {
		t.Fatal(err)
	}
	g.wish(member.Drop, x.Replicas[1].Host) // the ledger puts the next on the same memory node
	go func() {
		time.Sleep(50 * time.Millisecond)
		conn.exec.Unlock()
	}()
	deaf.reattach()
	if err := g.port.Wait(pending); err == nil {
		t.Error("the WRITE to the replica of before has succeeded")
	}
	peertest.Await(t, "the new replica", func() bool {
		x := g.now()
		return len(x.Replicas) == 2 && x.Replicas[1].Phase == member.Copying
	})
	if got := g.word(g.b); got != 0 {
		t.Errorf("the word of the new replica is %d", got)
	}
	g.backupDo(fabric.Store(peertest.Word, 2))
	if got := g.word(g.b); got != 2 {
		t.Errorf("the word of the new replica is %d", got)
	}
}

// A backup that does not answer is dropped by its number, and another takes its place.
func TestDropBackup(t *testing.T) {
	g := newGroup(t)
	rep := g.port.(fabric.Replicator)
	r, err := rep.Replicas(0)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time it has been dropped already
		if err := rep.DropBackup(&r, 0, false); err != nil {
			t.Error(err)
		}
	}
	if x := g.now(); x.Find(member.Incarnation(r.Backups[0].Host)) > 0 && x.Replicas[1].Number == r.Backups[0].Number {
		t.Errorf("%+v", *x)
	}
	if _, err := rep.PostBackup(&r, 0, []fabric.Op{fabric.Load(peertest.Word)}); err == nil {
		t.Error("a chain to a backup that was dropped")
	}
}

// A drop waits for the primary's acknowledgement: one that has ended gives none, and the backup is promoted.
func TestDropBackupAcknowledged(t *testing.T) {
	g := newGroup(t)
	rep := g.port.(fabric.Replicator)
	r, err := rep.Replicas(0)
	if err != nil {
		t.Fatal(err)
	}
	p := g.p.Member().Incarnation
	deaf := g.way.of(p)
	deaf.detach() // it stands still, or has ended
	t.Cleanup(deaf.reattach)
	time.AfterFunc(50*time.Millisecond, func() { g.Members.Now().Kill(p) })
	if err := rep.DropBackup(&r, 0, true); err == nil {
		t.Error("the last copy was dropped")
	}
	g.awaitServed(g.b)
}

// A drop waits for the coordinator no longer than the operation that asks for it: it ends when the Port is interrupted.
func TestDropBackupInterrupted(t *testing.T) {
	g := newGroup(t)
	rep := g.port.(fabric.Replicator)
	r, err := rep.Replicas(0)
	if err != nil || !r.Backups[0].Synced {
		t.Fatal(r, err)
	}
	g.way.hung.Store(true)
	time.AfterFunc(20*time.Millisecond, g.port.Interrupt)
	began := time.Now()
	if err := rep.DropBackup(&r, 0, false); !errors.Is(err, fabric.ErrInterrupted) || time.Since(began) > dropLimit {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
	if x := g.now(); x.Replicas[1].Number != r.Backups[0].Number {
		t.Errorf("%+v", *x)
	}
	g.port.ClearInterrupt()
	g.way.hung.Store(false)
	// A chain may be under way there: its lock must not be released before that is over.
	g.way.hung.Store(true)
	g.port.Interrupt()
	answers := time.AfterFunc(100*time.Millisecond, func() { g.way.hung.Store(false) })
	if err := rep.DropBackup(&r, 0, true); err != nil || answers.Stop() {
		t.Errorf("%v, before the coordinator has answered", err)
	}
	if x := g.now(); x.Replicas[1].Number == r.Backups[0].Number {
		t.Errorf("%+v", *x)
	}
}

// A client that is interrupted waits longer for a backup than for a primary, since what it leaves behind costs a copy: a pause of a backup is no error. A backup that stays silent is
// left behind all the same.
func TestInterruptedChainToBackup(t *testing.T) {
	g := newGroup(t)
	g.backupDo(fabric.Store(peertest.Word, 1)) // there is a lane
	rep := g.port.(fabric.Replicator)
	r, err := rep.Replicas(0)
	if err != nil {
		t.Fatal(err)
	}
	defer g.port.ClearInterrupt()
	for i, before := range []bool{false, true} { // interrupted before the chain is posted, or while it is under way
		word := uint64(5 + i)
		goOn := g.b.stall(0)
		if before {
			g.port.Interrupt()
		}
		pending, err := rep.PostBackup(&r, 0, []fabric.Op{fabric.Store(peertest.Word, word)})
		if err != nil {
			t.Fatal(err)
		}
		if !before {
			g.port.Interrupt()
		}
		time.AfterFunc(20*grace, goOn)
		if err := g.port.Wait(pending); err != nil {
			t.Errorf("interrupted before it is posted %v: a backup that pauses: %v", before, err)
		}
		if got := g.word(g.b); got != word {
			t.Errorf("the word is %d", got)
		}
		g.port.ClearInterrupt()
	}
	g.port.(*port).limit.patience = 20 * grace // less than that of the lane
	defer g.b.stall(0)()
	pending, err := rep.PostBackup(&r, 0, []fabric.Op{fabric.Store(peertest.Word, 7)})
	if err != nil {
		t.Fatal(err)
	}
	g.port.Interrupt()
	if err := g.port.Wait(pending); !errors.Is(err, fabric.ErrUnknownOutcome) || !errors.Is(err, fabric.ErrInterrupted) {
		t.Errorf("a backup that is silent: %v", err)
	}
}

// dropLimit is how long an interrupted drop may take on a busy machine: less than it would wait for the coordinator.
const dropLimit = 5 * time.Second

// A backup that is being copied to is not in sync, as compute nodes see it.
func TestBackupInSync(t *testing.T) {
	g := newGroup(t)
	serve := g.change
	g.change = func(o *Options) { serve(o); o.Room = 1 << 20 }
	g.wish(member.AddBackup, g.Serve(2, 1<<16).Member().Incarnation)
	peertest.Await(t, "compute nodes know the new backup", func() bool {
		r, err := g.port.(fabric.Replicator).Replicas(0)
		if err != nil {
			t.Fatal(err)
		}
		return r.N == 2 && r.Backups[0].Synced && !r.Backups[1].Synced
	})
}

// A memory node that has a copy no more keeps no memory for it, whether the copy was in memory of its own or in that of its number, and begins again with zeroed memory.
func TestDroppedCopyKeepsNoMemory(t *testing.T) {
	g := newGroup(t)
	peertest.Do(t, g.port, fabric.FAA(peertest.Word, 7))
	serve := g.change
	g.change = func(o *Options) { serve(o); o.Room = 1 << 20 }
	third := g.Serve(2, 1<<16)
	has := func(s *MemoryServer) bool {
		s.peer.Mu.Lock()
		defer s.peer.Mu.Unlock()
		return s.copyOf(0) != nil
	}
	g.wish(member.AddBackup, third.Member().Incarnation)
	peertest.Await(t, "the third has a copy", func() bool { return has(third) && g.now().Replicas[2].Phase == member.Copying })
	g.wish(member.Synced, third.Member().Incarnation)
	g.wish(member.Drop, g.b.Member().Incarnation)
	peertest.Await(t, "a backup that was dropped has no copy", func() bool { return !has(g.b) })
	g.wish(member.Promote, third.Member().Incarnation) // the ledger has another backup on the second
	g.awaitServed(third)
	peertest.Await(t, "a primary that was deposed has no copy", func() bool { return !has(g.p) && has(g.b) })
	if got := g.wordOf(g.p.home); got != 0 {
		t.Errorf("the word at the primary of before is %d", got)
	}
}

// A backup is not lent before it is formatted: what a compute node writes there would be lost, or be taken for other memory.
func TestUnformattedBackup(t *testing.T) {
	c := newTestCluster(t)
	c.format = nil
	c.change = func(o *Options) { o.Replicas, o.Room = 2, 1<<20 }
	g := &group{testCluster: c, t: t, p: c.Serve(0, 1<<16)}
	c.change = func(o *Options) { o.Room = 1 << 20 }
	g.b = c.Serve(1, 1<<16)
	t.Cleanup(c.testClose)
	g.n = c.Join()
	g.sync()
	g.port = peertest.Open(t, g.n)
	g.usable(g.port)
	rep := g.port.(fabric.Replicator)
	r, err := rep.Replicas(0)
	if err != nil {
		t.Fatal(err)
	}
	pending, err := rep.PostBackup(&r, 0, []fabric.Op{fabric.Store(peertest.Word, 5)})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	err = g.b.FormatCopies(func(c fabric.Copy) error {
		if got := c.Word(peertest.Word.Offset()).Load(); got != 0 {
			t.Errorf("the word is %d before the copy is formatted", got)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.port.Wait(pending); err != nil {
		t.Error(err)
	}
	if got := g.word(g.b); got != 5 {
		t.Errorf("the word is %d", got)
	}
}

// A memory node whose lock queues have another length gets no copy in sync: the node that copies says which two differ, and how.
func TestBackupOfOtherQueues(t *testing.T) {
	c := newTestCluster(t)
	t.Cleanup(c.testClose)
	reports := make(chan error, 100)
	c.format = nil
	for i, queue := range []int{32, 64} {
		c.change = func(o *Options) { o.Replicas, o.Room = 2-i, 1<<20 }
		if _, err := mn.Start(c.Serve(fabric.MemID(i), 1<<16), mn.Config{Queue: queue}); err != nil {
			t.Fatal(err)
		}
	}
	c.change = func(o *Options) {
		o.Report = func(err error) { reports <- err }
		o.Copy = func(p fabric.Port, mem fabric.MemID) error {
			r, err := regions.Open(p, mem)
			if err != nil {
				return err
			}
			return r.CopyNames(p)
		}
	}
	g := &group{testCluster: c, t: t, n: c.Join()}
	select {
	case err := <-reports:
		if !errors.Is(err, regions.ErrParams) || !regexp.MustCompile(`from mn0 .* to mn1 .* 32 entries .* 64 `).MatchString(err.Error()) {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("nothing is reported")
	}
	if x := g.now(); x.Replicas[1].Phase != member.Copying {
		t.Errorf("%+v", *x)
	}
}

// What is known of the memory of a number that is not replicated is as before: a hello without target, no backups.
func TestFactorOneIsAsBefore(t *testing.T) {
	c := oneEach(t)
	p := peertest.Open(t, c.Nodes[0])
	if r, err := p.(fabric.Replicator).Replicas(0); err != nil || r.N != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	h := hello{role: roleLane, cn: 1, from: 2, to: 3}
	b := h.encode()
	for _, x := range b[56:] {
		if x != 0 {
			t.Errorf("hello ends with % x", b[56:])
		}
	}
	if m := c.Nodes[0].Memory(); len(m) != 1 || m[0].Term != 0 {
		t.Errorf("%+v", m)
	}
}

// Rule 13. All replicas are given up at once, as when the coordinator was away for a lease: they come back with their memory, as the replicas that they were.
func TestAllReplicasGivenUp(t *testing.T) {
	g := newGroup(t)
	peertest.Do(t, g.port, fabric.Store(peertest.Word, 7))
	g.backupDo(fabric.Store(peertest.Word, 7))
	before := *g.now()
	release := g.Members.Hold()
	g.Members.Now().Kill(g.b.Member().Incarnation)
	g.Members.Now().Kill(g.p.Member().Incarnation)
	peertest.Await(t, "both are away", func() bool { return g.p.Away() != nil && g.b.Away() != nil })
	release()
	peertest.Await(t, "number 0 is served", func() bool { x := g.now(); return x != nil && x.Serving && x.Epoch > before.Epoch })
	g.usable(g.port)
	if ops := peertest.Do(t, g.port, fabric.FAA(peertest.Word, 1)); ops[0].Old != 7 {
		t.Errorf("the word was 7 at both, and is %d", ops[0].Old)
	}
	if x := g.now(); x.Origin != before.Origin || x.Began != before.Began || x.Term == before.Term && x.Replicas[0].Number != before.Replicas[0].Number {
		t.Errorf("%+v after %+v", *x, before)
	}
}

// A lane to a number of which the memory node has no copy leads nowhere, though its own number is served in the same epoch: not into the memory of that.
func TestLaneToAnotherNumber(t *testing.T) {
	g := newGroup(t)
	own := g.p.Member()
	h := hello{role: roleLane, cn: uint8(g.n.Own.ID), index: 9, caps: capMasked | capAtomic16, from: uint64(g.n.Own.Incarnation), to: uint64(own.Incarnation)}
	for _, h.target = range []target{{id: 7, epoch: g.now().Epoch}, {id: 0, epoch: g.now().Epoch}} {
		s, _, err := dial(t.Context(), &g.n.Config, peer.MemoryNode(own.ID, own.Addr), h, false)
		if err == nil {
			s.close()
		}
		if h.target.id == 7 && !errors.Is(err, fabric.ErrStaleEpoch) || h.target.id == 0 && err != nil {
			t.Errorf("a lane to %+v: %v", h.target, err)
		}
	}
}

// What goes wrong with a copy is reported when the memory node can be asked: what reports may take long, and nothing else waits for it.
func TestCopyFailureIsReportedUnlocked(t *testing.T) {
	var asked *MemoryServer
	reports := make(chan error, 10)
	g := newGroupWith(t, func(*Options) {}, func(o *Options) {
		o.Report = func(err error) {
			answered := make(chan struct{})
			go func() {
				asked.Stats()
				close(answered)
			}()
			select {
			case <-answered:
			case <-time.After(5 * time.Second):
				err = errors.New("the memory node does not answer what reports")
			}
			select {
			case reports <- err:
			default:
			}
		}
	}, func(*Options) {})
	asked = g.b
	broken := errors.New("no copy is formatted")
	if err := g.b.FormatCopies(func(fabric.Copy) error { return broken }); err != nil {
		t.Fatal(err)
	}
	g.wish(member.Drop, g.b.Member().Incarnation) // another copy takes its place
	select {
	case err := <-reports:
		if !errors.Is(err, broken) {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it is not reported, or what reports it waits for itself")
	}
}
