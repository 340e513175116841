package reclaim

import (
	"fmt"

	"github.com/declock/declock/fabric"
)

// What all members share lies at Offset of the memory of each store and tree, in its first part. Format: do not change.
//
//	offset  bytes
//	0x400      8    round: a roundWord
//	0x800   2048    records of the compute nodes, by number: recordWords
//	0x1000  8192    candidates of a batch
//	0x3000          the owner's
const (
	Offset = 0x400
	End    = 0x3000

	recordsAt = 0x800 - Offset
	batchAt   = 0x1000 - Offset
	batchSize = (End - Offset - batchAt) / 8 // candidates
	maxNodes  = (batchAt - recordsAt) / 8
)

// Records returns where the records of the compute nodes are, and how many words, of a store or tree whose first part's memory begins at base.
func Records(base fabric.Addr) (first fabric.Addr, words int) {
	return base.Add(Offset + recordsAt), maxNodes
}

// A mark names a step of a round. At step 0 each member begins to remember, at step n it strikes out of batch n.
//
//	 31                12 11          0
//	+--------------------+-------------+
//	|       round        |    step     |
//	+--------------------+-------------+
type mark uint32

const (
	stepBits = 12
	maxStep  = 1<<stepBits - 1
)

func (m mark) step() int     { return int(m & maxStep) }
func (m mark) round() uint32 { return uint32(m >> stepBits) }

// A roundWord says which step of a round is under way, and which member leads it. It only ever changes by CAS. Zero: there
// has been none.
//
//	 63      56 55           32 31               0
//	+----------+---------------+------------------+
//	|  leader  |  incarnation  |       mark       |
//	+----------+---------------+------------------+
//
// leader 0: none is under way, and mark was the last.
type roundWord uint64

const (
	leaderShift      = 56
	incarnationShift = 32
	incarnationBits  = leaderShift - incarnationShift
	incarnationMask  = 1<<incarnationBits - 1
)

// An incarnation tells the members apart that have one number after each other.
type incarnation uint32

func makeRound(leader fabric.CNID, l incarnation, m mark) roundWord {
	return roundWord(leader)<<leaderShift | roundWord(l)<<incarnationShift | roundWord(m)
}

func (w roundWord) leader() fabric.CNID { return fabric.CNID(w >> leaderShift) }
func (w roundWord) incarnation() incarnation {
	return incarnation(w>>incarnationShift) & incarnationMask
}
func (w roundWord) mark() mark   { return mark(w) }
func (w roundWord) active() bool { return w.leader() != 0 }

// ended returns the word when its round is over.
func (w roundWord) ended() roundWord { return makeRound(0, 0, w.mark()) }

// begun returns the word of the first step of the next round. Round 0 is none: new records have answered it.
func (w roundWord) begun(leader fabric.CNID, l incarnation) roundWord {
	m := (mark(w.mark().round()) + 1) << stepBits
	if m.round() == 0 {
		m = 1 << stepBits
	}
	return makeRound(leader, l, m)
}

// A recordWord is of a compute node. It changes by CAS. If neither open nor owes is set, the compute node does not have the store or tree open; incarnation and mark
// are then what they were, or drawn by the compute node that made the store or tree (Init). So no word of a record is found in memory that is something else: what
// is registered late, when the store or tree has been dropped and its memory used again, changes nothing there.
//
//	 63   62     56 55       32 31               0
//	+----+----+---+------------+------------------+
//	|open|owes| 0 |incarnation |       mark       |
//	+----+----+---+------------+------------------+
//
// owes: a compute node with this number has crashed before, and what it had is to be found. mark is the step that has been answered.
type recordWord uint64

const (
	openBit = 1 << 63
	owesBit = 1 << 62
)

func makeRecord(owes bool, l incarnation, m mark) recordWord {
	w := openBit | recordWord(l)<<incarnationShift | recordWord(m)
	if owes {
		w |= owesBit
	}
	return w
}

func (w recordWord) open() bool { return w&openBit != 0 }
func (w recordWord) owes() bool { return w&owesBit != 0 }
func (w recordWord) incarnation() incarnation {
	return incarnation(w>>incarnationShift) & incarnationMask
}
func (w recordWord) mark() mark { return mark(w) }

// answering returns the word when a step has been answered.
func (w recordWord) answering(m mark) recordWord { return w&^(1<<incarnationShift-1) | recordWord(m) }

// closed returns the word of a record that is not open any more.
func (w recordWord) closed() recordWord { return w &^ openBit }

// cleared returns the word of a record when what its compute node had has been found.
func (w recordWord) cleared() recordWord { return w &^ owesBit }

// crashed returns the word of a record when the compute node that it was of has crashed, and its number is another's.
func (w recordWord) crashed() recordWord { return w.closed() | owesBit }

func (w recordWord) String() string {
	return fmt.Sprintf("open %v owes %v life %d answered %d.%d", w.open(), w.owes(), w.incarnation(), w.mark().round(), w.mark().step())
}

// A candidate is a block as it is published. A member that strikes it out writes 0.
//
//	 63          46 45      38 37                      0
//	+--------------+----------+-------------------------+
//	|    stamp     |   part   |       offset / 64       |
//	+--------------+----------+-------------------------+
//
// The stamp is the low bits of the mark: what a leader that was stopped writes late is not taken for another's.
type candidate uint64

const (
	offsetBits = 38
	partBits   = 8
	stampShift = offsetBits + partBits

	maxOffset64 = 1<<offsetBits - 1
)

func makeCandidate(p Block, m mark) candidate {
	return candidate(m)<<stampShift | candidate(p.Part)<<offsetBits | candidate(p.Off64)
}

func (c candidate) stamped(m mark) bool { return c>>stampShift == candidate(m)<<stampShift>>stampShift }
func (c candidate) part() int           { return int(c >> offsetBits & (1<<partBits - 1)) }
func (c candidate) off64() uint64       { return uint64(c & maxOffset64) }
