package cql

import (
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// Recovery: when a reset ends, and a compute node has ever been lost, whatever held the lock last may have crashed with it. Then the reset leaves a mark in the
// first slot of the empty queue, which is that of the first index given out afterwards: an entry with version 0, so for all that look at the queue it was never written.
//
//	  63   62         43 42                16 15            0
//	+----+--------------+--------------------+---------------+
//	|  1 | all ones     |         0          | round, low 16 |
//	+----+--------------+--------------------+---------------+
//
// The first ticket after the reset is granted at once and writes no entry, and none can use its slot before it has left the queue: so its holder finds the mark. A
// holder with a later index of the round may find it.

// recovered returns the mark of a reset behind which a round begins with an index.
func (y Layout) recovered(index uint64) Entry {
	return MakeEntry(1, 1<<entryClientBits-1, 0, uint16(index>>y.CapacityBits))
}

// RecoveryMark returns where the mark of a recovery is, and what it is for a grant with a token, in a term, that is one of the first after it.
func (y Layout) RecoveryMark(l fabric.Addr, token lock.Token, term uint32) (at fabric.Addr, mark uint64) {
	index := uint64(token) >> tokenSeqBits & (1<<tokenIndexBits - 1)
	if term != 0 {
		index = uint64(token) >> termSeqBits & (1<<termIndexBits - 1)
	}
	return l.Add(8), uint64(y.recovered(index - 1))
}
