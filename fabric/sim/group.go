package sim

import (
	"fmt"
	"maps"
	"slices"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

// Memory-node numbers that are replicated (docs/replication.md). Which memory node serves such a number is in the ledger's groups; each compute node
// and memory node acts on the groups of the state that it has heard of.

// A region is the memory of one memory-node number, on one memory node.
type region struct {
	mem   memory
	epoch uint32 // in which compute nodes are let in; 0: they are not
	lane  uint32 // in which they are let in to write to it as a backup; 0: it is none
	sum   uint64 // hash of what is in mem; in an untimed cluster
	// replica is which replica of its group it is: member.Replica.Number. 0: it is none, or its number is not replicated.
	replica uint32
}

// A backup is a region of a number that is not the memory node's own.
type backup struct {
	id fabric.MemID
	region
}

// at returns the memory of a number on a memory node, or nil.
func (mn *memNode) at(id fabric.MemID) *region {
	if id == mn.id {
		return &mn.region
	}
	for _, b := range mn.backups {
		if b.id == id {
			return &b.region
		}
	}
	return nil
}

// AddReplicatedMN is AddMN of a memory node whose number is to have a number of copies: AddBackup makes them. The number is the memory node's while it is
// the primary.
func (c *Cluster) AddReplicatedMN(size uint64, replicas int) fabric.MemID {
	if replicas < 2 {
		panic(fmt.Sprintf("sim: AddReplicatedMN(%d, %d)", size, replicas))
	}
	return c.addMN(size, replicas)
}

// AddBackup gives a memory node a copy of a replicated number, in sync at once: to set a scene.
func (c *Cluster) AddBackup(id, host fabric.MemID) {
	inc := c.mn(host).member.entry.Incarnation()
	for _, kind := range []member.ChangeKind{member.AddBackup, member.Synced} {
		if err := c.changeNow(id, kind, inc); err != nil {
			panic(fmt.Sprintf("sim: AddBackup(%v, %v): %v", id, host, err))
		}
		c.tellAll()
	}
}

// Change changes a group: see member.Ledger.
func (c *Cluster) Change(x member.Change) error {
	if err := c.ledger.Change(x); err != nil {
		return err
	}
	c.changed()
	return nil
}

// changeNow changes a group as it is now.
func (c *Cluster) changeNow(id fabric.MemID, kind member.ChangeKind, host member.Incarnation) error {
	x := member.Change{ID: id, Kind: kind, Host: host}
	if g := c.ledger.Groups[id]; g != nil {
		x.Seen = g.Changed
	}
	return c.Change(x)
}

// Incarnation returns that of a memory node.
func (c *Cluster) Incarnation(host fabric.MemID) member.Incarnation {
	return c.mn(host).member.entry.Incarnation()
}

// Group returns the group of a number as the coordinator has it, or nil.
func (c *Cluster) Group(id fabric.MemID) *member.Group { return c.ledger.Groups[id] }

// Has reports whether a memory node is a member, as the coordinator has it.
func (c *Cluster) Has(host member.Incarnation) bool { return c.ledger.State().Has(host) }

// Served returns the group of a number as it was served last, or nil: until all have acknowledged a promotion, the primary before may go on.
func (c *Cluster) Served(id fabric.MemID) *member.Group { return c.served[id] }

// Serves reports whether a number is served by a memory node. For oracles.
func (c *Cluster) Serves(id, host fabric.MemID) bool {
	g := c.served[id]
	if g == nil {
		return id == host
	}
	mn := c.hostOf(g.Primary())
	return mn != nil && mn.id == host
}

// lapse ends the lease of a compute node: by its own clock, which counts the time of a pause, that is no later than when the coordinator gives it up. So its holds are
// over, and nothing that a replicated number answers counts any more, though the node may not hear of anything, and the number's primary neither. What looks at the lease
// sees that at once; what is woken by its end, some time later, and on a node that stands still, when that goes on.
func (n *Node) lapse() {
	n.lapsed = true
	switch {
	case n.paused:
		n.unheard = true // until Resume
	case n.c.untimed != nil || n.c.cfg.NewsDelay == 0:
		n.notices()
	default:
		n.c.post(n.c.newsAt(), evLapse, n.member.index, 0)
	}
}

// notices ends the holds of a node whose lease has run out.
func (n *Node) notices() {
	switch {
	case n.dead || n.closed:
	case n.paused:
		n.unheard = true
	case n.OnFenced != nil:
		n.OnFenced()
	}
}

// leased reports whether a chain to a replicated number may count: the node's lease is valid, when it is posted and when its result is taken. So it was, when the
// chain was executed.
func (n *Node) leased(id fabric.MemID) bool { return !n.lapsed || n.c.mns[id].replicas < 2 }

// noteServed notes the numbers that are served in another epoch than before.
func (c *Cluster) noteServed() {
	for _, id := range slices.Sorted(maps.Keys(c.ledger.Groups)) {
		g, was := c.ledger.Groups[id], c.served[id]
		if !g.Serving || was != nil && was.Epoch == g.Epoch {
			continue
		}
		if c.served == nil {
			c.served = map[fabric.MemID]*member.Group{}
		}
		c.served[id] = g
		if was == nil {
			continue
		}
		if g.Term != was.Term {
			c.faultStats[Promotions]++
		}
		c.note(StepServe, 0, uint64(id), uint64(g.Epoch)<<32|uint64(g.Term))
		c.observe(Event{Step: StepServe, Mem: id, Old: uint64(was.Term), New: uint64(g.Term)})
	}
}

// Backups calls f with the memory nodes that have a backup of a number, as they know it. peek reads of it.
func (c *Cluster) Backups(id fabric.MemID, f func(host fabric.MemID, peek func(offset uint64, buf []byte))) {
	g := c.ledger.Groups[id]
	for i := range g.Replicas {
		mn := c.hostOf(g.Replicas[i].Host)
		if i == 0 || mn == nil {
			continue
		}
		if r := mn.at(id); r != nil && r.replica == g.Replicas[i].Number {
			f(mn.id, r.mem.read)
		}
	}
}

// Lend gives a memory node room for copies of others: the coordinator places new backups there.
func (c *Cluster) Lend(id fabric.MemID, room uint64) {
	mn := c.mn(id)
	mn.room, mn.member.entry.MN.Room = room, room
}

// Require has the data of a memory node's number changed only while so many copies are in sync.
func (c *Cluster) Require(id fabric.MemID, inSync int) {
	c.mn(id).member.entry.MN.MinInSync = inSync
	_ = c.changeNow(id, member.Undrain, 0) // any change: what is due is done with it
}

// hasLast reports whether a memory node has a copy in sync of a number of which no other is up.
func (c *Cluster) hasLast(mn *memNode) bool {
	return slices.ContainsFunc(c.ledger.State().Groups, func(g *member.Group) bool {
		has, others := false, false
		for _, r := range g.Replicas {
			if host := c.hostOf(r.Host); r.Phase == member.InSync && host == mn {
				has = true
			} else if r.Phase == member.InSync && !r.Dropped && host != nil && !host.dead && host.member.entry.Phase == member.Joined {
				others = true
			}
		}
		return has && !others
	})
}

// Promote makes the first backup in sync of a number its primary, if there is one.
func (c *Cluster) Promote(id fabric.MemID) error {
	host := member.Incarnation(0)
	if g := c.ledger.Groups[id]; g != nil {
		for _, r := range slices.Backward(g.Replicas) {
			if r.Phase == member.InSync && r.Host != g.Primary() {
				host = r.Host
			}
		}
	}
	return c.changeNow(id, member.Promote, host)
}

// PromoteTo makes the backup of a number on a memory node its primary.
func (c *Cluster) PromoteTo(id, host fabric.MemID) error {
	return c.changeNow(id, member.Promote, c.mn(host).member.entry.Incarnation())
}

// Abandon gives up what a number had of which no replica in sync is up.
func (c *Cluster) Abandon(id fabric.MemID) error { return c.changeNow(id, member.Abandon, 0) }

// backUp makes a memory node a backup of a number, which is in sync from a time on, if all know of it by then.
func (c *Cluster) backUp(id, host fabric.MemID, from fabric.Time) {
	inc := c.mn(host).member.entry.Incarnation()
	if c.changeNow(id, member.AddBackup, inc) != nil {
		return
	}
	number := c.ledger.Groups[id].Made
	var sync func()
	sync = func() {
		g := c.ledger.Groups[id]
		i := slices.IndexFunc(g.Replicas, func(r member.Replica) bool { return r.Number == number })
		switch {
		case i < 0 || c.hostOf(g.Replicas[i].Host) == nil:
		case g.Replicas[i].Phase == member.Added:
			c.At(c.now+syncAgain, sync)
		default:
			_ = c.changeNow(id, member.Synced, g.Replicas[i].Host)
		}
	}
	c.At(max(from, c.now), sync)
}

// dropBackup makes a memory node no backup of a number any more, if it is one.
func (c *Cluster) dropBackup(id, host fabric.MemID) {
	_ = c.changeNow(id, member.Drop, c.mn(host).member.entry.Incarnation())
}

// syncAgain is how often is looked whether all know of a new backup.
const syncAgain = 10 * fabric.Microsecond

// FenceMN declares a memory node dead, whether it is or not. It does not hear of that, and its NIC goes on serving those that do not know.
func (c *Cluster) FenceMN(id fabric.MemID) { c.leave(c.mn(id).member, member.Died) }

// groups returns the groups of the present state. They do not change.
func (c *Cluster) groups() []*member.Group {
	if len(c.ledger.Groups) == 0 {
		return nil
	}
	return c.ledger.State().Groups
}

// hostOf returns the memory node of an incarnation, or nil if it has begun again since.
func (c *Cluster) hostOf(inc member.Incarnation) *memNode {
	for _, mn := range c.mns {
		if mn.member.entry.MN.Incarnation == inc {
			return mn
		}
	}
	return nil
}

// primary returns the memory of a number: of the memory node that serves it, as the coordinator has it.
func (c *Cluster) primary(id fabric.MemID) *region {
	mn := c.mn(id)
	if g := c.ledger.Groups[id]; g != nil {
		if host := c.hostOf(g.Primary()); host != nil && host.at(id) != nil {
			return host.at(id)
		}
	}
	return &mn.region
}

// groupOf returns the group of a number as the node knows it, or nil.
func (n *Node) groupOf(id fabric.MemID) *member.Group {
	if n.acts == nil {
		return nil
	}
	return n.acts.Group(id)
}

// takes makes the node act on the groups of the present state, and reports whether other numbers are served than before, or in other epochs.
func (n *Node) takes() (changed bool) {
	if len(n.c.ledger.Groups) == 0 {
		return false
	}
	before := n.acts
	n.acts = n.c.ledger.State()
	if before == nil {
		return true
	}
	serving := func(a, b *member.Group) bool { return a.Serving == b.Serving }
	return !slices.Equal(before.Memory(), n.acts.Memory()) || !slices.EqualFunc(before.Groups, n.acts.Groups, serving)
}

// server returns the memory node of a number as the node knows it, and whether that lets nobody in.
func (n *Node) server(id fabric.MemID) (mn *memNode, shut bool) {
	mn = n.c.mns[id]
	if mn.replicas < 2 {
		return mn, false
	}
	g := n.groupOf(id)
	if g == nil {
		return mn, true
	}
	if host := n.c.hostOf(g.Primary()); host != nil {
		_, _, up := n.acts.Server(id)
		return host, !up || !g.Serving // one that was given up may run on: it does not hear which compute nodes are fenced
	}
	return mn, true
}

// epochOf returns the epoch of a number as the node knows it.
func (n *Node) epochOf(id fabric.MemID) uint32 {
	mn := n.c.mns[id]
	if mn.replicas < 2 {
		return mn.epoch
	}
	if g := n.groupOf(id); g != nil {
		return g.Epoch
	}
	return 0
}

// regroup makes a memory node act on groups: it lets compute nodes in where it is the primary and serves, and nowhere else. As another replica than it was it
// begins with zeroed memory.
func (mn *memNode) regroup(groups []*member.Group) {
	own := mn.member.entry.Incarnation()
	for _, g := range groups {
		r, i := mn.at(g.ID), g.Find(own)
		if i < 0 {
			if r != nil {
				r.epoch, r.lane = 0, 0
			}
			continue
		}
		if r == nil {
			mn.backups = append(mn.backups, &backup{id: g.ID})
			r = mn.at(g.ID)
		}
		if number := g.Replicas[i].Number; r.replica != number { // it may have been another one before, and not have heard of the time between
			*r = region{mem: newMemory(g.Size), replica: number}
			if f := mn.c.cfg.FormatCopy; f != nil {
				f(g.ID, r.mem.write)
			}
		}
		if r.lane = 0; i > 0 {
			r.lane = g.Epoch // what was posted in an epoch before comes too late
		}
		if r.epoch = 0; i == 0 && g.Serving {
			r.epoch = g.Epoch
		}
	}
}

// cut takes the results of a chain away that has been executed by another memory node than the one that serves the number, or in an epoch before, as the compute
// node knows by now: when it acknowledged that, it cut its connections of before.
func (c *Cluster) cut(ch *Chain) {
	if ch.backup != 0 {
		c.cutBackup(ch)
		return
	}
	id := ch.ops[0].Addr.MN()
	mn, shut := ch.port.node.server(id)
	before := c.mns[id].replicas > 1 && ch.port.node.epochOf(id) != ch.epoch
	if mn != ch.qp.mn || (shut || before) && ch.err == nil {
		ch.err = &fabric.ChainError{Op: ch.ops[0], Err: fmt.Errorf("sim: %v serves %v no more: %w", ch.qp.mn.id, id, fabric.ErrUnknownOutcome)}
	}
}
