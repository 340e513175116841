package hier

import (
	"testing"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/timesync"
)

// A client that is admitted ends the leak that it knew of. Another client of the node may have left a ticket behind meanwhile:
// that one is not admitted yet, and counts until a client asks again.
func TestALaterLeakStays(t *testing.T) {
	l := fabric.At(0, 4096)
	var r recovery
	r.addLeak(l)
	known := r.leak(l)
	r.addLeak(l)
	r.endLeak(l, known)
	later := r.leak(l)
	if later == 0 {
		t.Fatal("the end of a leak has ended a later one")
	}
	if r.endLeak(l, later); r.leak(l) != 0 || r.mayLeak(l) || len(r.leftovers) != 0 {
		t.Errorf("after the last: leak %d, %d locks noted, shards %x", r.leak(l), len(r.leftovers), r.leaky.Load())
	}
}

// Of more leaks than a node keeps the older are forgotten, and what else is noted of their locks stays.
func TestTheOldestLeaksAreForgotten(t *testing.T) {
	var r recovery
	at := func(i int) fabric.Addr { return fabric.At(0, uint64(64+64*i)) }
	r.addUnsettled(at(0))
	for i := range maxLeaks + 1 {
		r.addLeak(at(i))
	}
	kept := 0
	for i := range maxLeaks + 1 {
		has := r.leak(at(i)) != 0
		if has {
			kept++
		}
		if old := i <= maxLeaks/2; has == old {
			t.Errorf("leak %d of %d: kept %v", i, maxLeaks+1, has)
		}
	}
	if kept != maxLeaks/2 || len(r.leftovers) != kept+1 || r.settled(at(0)) {
		t.Errorf("%d kept, of %d locks, %v settled: %v", kept, len(r.leftovers), at(0), r.settled(at(0)))
	}
}

// Of several tickets of a lock that could not be given up, the last index counts, and that a reader's is among them. They are taken once.
func TestUnreleasedTickets(t *testing.T) {
	var r recovery
	a, far := fabric.At(0, 64), fabric.At(1, 64)
	r.addUnreleased(&cql.Ticket{Lock: a, Index: 7, Mode: lock.Exclusive})
	r.addUnreleased(&cql.Ticket{Lock: a, Index: 5, Mode: lock.Shared})
	r.addUnreleased(&cql.Ticket{Lock: far, Index: 1, Mode: lock.Exclusive})
	r.addLeak(a)
	if list := r.takeUnreleased(0); len(list) != 1 || list[0].Index != 7 || list[0].Mode != lock.Shared {
		t.Errorf("unreleased: %+v", list)
	}
	if list := r.takeUnreleased(0); len(list) != 0 || r.leak(a) == 0 {
		t.Errorf("once taken: %+v, leak %d", list, r.leak(a))
	}
	if list := r.unreleasedOn(); len(list) != 1 || list[0] != 1 {
		t.Errorf("memory nodes with unreleased tickets: %v", list)
	}
}

// Locks that have been reset since a death are not suspected, but for another death.
func TestSuspicionOfAnotherCrash(t *testing.T) {
	var s recovery
	l, other := fabric.At(0, 64), fabric.At(0, 128)
	want := func(now fabric.Time, l fabric.Addr, want bool) {
		t.Helper()
		if got := s.suspects(l, now); got != want {
			t.Errorf("at %d: %v suspected: %v", now, l, got)
		}
	}
	want(1, l, false)
	s.suspect(1)
	s.clear(l, 2)
	want(3, l, false)
	want(3, other, true)
	s.suspect(4)
	want(5, l, true)
	want(4+suspicionNs, l, false)
}

// After the restart of a memory node, locks may count holders that do not know of them any more.
func TestSuspicionAfterARestart(t *testing.T) {
	table := NewTable(Policy{})
	l := fabric.At(0, 64)
	table.incarnationOf(0, 1, 1)
	if table.suspects(l, 2) {
		t.Error("a lock is suspected before anything has happened")
	}
	table.incarnationOf(0, 2, 3)
	if !table.suspects(l, 4) {
		t.Error("no lock is suspected after a restart")
	}
}

// A READ settles the locks that were marked before it was posted, at its memory node, and no others.
func TestUnsettledLocks(t *testing.T) {
	table := NewTable(Policy{})
	a, b, far := fabric.At(0, 64), fabric.At(0, 128), fabric.At(1, 64)
	settled := func(want bool, locks ...fabric.Addr) {
		t.Helper()
		for _, l := range locks {
			if got := table.settled(l); got != want {
				t.Errorf("%v: settled %v, want %v", l, got, want)
			}
		}
	}
	settled(true, a, b, far)
	table.addUnsettled(a)
	table.addUnsettled(far)
	marks := table.marked()
	table.addUnsettled(b)
	settled(false, a, b, far)
	table.settle(0, marks)
	settled(true, a)
	settled(false, b, far)
	table.addUnsettled(far) // again, after the READ was posted
	table.settle(1, marks)
	settled(false, far)
	table.settle(1, table.marked())
	settled(true, far)
}

// A table that is full marks whole memory nodes.
func TestUnsettledMemoryNode(t *testing.T) {
	table := NewTable(Policy{})
	for i := range maxLeftovers + 1 {
		table.addUnsettled(fabric.At(0, uint64(64+64*i)))
	}
	if n := len(table.leftovers); n > maxLeftovers+1 {
		t.Errorf("%d locks are marked", n)
	}
	if never := fabric.At(0, 1<<40-64); table.settled(never) {
		t.Error("a lock that may have been forgotten counts as settled")
	}
	if far := fabric.At(1, 64); !table.settled(far) {
		t.Error("a lock of another memory node is unsettled")
	}
	table.settle(0, table.marked())
	if !table.settled(fabric.At(0, 64)) {
		t.Error("a lock is unsettled after the READ")
	}
}

// A readingPort lets a test act while the agent's operations are under way.
type readingPort struct {
	fabric.Port
	meanwhile func()
}

func (p *readingPort) Do(ops []fabric.Op) error {
	err := p.Port.Do(ops)
	if p.meanwhile != nil {
		p.meanwhile()
	}
	return err
}

type readingNode struct {
	fabric.Node
	agent *readingPort
}

func (n *readingNode) Agent() fabric.Port { return n.agent }

// A lock is marked while the agent's READ is under way: what it stands for may have been posted after the READ, which settles it not.
func TestMarkWhileTheAgentReads(t *testing.T) {
	c := sim.New(sim.Config{})
	defer c.Close()
	mn := c.AddMN(1 << 16)
	n := c.AddCN()
	table := NewTable(Policy{})
	before, late := fabric.At(mn, 64), fabric.At(mn, 128)
	p := &readingPort{Port: n.Agent(), meanwhile: func() { table.addUnsettled(late) }}
	a := NewAgent(table, &readingNode{n, p}, new(timesync.Clock), Config{Layout: cql.Layout{CapacityBits: 3, VersionBits: 16}}, SyncConfig{IntervalNs: -1})
	table.addUnsettled(before)
	if done(a.reachable(mn)) {
		t.Error("the agent does not look again, and a lock is marked")
	}
	if !table.settled(before) || table.settled(late) {
		t.Errorf("settled: %v, marked before the READ, and %v, marked meanwhile", table.settled(before), table.settled(late))
	}
	p.meanwhile = nil
	if !done(a.reachable(mn)) || !table.settled(late) {
		t.Error("a lock is marked after the next READ")
	}
}

func done(_, done bool) bool { return done }
