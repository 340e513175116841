package sim

import (
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
)

// backed returns a cluster with a memory-node number that has a backup, on mn1, and a Port's view of that.
func backed(t *testing.T, cfg Config) (c *Cluster, n *Node, begin func(p *Port) fabric.Replicas) {
	c = New(cfg)
	t.Cleanup(func() { c.Close() })
	mn := c.AddReplicatedMN(4096, 2)
	c.AddBackup(mn, c.AddMN(4096))
	return c, c.AddCN(), func(p *Port) fabric.Replicas {
		g, err := p.Replicas(mn)
		if err != nil || g.N != 1 || g.Backups[0].Number != 2 {
			t.Fatal(g, err)
		}
		return g
	}
}

// What is under way to a backup when that is promoted comes too late: the next holder of the lock may have written there by then.
func TestLateWriteToABackup(t *testing.T) {
	c, n, begin := backed(t, Config{Seed: 1})
	c.Go(n, "writer", func(port fabric.Port) {
		p := port.(*Port)
		g := begin(p)
		c.Delay(OfCN(n.id), OfMN(1), 50*fabric.Microsecond, c.Now()+fabric.Millisecond)
		w, err := p.PostBackup(&g, 0, []fabric.Op{fabric.Store(fabric.At(0, 64), 1)})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Promote(0); err != nil {
			t.Fatal(err)
		}
		if err := p.Wait(w); err == nil {
			t.Error("a write to a backup has succeeded that serves by then")
		}
		if _, err := p.PostBackup(&g, 0, []fabric.Op{fabric.Store(fabric.At(0, 64), 1)}); !errors.Is(err, fabric.ErrStaleEpoch) {
			t.Errorf("a later one: %v", err)
		}
	})
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	if v := c.PeekWord(fabric.At(0, 64)); v != 0 {
		t.Errorf("it has been executed: %d", v)
	}
}

// A compute node that was given up, and does not know, drops no backup: what it wants to acknowledge then may be lost with the primary.
func TestFencedNodeDropsNoBackup(t *testing.T) {
	c, n, begin := backed(t, Config{Seed: 1, NewsDelay: fabric.Millisecond})
	c.Go(n, "writer", func(port fabric.Port) {
		p := port.(*Port)
		g := begin(p)
		c.Fence(n)
		if err := p.DropBackup(&g, 0, false); !errors.Is(err, fabric.ErrFenced) {
			t.Errorf("drop by a node that was given up: %v", err)
		}
	})
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	if g := c.Group(0); len(g.Replicas) != 2 {
		t.Errorf("%+v", *g)
	}
}

// The drop of a backup to which a chain is under way fails, since the primary was given up: it returns when the node has heard of that, and releases no lock at that primary
// any more. Else another would take the lock there, and the chain would land under it.
func TestDropUnderWayWaitsForTheNews(t *testing.T) {
	for _, underWay := range []bool{false, true} {
		c, n, begin := backed(t, Config{Seed: 1, NewsDelay: fabric.Millisecond})
		c.Go(n, "writer", func(port fabric.Port) {
			p := port.(*Port)
			g := begin(p)
			c.Detach(OfCN(n.id), c.Now()+5*fabric.Millisecond)
			c.FenceMN(0)
			for c.Group(0).Epoch == g.Epoch {
				_ = p.Pause(p.Now() + 10*fabric.Microsecond)
			}
			p.Interrupt()
			if err := p.DropBackup(&g, 0, underWay); err == nil {
				t.Error("the new primary was dropped")
			}
			if _, err := p.Replicas(0); underWay != errors.Is(err, fabric.ErrStaleEpoch) {
				t.Errorf("under way %t: replicas: %v", underWay, err)
			}
		})
		if err := c.Run(); err != nil {
			t.Fatal(err)
		}
	}
}

// The primary has ended, and the coordinator does not know: a backup that a compute node wants dropped is the last copy, and is promoted.
func TestDropWhileThePrimaryIsDead(t *testing.T) {
	c, n, begin := backed(t, Config{Seed: 1, NewsDelay: 10 * fabric.Microsecond, DetectDelay: fabric.Millisecond})
	c.Go(n, "writer", func(port fabric.Port) {
		p := port.(*Port)
		g := begin(p)
		c.KillMN(0)
		if err := p.DropBackup(&g, 0, true); !errors.Is(err, fabric.ErrStaleEpoch) {
			t.Errorf("drop of the last copy: %v", err)
		}
	})
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	if g := c.Group(0); g.Term != 2 || !c.Serves(0, 1) {
		t.Errorf("%+v", *g)
	}
}
