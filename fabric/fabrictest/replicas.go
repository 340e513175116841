package fabrictest

import (
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
)

// A ReplicaHarness is a Harness of a backend that has backups of memory-node numbers: its Ports are fabric.Replicators.
type ReplicaHarness interface {
	// StartReplicated is Start of a cluster in which number 0 has a backup in sync, on memory node 1. The Cluster is a Promoter.
	StartReplicated(t testing.TB, cfg Config) Cluster
}

// A Promoter can make the backup of number 0 its primary, as an operator does. Promote returns when compute nodes can use it.
type Promoter interface{ Promote() }

// In these tests, number 0 has a backup on memory node 1.
var replicaTests = []test{
	{name: "a chain to a backup changes nothing at the primary, and others nothing at the backup", solo: apart},
	{name: "after a promotion Ports of before get ErrStaleEpoch until Reattach, memory is the backup's, and epoch and term have grown", run: promotion},
	{name: "a chain to a backup of an epoch before is refused", run: backupOfBefore},
	{name: "agents get MsgView when a number has another primary", run: promotionIsNews},
	{name: "a backup that is dropped executes nothing, and may be dropped again", solo: dropped},
	{name: "numbers that are not replicated have no backups", solo: noBackups},
}

// backups returns the backups of number 0, of which there is one.
func (c *client) backups() fabric.Replicas {
	c.t.Helper()
	g, err := fabric.ReplicatorOf(c.Port).Replicas(0)
	c.must(err, "Replicas")
	if g.N != 1 || g.Mem != 0 || g.Backups[0].Number == 0 {
		c.fatal("backups are %+v", g)
	}
	return g
}

// doBackup executes a chain at the backup.
func (c *client) doBackup(g *fabric.Replicas, ops ...fabric.Op) error {
	p, err := fabric.ReplicatorOf(c.Port).PostBackup(g, 0, ops)
	if err == nil {
		err = c.Wait(p)
	}
	return err
}

func apart(c *client) {
	a := fabric.At(0, 64)
	c.add(a, 7, 0)
	g := c.backups()
	ops := []fabric.Op{fabric.FAA(a, 9), fabric.CAS(a, 9, 11), fabric.Load(a)}
	c.must(c.doBackup(&g, ops...), "a chain to the backup")
	if got := ops[2].Old; ops[0].Old != 0 || got != 11 {
		c.fatal("the word of the backup was %d and is %d", ops[0].Old, got)
	}
	if got := c.load(a); got != 7 {
		c.fatal("the word of the primary is %d", got)
	}
	c.fails(c.doBackup(&g, fabric.Load(fabric.At(0, defaultMem))), fabric.ErrOutOfBounds, "a chain to the backup")
}

func promotion(e *env) {
	a, b := fabric.At(0, 64), fabric.At(0, 128)
	before := e.cl.Node(0).Memory()[0]
	c := e.client(0)
	e.complete(c, func(c *client) {
		c.add(a, 7, 0)
		g := c.backups()
		c.must(c.doBackup(&g, fabric.Store(b, 5)), "a chain to the backup")
	})
	need[Promoter](e, "promote a backup").Promote()
	now := e.cl.Node(0).Memory()[0]
	if before.Term != 1 || now.Term != 2 || now.Epoch <= before.Epoch || now.Size != before.Size {
		e.t.Errorf("it was %+v and is %+v", before, now)
	}
	e.complete(c, func(c *client) {
		c.refused(fabric.ErrStaleEpoch, 0, fabric.FAA(a, 1))
		_, err := fabric.ReplicatorOf(c.Port).Replicas(0)
		c.fails(err, fabric.ErrStaleEpoch, "Replicas")
		c.must(c.Reattach(0, now.Epoch), "Reattach")
		c.add(a, 1, 0)
		if got := c.load(b); got != 5 {
			c.fatal("what was written at the backup is %d", got)
		}
	})
	e.solo(func(c *client) { c.add(a, 1, 1) })
}

func backupOfBefore(e *env) {
	a := fabric.At(0, 64)
	c := e.client(0)
	var g fabric.Replicas
	e.complete(c, func(c *client) { g = c.backups() })
	need[Promoter](e, "promote a backup").Promote()
	e.complete(c, func(c *client) {
		c.fails(c.doBackup(&g, fabric.Store(a, 5)), fabric.ErrStaleEpoch, "a chain to a backup")
		c.must(c.Reattach(0, e.cl.Node(0).MemoryEpoch(0)), "Reattach")
		c.fails(c.doBackup(&g, fabric.Store(a, 5)), fabric.ErrStaleEpoch, "a chain to a backup")
		if got := c.load(a); got != 0 {
			c.fatal("the word is %d", got)
		}
	})
}

func promotionIsNews(e *env) {
	agent := e.agent(0)
	e.complete(agent, func(c *client) {
		for { // of the nodes that have joined
			if _, err := c.Recv(c.Now()); errors.Is(err, fabric.ErrDeadline) {
				return
			}
		}
	})
	need[Promoter](e, "promote a backup").Promote()
	e.complete(agent, func(c *client) {
		if m, err := c.Recv(c.Now() + patience); err != nil || m.Kind != fabric.MsgView || m.From != 0 {
			c.fatal("the agent got %+v, %v", m, err)
		}
	})
}

func dropped(c *client) {
	g := c.backups()
	rep := fabric.ReplicatorOf(c.Port)
	c.must(rep.DropBackup(&g, 0, false), "DropBackup")
	c.must(rep.DropBackup(&g, 0, false), "DropBackup again")
	if err := c.doBackup(&g, fabric.Load(fabric.At(0, 64))); err == nil {
		c.fatal("a backup that was dropped has executed a chain")
	}
	c.add(fabric.At(0, 64), 1, 0)
}

func noBackups(c *client) {
	g, err := fabric.ReplicatorOf(c.Port).Replicas(1)
	c.must(err, "Replicas")
	if g.N != 0 {
		c.fatal("memory node 1 has backups: %+v", g)
	}
}
