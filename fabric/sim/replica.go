package sim

import (
	"errors"
	"fmt"
	"slices"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

// A Port as a fabric.Replicator: chains to backups, which are WRITEs and atomics of what the primary is to have next (docs/replication.md).

var _ fabric.Replicator = (*Port)(nil)

// Replicas implements fabric.Replicator.
func (p *Port) Replicas(mem fabric.MemID) (r fabric.Replicas, err error) {
	if int(mem) >= len(p.c.mns) || p.c.mns[mem].replicas < 2 {
		return r, nil
	}
	g := p.node.groupOf(mem)
	if g == nil {
		p.c.tell(0)
		return r, fmt.Errorf("sim: %v: %w", mem, fabric.ErrNodeDown)
	}
	p.c.tell(g.Changed)
	r.Mem, r.Epoch, r.Before, r.Term, r.MinInSync = mem, g.Epoch, g.Before, g.Term, g.MinInSync
	r.Primary = g.Replicas[0].Number
	if p.epoch(mem) != g.Epoch {
		return r, fmt.Errorf("sim: %v: %w", mem, fabric.ErrStaleEpoch)
	}
	for _, b := range g.Replicas[1:] {
		r.Backups[r.N] = fabric.Backup{Host: uint64(b.Host), Number: b.Number, Synced: b.Phase == member.InSync}
		r.N++
	}
	return r, nil
}

// PostBackup implements fabric.Replicator.
func (p *Port) PostBackup(g *fabric.Replicas, i int, ops []fabric.Op) (fabric.Pending, error) {
	if p.closed {
		return nothing, fabric.ErrClosed
	}
	b := &g.Backups[i]
	now := p.node.groupOf(g.Mem)
	if now == nil || now.Epoch != g.Epoch || p.epoch(g.Mem) != g.Epoch {
		p.c.tell(0)
		return nothing, fmt.Errorf("sim: a backup of %v: %w", g.Mem, fabric.ErrStaleEpoch)
	}
	mn := p.c.hostOf(member.Incarnation(b.Host))
	if mn == nil {
		p.c.tell(1)
		return nothing, fmt.Errorf("sim: a backup of %v has ended: %w", g.Mem, fabric.ErrNodeDown)
	}
	ch, err := p.postTo(lane{mn: mn, backup: b.Number}, ops)
	if ch == nil {
		return nothing, err
	}
	return ch.pending(), nil
}

// DropBackup implements fabric.Replicator. A node that the coordinator does not reach waits for it. The replica is dropped by its number: its memory node may have
// joined again meanwhile, without what it has missed.
func (p *Port) DropBackup(g *fabric.Replicas, i int, underWay bool) error {
	p.enter()
	c, n := p.c, p.node
	for at := c.now; ; at = c.now + syncAgain {
		if c.begun && c.cfg.NewsDelay > 0 {
			at = max(at, c.newsAt(), n.member.detached)
		}
		for c.now < at {
			if (p.closed || p.interrupted) && !underWay {
				return fmt.Errorf("sim: a backup of %v: %w", g.Mem, p.reason())
			}
			p.until = at
			p.setTimer()
			p.block(WaitPause)
		}
		over, err := p.dropNow(g, i)
		if !over && err == nil {
			continue
		}
		// What the ledger says the node may not have heard: until then it may release a lock of that epoch, at a primary that was given up.
		if _, shut := n.server(g.Mem); err == nil || !underWay || shut || n.epochOf(g.Mem) != g.Epoch || errors.Is(err, fabric.ErrFenced) {
			return err
		}
	}
}

// dropNow has the coordinator drop a replica, and reports whether that is done: not before the primary has acknowledged it. With an error of another kind than that the node is
// fenced, or the epoch over, the number has no primary.
func (p *Port) dropNow(g *fabric.Replicas, i int) (over bool, err error) {
	c, n, number := p.c, p.node, g.Backups[i].Number
	now := c.ledger.Groups[g.Mem]
	c.meddled()
	c.tell(now.Changed)
	switch j := slices.IndexFunc(now.Replicas, func(r member.Replica) bool { return r.Number == number }); {
	case n.lapsed || n.fenced || n.member.entry.Phase != member.Joined:
		return false, fmt.Errorf("sim: %v: %w", n.id, fabric.ErrFenced)
	case j < 0:
		return true, nil
	case now.Epoch != g.Epoch:
		return false, fmt.Errorf("sim: %v: %w", g.Mem, fabric.ErrStaleEpoch)
	case now.Replicas[j].Dropped:
		return false, nil
	default:
		if err = c.changeNow(g.Mem, member.Drop, now.Replicas[j].Host); errors.Is(err, member.ErrReplica) {
			err = fmt.Errorf("sim: %w: %w", fabric.ErrNodeDown, err)
		}
		now = c.ledger.Groups[g.Mem]
		return !slices.ContainsFunc(now.Replicas, func(r member.Replica) bool { return r.Number == number }), err
	}
}

// admissibleBackup is admissible for a chain to a backup, of which r is the region, or nil.
func (c *Cluster) admissibleBackup(ch *Chain, op *fabric.Op, r *region) error {
	switch {
	case r == nil || r.replica != ch.backup:
		return fmt.Errorf("sim: %v has no such replica of %v: %w", ch.qp.mn.id, op.Addr.MN(), fabric.ErrNodeDown)
	case r.lane != ch.epoch:
		c.faultStats[Stale]++
		return fabric.ErrStaleEpoch
	case ch.qp.mn.revoked:
		return fabric.ErrBadKey
	case !r.mem.inBounds(op.Addr.Offset(), op.Size()):
		return fmt.Errorf("sim: %v has %#x bytes: %w", op.Addr.MN(), r.mem.size, fabric.ErrOutOfBounds)
	}
	return nil
}

// cutBackup takes the result of a chain to a backup away if the compute node knows of another epoch by now. That WRITEs have been executed there stays true.
func (c *Cluster) cutBackup(ch *Chain) {
	if !ch.hasRA {
		return
	}
	if g := ch.port.node.groupOf(ch.ops[0].Addr.MN()); ch.err == nil && (g == nil || g.Epoch != ch.epoch) {
		ch.err = &fabric.ChainError{Op: ch.ops[0], Err: fmt.Errorf("sim: %v is in another epoch: %w", ch.ops[0].Addr.MN(), fabric.ErrUnknownOutcome)}
	}
}

// PeekBackup is Peek of a backup's memory, on a memory node.
func (c *Cluster) PeekBackup(a fabric.Addr, host fabric.MemID, buf []byte) {
	c.mn(host).at(a.MN()).mem.read(a.Offset(), buf)
}
