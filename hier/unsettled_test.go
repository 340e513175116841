package hier

import (
	"testing"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/timesync"
)

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
	table.unsettle(a)
	table.unsettle(far)
	marks := table.marks()
	table.unsettle(b)
	settled(false, a, b, far)
	table.settle(0, marks)
	settled(true, a)
	settled(false, b, far)
	table.unsettle(far) // again, after the READ was posted
	table.settle(1, marks)
	settled(false, far)
	table.settle(1, table.marks())
	settled(true, far)
}

// A table that is full marks whole memory nodes.
func TestUnsettledMemoryNode(t *testing.T) {
	table := NewTable(Policy{})
	for i := range maxStuck + 1 {
		table.unsettle(fabric.At(0, uint64(64+64*i)))
	}
	if n := len(table.unsettled.locks); n > maxStuck+1 {
		t.Errorf("%d locks are marked", n)
	}
	if never := fabric.At(0, 1<<40-64); table.settled(never) {
		t.Error("a lock that may have been forgotten counts as settled")
	}
	if far := fabric.At(1, 64); !table.settled(far) {
		t.Error("a lock of another memory node is unsettled")
	}
	table.settle(0, table.marks())
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
	p := &readingPort{Port: n.Agent(), meanwhile: func() { table.unsettle(late) }}
	a := NewAgent(table, &readingNode{n, p}, new(timesync.Clock), Config{Layout: cql.Layout{CapacityBits: 3, VersionBits: 16}}, SyncConfig{IntervalNs: -1})
	table.unsettle(before)
	if a.troubleOver(mn) {
		t.Error("the agent does not look again, and a lock is marked")
	}
	if !table.settled(before) || table.settled(late) {
		t.Errorf("settled: %v, marked before the READ, and %v, marked meanwhile", table.settled(before), table.settled(late))
	}
	p.meanwhile = nil
	if !a.troubleOver(mn) || !table.settled(late) {
		t.Error("a lock is marked after the next READ")
	}
}
