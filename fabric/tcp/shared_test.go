package tcp

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peer"
	"github.com/declock/declock/fabric/internal/peertest"
	"github.com/declock/declock/fabric/member"
)

// Of number 1 a compute node has a lane to the copy on memory node 0.
var wordOf1 = fabric.At(1, peertest.Word.Offset())

// copyOf1 executes operations at the backup of number 1, which is on memory node 0.
func (g *group) copyOf1(ops ...fabric.Op) (fabric.Pending, error) {
	g.t.Helper()
	rep := g.port.(fabric.Replicator)
	r, err := rep.Replicas(1)
	if err != nil || r.N != 1 {
		g.t.Fatal(r, err)
	}
	return rep.PostBackup(&r, 0, ops)
}

// newSharing returns a group in which memory node 0 serves number 0, and has a backup of number 1, and the lanes of a compute node to both.
func newSharing(t *testing.T, mn0 ...func(*Options)) (g *group, own, other *lane) {
	g = newSilenceGroup(t, mn0...)
	peertest.Await(t, "number 1 is served", func() bool {
		return g.port.Reattach(1, g.n.MemoryEpoch(1)) == nil && g.port.Do([]fabric.Op{fabric.Load(wordOf1)}) == nil
	})
	p, err := g.copyOf1(fabric.Store(wordOf1, 1)) // there is a lane
	if err == nil {
		err = g.port.Wait(p)
	}
	if err != nil {
		t.Fatal(err)
	}
	own = remoteOf(g.n, 0).lanes[0]
	for _, r := range *g.n.backupsOf(1) {
		other = r.lanes[0]
	}
	if w := own.wire.Load(); w == nil || !w.shared || other.wire.Load() != w {
		t.Fatal("the lanes to one memory node share no wire")
	}
	return g, own, other
}

func (n *node) backupsOf(id fabric.MemID) *[]*remote {
	list := new([]*remote)
	for m := range n.Remotes {
		if m.MN.ID == id && m.Backup != 0 {
			*list = append(*list, lanesOf(m))
		}
	}
	return list
}

// served returns the connection by which a lane was let in.
func (g *group) served(s *MemoryServer, l *lane) *laneConn {
	r := l.r
	return s.connOf(g.t, laneKey{g.n.Own.Incarnation, l.index, target{id: r.MN.ID, replica: r.Backup, epoch: r.MN.Epoch}})
}

// A promotion cuts one lane of those that share a wire. What is under way on the other succeeds.
func TestPromotionCutsOneLane(t *testing.T) {
	g, own, other := newSharing(t)
	wire, first := other.wire.Load(), g.served(g.p, own)
	conn := g.served(g.p, other)
	conn.exec.Lock() // it is not executed yet
	pending, err := g.copyOf1(fabric.FAA(wordOf1, 1))
	if err != nil {
		t.Fatal(err)
	}
	epoch := g.now().Epoch
	g.wish(member.Promote, g.now().Replicas[1].Host)
	peertest.Await(t, "the compute node knows", func() bool { return g.n.MemoryEpoch(0) > epoch })
	peertest.Await(t, "the lane to number 0 is cut", first.isCut)
	time.Sleep(20 * time.Millisecond)
	conn.exec.Unlock()
	if err := g.port.Wait(pending); err != nil {
		t.Errorf("a chain on the lane that is not cut: %v", err)
	}
	if other.wire.Load() != wire {
		t.Error("the lane that is not cut has been connected anew")
	}
	g.usable(g.port)
}

// A lane breaks while a frame of it waits on the wire, and is connected anew: the frame is executed once.
func TestFrameOfALaneOfBefore(t *testing.T) {
	g, own, _ := newSharing(t)
	g.frameOfBefore(own)
	if got := g.word(g.p); got != 1 {
		t.Errorf("an FAA was executed %d times", got)
	}
}

// frameOfBefore posts an FAA, and connects its lane anew while the frame waits at the memory node.
func (g *group) frameOfBefore(own *lane) {
	t := g.t
	t.Helper()
	wire := own.wire.Load()
	shared := g.p.sharedOf(g.n)
	shared.exec.Lock() // what comes on the wire waits
	pending, err := g.port.Post([]fabric.Op{fabric.FAA(peertest.Word, 1)})
	if err != nil {
		t.Fatal(err)
	}
	before := own.conn.Load()
	breakConn(own)
	var now *stream
	peertest.Await(t, "the lane is connected anew", func() bool { now = own.conn.Load(); return now != nil && now != before })
	if own.wire.Load() != wire {
		t.Error("it is on another wire")
	}
	shared.exec.Unlock()
	if err := g.port.Wait(pending); err != nil {
		t.Error(err)
	}
	peertest.Do(t, g.port, fabric.Load(peertest.Word))
	if own.wire.Load() != wire {
		t.Error("the wire has broken")
	}
	if own.conn.Load() != now {
		t.Error("the lane has broken again")
	}
}

func (s *MemoryServer) sharedOf(n *node) (c *laneConn) {
	s.peer.Mu.Lock()
	defer s.peer.Mu.Unlock()
	return s.shared[laneKey{n.Own.Incarnation, 0, target{}}].conn.Load()
}

// A wire breaks: its lanes are connected again, and share another one. What was executed is not executed again.
func TestSharedWireBreaks(t *testing.T) {
	g, own, other := newSharing(t)
	for i := range uint64(20) {
		wire := own.wire.Load()
		var pending [2]fabric.Pending
		var err [2]error
		pending[0], err[0] = g.port.Post([]fabric.Op{fabric.FAA(peertest.Word, 1)})
		pending[1], err[1] = g.copyOf1(fabric.Store(wordOf1, i))
		wire.conn.end()
		for k := range pending {
			if err[k] == nil {
				err[k] = g.port.Wait(pending[k])
			}
			if err[k] != nil && !errors.Is(err[k], fabric.ErrUnknownOutcome) {
				t.Fatal(err[k])
			}
		}
		peertest.Await(t, "both are connected again", func() bool {
			_ = g.port.Do([]fabric.Op{fabric.Load(peertest.Word)}) // it finds that the wire has broken
			w := own.wire.Load()
			return w != nil && w != wire && w.shared && other.wire.Load() == w
		})
		if got := g.word(g.p); got > i+1 {
			t.Fatalf("%d FAAs were executed %d times", i+1, got)
		}
	}
}

// On a shared connection a compute node reaches nothing to which no lane of its own leads.
func TestSharedConnectionLetsNothingIn(t *testing.T) {
	g, own, _ := newSharing(t)
	h := hello{role: roleShared, cn: uint8(g.n.Own.ID), index: 9, caps: capMasked, from: uint64(g.n.Own.Incarnation), to: uint64(g.p.peer.Own.Incarnation)}
	s, _, err := dial(t.Context(), &g.n.Config, peer.MemoryNode(0, g.p.peer.Own.Addr), h, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	frame, _, count, _ := appendChain(nil, []fabric.Op{fabric.FAA(peertest.Word, 1)}, cursor{})
	f := header{length: len(frame), kind: frameChain, count: count, number: laneNumber(own.posted.Load(), own.tag)}
	f.put(frame)
	if err := s.write(frame); err != nil {
		t.Fatal(err)
	}
	var answer header
	var b [headerSize]byte
	peertest.Await(t, "an answer", func() bool {
		_, err := s.read(b[:])
		return err == nil
	})
	if ok, err := answer.parse(b[:]); !ok || err != nil || answer.status != statusCut || answer.number != f.number {
		t.Errorf("%+v, %v", answer, err)
	}
	if got := g.word(g.p); got != 0 {
		t.Errorf("the word is %d", got)
	}
}

// letIn lets a lane in again, as the memory node does when the lane says hello.
func (g *group) letIn(s *MemoryServer, l *lane) (reply, func(*stream)) {
	g.t.Helper()
	h := l.r.hello(roleLane, l.index, l.posted.Load())
	h.number |= uint64(l.tag) << 32
	s.peer.Mu.Lock()
	defer s.peer.Mu.Unlock()
	r, take, err := s.enter(&guest{hello: h})
	if err != nil {
		g.t.Fatal(err)
	}
	return r, take
}

// A lane is let in, and the connection is lost when that has been answered: its node may go on, on a connection that lanes share. What it has sent is not executed at the new primary.
func TestLaneWhoseConnectionWasLost(t *testing.T) {
	g, _, other := newSharing(t)
	_, take := g.letIn(g.p, other)
	g.p.peer.Mu.Lock()
	region := g.p.copyOf(1)
	g.p.peer.Mu.Unlock()
	take(nil)
	shared := g.p.sharedOf(g.n)
	shared.exec.Lock() // the process stands still
	pending, err := g.copyOf1(fabric.Store(wordOf1, 5))
	if err != nil {
		t.Fatal(err)
	}
	x := g.State().Group(1)
	if err := g.Members.Change(context.Background(), member.Change{ID: 1, Kind: member.Promote, Host: x.Replicas[1].Host, Seen: x.Changed}); err != nil {
		t.Fatal(err)
	}
	peertest.Await(t, "promoted", func() bool {
		y := g.State().Group(1)
		return y.Epoch != x.Epoch && y.Serving && y.Primary() == g.p.Member().Incarnation
	})
	shared.exec.Unlock()
	if err := g.port.Wait(pending); err == nil {
		t.Error("the WRITE has succeeded")
	}
	time.Sleep(50 * time.Millisecond)
	if got := g.wordOf(region); got != 1 {
		t.Errorf("a WRITE of the epoch before was executed at the new primary: the word is %d", got)
	}
}

// A lane is let in again while a frame of it is executed that has come on a connection that lanes share, and while its own connection of before ends: the memory node waits for the
// frame before it says which it has executed.
func TestLaneLetInWhileAFrameIsExecuted(t *testing.T) {
	g, own, _ := newSharing(t)
	conn := g.served(g.p, own)
	conn.exec.Lock() // a frame is executed
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		conn.cut()
	}()
	peertest.Await(t, "the connection is being cut", conn.ends.Load)
	answered := make(chan uint64)
	go func() {
		r, take := g.letIn(g.p, own)
		answered <- r.number
		take(nil)
	}()
	select {
	case n := <-answered:
		t.Errorf("%d frames are said to have been executed, while another is", n)
		go func() { answered <- n }()
	case <-time.After(20 * time.Millisecond):
	}
	conn.lane.executed++ // it has been
	want := uint64(conn.lane.executed)
	conn.exec.Unlock()
	if got := <-answered; got != want {
		t.Errorf("%d frames are said to have been executed, and %d were", got, want)
	}
	<-ended
}

// A frame comes of which those before are missing: its lane is cut, and connected anew. It is not executed, and the other lanes go on.
func TestMissingFrameCutsOneLane(t *testing.T) {
	reports := make(chan bool, 10)
	var shared atomic.Pointer[laneConn]
	g, own, other := newSharing(t, func(o *Options) {
		o.Report = func(error) {
			c := shared.Load()
			free := c != nil && c.exec.TryLock()
			if free {
				c.exec.Unlock()
			}
			reports <- free
		}
	})
	shared.Store(g.p.sharedOf(g.n))
	wire, conn, first := own.wire.Load(), own.conn.Load(), g.served(g.p, own)
	wire.mu.Lock()
	wire.writing = true // nothing is written
	wire.mu.Unlock()
	var pending [2]fabric.Pending
	for i := range pending {
		var err error
		if pending[i], err = g.port.Post([]fabric.Op{fabric.FAA(peertest.Word, 1)}); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			own.mu.Lock()
			own.pending = own.pending[:0] // it is lost
			own.mu.Unlock()
			wire.unclaim()
		}
	}
	peertest.Await(t, "the lane is cut", first.isCut)
	for _, p := range pending {
		if err := g.port.Wait(p); err != nil {
			t.Error(err)
		}
	}
	if own.conn.Load() == conn {
		t.Error("the lane was not connected anew")
	}
	if free := <-reports; !free {
		t.Error("what reports a missing frame keeps others from executing")
	}
	if got := g.word(g.p); got != 2 {
		t.Errorf("2 FAAs were executed %d times", got)
	}
	if w := other.wire.Load(); w != wire {
		t.Error("the wire has broken")
	}
}

// A lane that ends does not wait while another connects the wire that they are to share.
func TestJoinOfALaneThatEnds(t *testing.T) {
	tr := newTrunk(new(atomic.Bool))
	tr.turn <- struct{}{} // another does
	ctx, cancel := context.WithCancel(t.Context())
	joined := make(chan *wire, 1)
	go func() { joined <- tr.join(&lane{ctx: ctx}) }()
	cancel()
	select {
	case w := <-joined:
		if w != nil {
			t.Error("it is on a wire")
		}
	case <-time.After(5 * time.Second):
		t.Error("it waits")
	}
}

// Lanes that cannot share a connection go on without. That is reported once for all lanes to the memory node, whatever the errors are, and again when they could meanwhile.
func TestNoSharedConnectionIsReported(t *testing.T) {
	reports := make(chan error, 10)
	g := newGroupWith(t, func(*Options) {}, func(*Options) {}, func(o *Options) { o.Report = func(err error) { reports <- err } })
	x := remoteOf(g.n, 0)
	of := func(change func(*peer.Served)) *lane {
		r := &remote{n: x.n, Remote: peer.Remote{Node: x.Node, Served: x.Served}}
		change(&r.Served)
		return &lane{r: r, ctx: t.Context()}
	}
	before := of(func(m *peer.Served) { m.MN.Incarnation++ }) // it was there before
	away := of(func(m *peer.Served) { m.MN.Addr = "127.0.0.1:1" })
	said := new(atomic.Bool)
	expect := func(want int, lanes ...*lane) {
		t.Helper()
		for _, l := range lanes {
			for range 2 {
				if newTrunk(said).join(l) != nil {
					t.Fatal("it is on a wire")
				}
			}
		}
		if n := len(reports); n != want {
			t.Errorf("%d reports, want %d", n, want)
		}
	}
	expect(1, before, away)
	there := of(func(*peer.Served) {})
	w := newTrunk(said).join(there)
	if w == nil {
		t.Fatal("it is on no wire")
	}
	w.leave(there)
	expect(2, away, before)
}

// A wire fails when a lane has been put on it, and is not known to be up on it yet: the lane is connected anew.
func TestWireThatFailsBeforeALaneIsUp(t *testing.T) {
	g, own, _ := newSharing(t)
	own.lead.Lock()
	breakConn(own)
	first := own.posted.Load()
	conn, r, err := own.r.dial(t.Context(), own.index, first)
	if err != nil {
		t.Fatal(err)
	}
	w := own.ride(conn, &r)
	w.fail(errors.New("lost")) // the lane is on no wire, as far as it knows
	own.mu.Lock()
	own.resume(conn, w, &r, first)
	own.mu.Unlock()
	own.lead.Unlock()
	within(t, "a chain after the wire has failed", func() {
		if err := g.port.Do([]fabric.Op{fabric.FAA(peertest.Word, 1)}); err != nil {
			t.Error(err)
		}
	})
	if now := own.wire.Load(); now == w || now == nil {
		t.Error("the lane is on the wire that has failed, or on none")
	}
}

// A compute node has gone: the memory node keeps none of the connections that its lanes shared.
func TestSharedConnectionsOfAGoneNode(t *testing.T) {
	g, _, _ := newSharing(t)
	conn, inc := g.p.sharedOf(g.n), g.n.Own.Incarnation
	g.Kill(0)
	peertest.Await(t, "the memory node has nothing of them", func() bool {
		g.p.peer.Mu.Lock()
		defer g.p.peer.Mu.Unlock()
		for k := range g.p.shared {
			if k.incarnation == inc {
				return false
			}
		}
		return true
	})
	if !conn.isCut() {
		t.Error("it is forgotten, and not cut")
	}
}

// advance has the next frame of a lane have a number: frames of it were sent as often as that takes.
func (g *group) advance(l *lane, next uint32) {
	g.t.Helper()
	for l.posted.Load() != next {
		conn, left := l.conn.Load(), next-l.posted.Load()
		l.lead.Lock()
		l.mu.Lock()
		l.broke(conn, errors.New("broken"))
		to := l.posted.Load() + min(left, 1<<30) // numbers are compared by their difference
		l.posted.Store(to)
		l.answered.Store(to)
		l.written = to
		l.mu.Unlock()
		l.lead.Unlock()
		peertest.Await(g.t, "the lane is connected anew", func() bool { c := l.conn.Load(); return c != nil && c != conn })
	}
}

// Numbers of frames wrap on a connection that lanes share: chains go on; and what is left of before a lane was connected anew comes to nothing, though its number is the greater.
func TestFrameNumbersWrapOnASharedConnection(t *testing.T) {
	g, own, _ := newSharing(t)
	g.advance(own, ^uint32(0)-10)
	conn, wire := own.conn.Load(), own.wire.Load()
	var pending []fabric.Pending
	for range 30 {
		p, err := g.port.Post([]fabric.Op{fabric.FAA(peertest.Word, 1)})
		if err != nil {
			t.Fatal(err)
		}
		pending = append(pending, p)
	}
	for _, p := range pending {
		if err := g.port.Wait(p); err != nil {
			t.Fatal(err)
		}
	}
	if own.conn.Load() != conn || own.wire.Load() != wire {
		t.Error("a connection has broken")
	}
	for next := ^uint32(0); next != 2; next++ {
		g.advance(own, next-1)
		peertest.Do(t, g.port, fabric.Load(peertest.Word))
		before := g.word(g.p)
		if got := own.posted.Load(); got != next {
			t.Fatalf("the next frame is %#x, and not %#x", got, next)
		}
		g.frameOfBefore(own)
		if got := g.word(g.p) - before; got != 1 {
			t.Errorf("an FAA that began as frame %#x was executed %d times", next, got)
		}
	}
}
