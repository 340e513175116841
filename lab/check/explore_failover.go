package check

import (
	"fmt"
	"strings"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/oracle"
	"github.com/declock/declock/memory"
)

// Programs of a lock on a memory-node number that has a backup, and whose primary ends or is given up at any point (docs/replication.md). Holders write the cell at the backup
// before the chain of the release writes it at the primary, as stores do, so it outlasts that. Clients "r" read it without the lock.

// A Failover says how the primary of a memory-node number comes to be replaced.
type Failover uint8

// It is not; the coordinator gives it up, and its NIC goes on serving those that have not heard of that; it crashes.
const (
	Stays Failover = iota
	GivenUp
	Ends
)

// failoverNames are the words for failovers.
var failoverNames = [...]string{Stays: "", GivenUp: ", primary given up", Ends: ", primary ends"}

// replicatedBytes is the size of a memory node with a backup: its lock is behind all that is known of it.
const replicatedBytes = 1 << 16

// addMemory adds the memory node of the lock.
func (g *exploring) addMemory() {
	if g.x.Failover == Stays {
		mn := g.c.AddMN(4096)
		if g.x.Second {
			mn = g.c.AddMN(4096)
		}
		g.lock = fabric.At(mn, 1024)
		return
	}
	mn := g.c.AddReplicatedMN(replicatedBytes, 2)
	g.c.AddBackup(mn, g.c.AddMN(4096))
	g.lock = fabric.At(mn, replicatedBytes-1024)
}

// format makes the memory of the lock a region, and has its primary end at any point.
func (g *exploring) format() {
	if g.x.Failover == Stays {
		return
	}
	mn := g.lock.MN()
	p, err := g.nodes[0].sim.Open()
	if err == nil {
		err = memory.Format(p, mn, memory.Params{Size: replicatedBytes, CapacityLog2: g.x.Capacity, VersionBits: g.x.Version, Factor: 2})
	}
	if err == nil {
		g.region, err = memory.Open(p, mn)
	}
	if err != nil {
		panic(err)
	}
	_ = p.Close()
	if g.x.Failover == Ends {
		g.c.Sometime("the primary ends", nil, func() { g.c.KillMN(mn) })
	} else {
		g.c.Sometime("the primary is given up", nil, func() { g.c.FenceMN(mn) })
	}
}

// mirror writes what a holder is about to write at the primary to the backups. With an error, they may have it or not.
func (g *exploring) mirror(p fabric.Port, ops []fabric.Op) error {
	if g.region == nil {
		return nil
	}
	b, err := g.region.Backups(p)
	if err == nil {
		err = b.Write(ops, 0)
	}
	return err
}

// A register judges reads of the cell without the lock, of which one client writes 1, 2, 3 and so on: a read finds nothing older than what was
// acknowledged, or read, before it began, and nothing that has not been begun to be written.
type register struct {
	begun, acked, seen uint64
	least              uint64 // that the read under way may find; there is one client that reads
}

// onlyReads reports whether the clients of a compute node use no lock, so that it needs no agent.
func (x *Exploration) onlyReads(cn int) bool {
	return strings.Contains(x.Clients, fmt.Sprintf("%dr", cn)) && !strings.Contains(x.Clients, fmt.Sprintf("%dx", cn)) && !strings.Contains(x.Clients, fmt.Sprintf("%ds", cn))
}

// reader is a client that reads the cell without the lock.
func (g *exploring) reader(n *node, p fabric.Port) {
	for i := range 2 * g.x.Rounds {
		g.c.Forget(uint64(i))
		g.read(p, n)
	}
	g.c.Forget(uint64(2 * g.x.Rounds))
}

// read has a client read the cell, where it is served.
func (g *exploring) read(p fabric.Port, n *node) {
	mn, r := g.lock.MN(), &g.register
	r.least, g.moved = max(r.acked, r.seen), true
	ops := [1]fabric.Op{fabric.Load(g.cell())}
	err := p.Do(ops[:])
	for ; err != nil; err = p.Do(ops[:]) {
		if !ofRestart(err) {
			g.c.Fail(fmt.Errorf("read: %w", err))
			return
		}
		_ = p.Pause(p.Now() + fabric.Millisecond)
		_ = p.Reattach(mn, n.sim.MemoryEpoch(mn)) // else it fails again
	}
	g.c.Witness()
	g.moved = true
	value := ops[0].Old & 0xff
	if r.seen = max(r.seen, value); value < r.least || value > r.begun {
		g.c.Fail(fmt.Errorf("%v read %d without the lock: %d was acknowledged or read before, and %d are begun", p.ID(), value, r.least, r.begun))
	}
	r.least = 0
	if g.last != nil {
		g.last.keep(p.ID(), fmt.Sprintf("* read %d", value))
	}
}

// follow notes the writes of the one client that writes. (Of several no order is known.)
func (r *register) follow(e *oracle.Event) {
	switch {
	case !e.Writes:
	case e.Kind == oracle.Releasing:
		r.begun = max(r.begun, e.Value&0xff)
	case e.Kind == oracle.Released && e.Err == nil:
		r.acked = max(r.acked, e.Value&0xff)
	}
}

// failoverExplorations adds the programs of failovers.
func failoverExplorations(small bool, add func(x Exploration, clients ...string)) {
	for _, p := range []string{"cql", "declock"} {
		x := Exploration{Policy: p, Rounds: 1, Capacity: 2, Version: 27}
		for x.Failover = GivenUp; x.Failover <= Ends; x.Failover++ {
			add(x, "1x", "1x 2r")
			if small {
				continue
			}
			add(x, "1x 2x", "1s 2x")
			news, twice := x, x
			news.News, twice.Rounds = true, 2
			add(news, "1x", "1x 2r", "1x 2x")
			add(twice, "1x 2r")
		}
	}
}
