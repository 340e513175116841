package tcp

import (
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/declock/declock/coordinator/coordtest"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/fabrictest"
	"github.com/declock/declock/fabric/internal/peer"
	"github.com/declock/declock/fabric/internal/peertest"
	"github.com/declock/declock/fabric/member"
	"github.com/declock/declock/internal/boottime"
	"golang.org/x/sys/unix"
)

const soonDead = time.Second

// leaveOf returns the leave of a child.
func leaveOf(t *testing.T, s *MemoryServer, a *process) *leave {
	t.Helper()
	s.peer.Mu.Lock()
	defer s.peer.Mu.Unlock()
	for _, l := range s.leaves {
		if l.incarnation == a.incarnation {
			return l
		}
	}
	t.Fatal("the child is lent nothing")
	return nil
}

// livesOf returns what reports whether the process of a leave lives.
func livesOf(t *testing.T, l *leave) func() bool {
	t.Helper()
	fd, err := unix.PidfdOpen(l.process.pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return func() bool { return !borrower{l.process.pid, fd}.hasEnded() }
}

// try executes a chain by the CPU, if it is allowed.
func (l *local) try() bool {
	ops := []fabric.Op{fabric.FAA(peertest.Word, 1)}
	return l.execute(&chain{ops: ops, all: ops}, 7, ownTallies)
}

// The memory of a memory node that stands still is used until a time before which no other serves its number, though it has no replicas: its compute nodes may have been given
// up too, and hear of nothing. When it goes on its memory is used again.
func TestLocalMemoryNodeStopped(t *testing.T) {
	c := newTestCluster(t)
	defer c.Close()
	m := start(t, childSpec{Role: "serve", Coordinator: coordtest.Serve(t, c.Members.Now()), Size: 1 << 20, Local: true, DeadAfter: soonDead})
	c.change = lends
	l := localOf(c.Join(), 0)
	for range 30 { // several times as long as it may be used after the last word
		time.Sleep(soonDead / 10)
		peertest.Await(t, "it is used", l.try)
	}
	m.Signal(syscall.SIGSTOP)
	time.Sleep(soonDead * 6 / 10)
	if l.try() {
		t.Error("it is used when another memory node may serve the number")
	}
	m.Signal(syscall.SIGCONT)
	peertest.Await(t, "it is used again", l.try)
}

// A memory node stands still shortly before its lease ends, long before half of DeadAfter is over: its memory is used until the lease ends, and not after that, for another may serve
// the number then, though it has no replicas.
func TestLocalLapsedSoon(t *testing.T) {
	c := newTestCluster(t)
	c.change = func(o *Options) { o.Local, o.DeadAfter = true, time.Minute }
	c.Start(fabrictest.Config{Mem: []uint64{1 << 20}, CNs: 1})
	defer c.Close()
	peertest.Await(t, "memory is lent", func() bool { return localOf(c.Nodes[0], 0) != nil })
	l, s := localOf(c.Nodes[0], 0), c.Servers[0]
	until := boottime.Now() + 200*time.Millisecond
	s.peer.Mu.Lock() // it says nothing more
	defer s.peer.Mu.Unlock()
	c.way.of(s.peer.Own.Incarnation).until.Store(int64(until))
	s.renewLeaves()
	if used := l.try(); !used && boottime.Now() < until {
		t.Error("it is not used while the lease lasts")
	}
	time.Sleep(until - boottime.Now() + 20*time.Millisecond) // the clock that is looked at ticks
	if l.try() {
		t.Error("it is used when another memory node may serve the number")
	}
}

// A compute node stands still, its memory node ends and another serves the number: when it goes on it executes nothing where others do not see it.
func TestLocalStoppedWhileMemoryNodeEnds(t *testing.T) {
	c := newTestCluster(t)
	defer c.Close()
	coord := coordtest.Serve(t, c.Members.Now())
	serve := childSpec{Role: "serve", Coordinator: coord, Size: 1 << 20, Local: true, DeadAfter: soonDead}
	m := start(t, serve)
	n := c.Join()
	a := start(t, childSpec{Role: "sleeper", Coordinator: coord, Local: true})
	p := peertest.Open(t, n)
	peertest.Await(t, "it is at work", func() bool { return peertest.Do(t, p, fabric.Load(fabric.At(0, 64)))[0].Old > 100 })
	a.Signal(syscall.SIGSTOP)
	m.Kill()
	c.Members.Now().Kill(m.incarnation)
	c.Members.Now().Kill(a.incarnation)
	start(t, serve)
	peertest.Await(t, "it is out of the view", func() bool { return !n.View().Live.Has(a.id.CN()) })
	time.Sleep(soonDead)
	a.Signal(syscall.SIGCONT)
	if line := a.Line("after"); !strings.HasPrefix(line, "after 0 ") {
		t.Errorf("%s: operations that succeed in memory which is another's", line)
	}
	a.Kill()
}

// What a chain has returned does not count if another memory node may have served the number by then.
func TestLocalResultsTooLate(t *testing.T) {
	c := newLocalCluster(t, 1)
	defer c.Close()
	l := localOf(c.Nodes[0], 0)
	ops := []fabric.Op{fabric.FAA(peertest.Word, 1)}
	x := &chain{ops: ops, all: ops}
	l.conclude(x, 1)
	if x.refusal != nil {
		t.Error(x.refusal)
	}
	l.control.until().Store(0)
	if l.conclude(x, 1); !errors.Is(x.refusal, fabric.ErrUnknownOutcome) {
		t.Errorf("too late: %v", x.refusal)
	}
}

// A process that runs is waited for as long as DeadAfter: a goroutine that is in the middle of a chain may wait for all others of its program.
func TestLocalBusyProcessIsAwaited(t *testing.T) {
	c := newTestCluster(t)
	defer c.Close()
	c.change = func(o *Options) { lends(o); o.DeadAfter = 3 * time.Second }
	s := c.Serve(0, 1<<20)
	n := c.Join()
	coord := coordtest.Serve(t, c.Members.Now())
	for _, ends := range []bool{true, false} {
		a := start(t, childSpec{Role: "slow adder", Coordinator: coord, Local: true})
		l := leaveOf(t, s, a)
		lives := livesOf(t, l)
		const slot = controlSlots // of no Port of the child
		l.control.word(8 * slot).Add(1)
		c.Members.Now().Kill(a.incarnation)
		time.Sleep(time.Second)
		if !lives() || !n.View().Live.Has(a.id.CN()) {
			t.Fatal("it is not waited for")
		}
		if ends {
			l.control.end(slot)
		}
		peertest.Await(t, "it is out of the view", func() bool { return !n.View().Live.Has(a.id.CN()) })
		if lives() != ends {
			t.Errorf("its chain ends: %v; it lives: %v", ends, !ends)
		}
		a.Kill()
	}
}

// Many that are stopped in the middle of a chain cost one wait.
func TestLocalManyStopped(t *testing.T) {
	c := newTestCluster(t)
	defer c.Close()
	c.change = func(o *Options) { lends(o); o.DeadAfter = 10 * time.Second }
	s := c.Serve(0, 1<<20)
	coord := coordtest.Serve(t, c.Members.Now())
	var lives []func() bool
	var list []*process
	for range 4 {
		list = append(list, start(t, childSpec{Role: "slow adder", Coordinator: coord, Local: true}))
	}
	for _, a := range list {
		l := leaveOf(t, s, a)
		l.control.word(8 * controlSlots).Add(1)
		a.Signal(syscall.SIGSTOP)
		lives = append(lives, livesOf(t, l))
	}
	s.peer.Mu.Lock()
	looks := s.takeBack(func(*leave) bool { return true })
	s.peer.Mu.Unlock()
	if looks > 3*looksBeforeKill {
		t.Errorf("it looked %d times", looks)
	}
	for _, lives := range lives {
		if lives() {
			t.Error("one lives, and may go on")
		}
	}
}

// A memory node that ends waits for chains, too.
func TestLocalEndOfMemoryNodeWaits(t *testing.T) {
	c := newLocalCluster(t, 1)
	defer c.Close()
	// Close has compute nodes acknowledge it, too, which wait for their own chains.
	waitsForAChain(t, localOf(c.Nodes[0], 0), func() { c.Servers[0].peer.Quit(nil) })
}

// What is executed on a replicated number does not count if the compute node's lease has run out by its end.
func TestLocalLapsedComputeNode(t *testing.T) {
	g := localHarness{harness{change: lends}}.StartReplicated(t, fabrictest.Config{Mem: []uint64{1 << 20, 1 << 20}, CNs: 1}).(*group)
	defer g.Close()
	n := g.Nodes[0]
	p := peertest.Open(t, n).(*port)
	peertest.Await(t, "memory is lent", func() bool { return localOf(n, 0) != nil })
	ops := peertest.Do(t, p, fabric.FAA(peertest.Word, 1))
	l := localOf(n, 0)
	c := p.take(0, ops) // that chain, as if it ended now
	c.r = l.r
	g.way.of(n.Own.Incarnation).lapsed.Store(true)
	l.conclude(c, len(ops))
	if err := p.End(0); !errors.Is(err, fabric.ErrUnknownOutcome) {
		t.Error(err)
	}
}

// A compute node whose lease has run out executes nothing on a replicated number: others may have the locks of it by now.
func TestLocalLapsedExecutesNothing(t *testing.T) {
	g := localHarness{harness{change: lends}}.StartReplicated(t, fabrictest.Config{Mem: []uint64{1 << 20, 1 << 20}, CNs: 1}).(*group)
	defer g.Close()
	n := g.Nodes[0]
	p := peertest.Open(t, n)
	peertest.Await(t, "memory is lent", func() bool { return localOf(n, 0) != nil })
	l := localOf(n, 0)
	if !l.try() {
		t.Fatal("it is not used")
	}
	before := g.word(g.Servers[0])
	g.way.of(n.Own.Incarnation).lapsed.Store(true)
	if l.try() {
		t.Error("a chain is executed here")
	}
	if err := p.Do([]fabric.Op{fabric.FAA(peertest.Word, 1)}); !errors.Is(err, fabric.ErrFenced) {
		t.Error(err)
	}
	if got := g.word(g.Servers[0]); got != before {
		t.Errorf("the word was %d and is %d", before, got)
	}
}

// Processes that connect and say nothing are closed for others that come.
func TestLocalCrowd(t *testing.T) {
	c := newLocalCluster(t, 0)
	defer c.Close()
	var first net.Conn
	for i := range peer.MaxStrangers + 1 {
		x, err := net.DialUnix("unixpacket", nil, leaveSocket(c.Servers[0].peer.Own.Addr))
		if err != nil {
			t.Fatal(err)
		}
		defer x.Close()
		if i == 0 {
			first = x
		}
	}
	_ = first.SetDeadline(time.Now().Add(handshakeTimeout / 2))
	for n, err := 1, error(nil); n > 0; { // it is asked for a hello, and then closed
		if n, err = first.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("the first is still open")
		}
	}
}

// lentOf returns the memory node that is the primary of number 0, or has its backup, and how a compute node reaches the copy by its CPU.
func (g *group) lentOf(backup bool) (s *MemoryServer, l *local) {
	g.t.Helper()
	peertest.Do(g.t, g.port, fabric.FAA(peertest.Word, 1))
	g.backupDo(fabric.Store(peertest.Word, 1))
	s = g.p
	r := remoteOf(g.n, 0)
	if backup {
		s = g.b
		for m := range g.n.Remotes {
			if m.Backup != 0 {
				r = lanesOf(m)
			}
		}
	}
	peertest.Await(g.t, "memory is lent", func() bool { l = r.short.local.Load(); return l != nil })
	return s, l
}

// A memory node acknowledges a promotion when nothing is executed by leaves of the epoch before, of a compute node that does not hear of it either: not in the memory of the
// primary that is no more, nor in that of the backup which serves now.
func TestLocalPromotionWaits(t *testing.T) {
	for _, backup := range []bool{false, true} {
		g := newGroupWith(t, lends, lends, lends)
		s, l := g.lentOf(backup)
		const slot = 7
		if !l.control.begin(slot, &l.over) {
			t.Fatal("refused")
		}
		deaf := g.way.of(g.n.Own.Incarnation)
		deaf.detach()
		g.wish(member.Promote, g.now().Replicas[1].Host)
		revision := g.State().Revision
		acked := func() bool { return g.way.of(s.peer.Own.Incarnation).hasAcked(revision) }
		time.Sleep(50 * time.Millisecond)
		if acked() {
			t.Errorf("backup %v: it has acknowledged the promotion while a chain is executed", backup)
		}
		l.control.end(slot)
		peertest.Await(t, "it has acknowledged the promotion", acked)
		if l.try() {
			t.Errorf("backup %v: a chain of the epoch before is executed", backup)
		}
		deaf.reattach()
	}
}

// The memory of a copy is given back, or zeroed for the next one, when nothing is executed there by leaves, and none begins: whether it was the memory node's own, or another's number.
func TestLocalDroppedCopyWaits(t *testing.T) {
	for _, backup := range []bool{false, true} {
		g := newGroupWith(t, lends, lends, lends)
		s, l := g.lentOf(backup)
		waitsForAChain(t, l, func() {
			s.peer.Mu.Lock()
			defer s.peer.Mu.Unlock()
			s.dropCopy(s.copyOf(0))
		})
	}
}
