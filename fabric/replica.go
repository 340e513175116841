package fabric

// MaxBackups is how many backups a memory-node number has at most: while one is replaced, one more than the largest factor has.
const MaxBackups = 3

// A Replicator is a Port that reaches the backups of memory-node numbers that are replicated (docs/replication.md). Reads go to the primary, by Port.Do;
// what changes memory that a reader can see is at the backups before.
type Replicator interface {
	// Replicas returns the backups that a number has now, as the compute node knows: none, if it is not replicated. ErrStaleEpoch: the number is served in another
	// epoch than that in which the Port is attached. What was begun in one epoch, under a lock of it, must go to no backup of another.
	Replicas(mem MemID) (Replicas, error)

	// PostBackup is Port.Post of a chain to the i-th backup, in the epoch of g. The Port's Wait returns what came of it: also when another epoch has begun meanwhile, if the backup lives and the
	// chain is of WRITEs, whether it was executed (nil) or not (Refused); what others read, it reads no more (ErrUnknownOutcome). An interrupted Port may wait for longer than for a
	// primary: what it leaves behind costs a copy, since the backup has to be dropped then.
	PostBackup(g *Replicas, i int, ops []Op) (Pending, error)

	// DropBackup takes the i-th backup out of the group: it has missed a chain. When it returns nil, that is committed, and the primary has acknowledged it, whatever the compute nodes know yet, or the
	// replica had been dropped already: it is never promoted. Otherwise nothing may be acknowledged that it has missed. It waits for the coordinator, unless the Port is
	// interrupted or closed: ErrInterrupted, ErrClosed.
	//
	// underWay: the chain may still be executed there, and the caller has locks that keep others away from what it changes. Then no interrupt ends the wait: if the
	// coordinator does not answer, the compute node's lease does (ErrFenced). Any other error says that the epoch is over, and so is the chain.
	DropBackup(g *Replicas, i int, underWay bool) error
}

// Replicas are the backups of a memory-node number at a time. An operation keeps them from its first WRITE to its end.
type Replicas struct {
	Mem    MemID
	Epoch  uint32 // in which the primary serves
	Before uint32 // the last epoch of the term before; 0: there is none
	Term   uint32 // of the number: it is greater when a backup has become the primary
	// MinInSync is how many copies in sync, the primary's among them, data that is changed is to have: what has fewer is refused. 0 or 1: the primary is enough.
	MinInSync int
	Primary   uint32 // the number of the replica that serves
	N         int
	Backups   [MaxBackups]Backup // in the order in which they would be promoted
}

// A Backup is one copy of the memory of a number.
type Backup struct {
	Host   uint64 // the memory node that has it, as a member of the cluster
	Number uint32 // of the replica, from 1: no other of the number ever has it
	Synced bool   // it has all that the primary has: it may be promoted
}

// An Under is a Port that sends its chains by another.
type Under interface {
	Under() Port
}

// ReplicatorOf returns the Replicator that a Port is, or is made of; nil: there is none.
func ReplicatorOf(p Port) Replicator {
	for {
		if r, ok := p.(Replicator); ok {
			return r
		}
		u, ok := p.(Under)
		if !ok {
			return nil
		}
		p = u.Under()
	}
}
