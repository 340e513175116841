package shift

import (
	"cmp"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// An entry is the state of a lock, 16 bytes. Zero is free. Format: do not change.
//
//	 63    62            40 39                          0
//	+-----+----------------+-----------------------------+
//	|Epoch|     RdrCnt     | TailPtr: ClientID, 0 is null|  word 0
//	+-----+----------------+-----------------------------+
//	|        era (16)        |        releases           |  word 1: RelCnt
//	+------------------------+---------------------------+
//	 63                    48 47                         0
//
// RdrCnt changes by masked FAA; its boundary keeps carries and borrows in. TailPtr and
// Epoch change by masked CAS. RelCnt is one 64-bit number: the FAA of a reader's release adds 1.
type entry struct{ head, rel uint64 }

const (
	tailBits  = 40
	rdrBits   = 23
	rdrShift  = tailBits
	epochBit  = uint64(1) << 63
	tailMask  = uint64(1)<<tailBits - 1
	rdrMask   = (uint64(1)<<rdrBits - 1) << rdrShift
	oneReader = uint64(1) << rdrShift
	rdrTop    = uint64(1) << (rdrShift + rdrBits - 1)

	eraShift = 48
	leap     = uint64(1) << eraShift // what a recovery adds to RelCnt
	eraMask  = ^(leap - 1)
	lastEra  = uint16(1<<16 - 1)

	relOffset = 8
)

const _ = uint(63 - (rdrShift + rdrBits)) // RdrCnt ends below Epoch

func (e entry) tail() fabric.ClientID { return fabric.ClientID(e.head & tailMask) }
func (e entry) readers() uint64       { return e.head & rdrMask >> rdrShift }
func (e entry) epoch() uint64         { return e.head & epochBit }
func (e entry) corrupt() bool         { return e.head&tailMask>>fabric.ClientIDBits != 0 }

func eraOf(rel uint64) uint16 { return uint16(rel >> eraShift) }

func (e entry) String() string {
	return fmt.Sprintf("{epoch %d, %d readers, tail %v, era %d, %d releases}",
		e.head>>63, e.readers(), e.tail(), eraOf(e.rel), e.rel&^eraMask)
}

// Decode takes the two words of a lock apart.
func Decode(word0, word1 uint64) (epoch bool, readers int, tail fabric.ClientID, relCnt uint64) {
	e := entry{word0, word1}
	return e.epoch() != 0, int(e.readers()), e.tail(), word1
}

// Layout is the layout of a lock.
var Layout = lock.Layout{Size: 16, Align: 16}

// Config of a Locker or Agent. The zero value has the paper's constants.
type Config struct {
	// Artifact leaves RelCnt alone when a writer hands over to a writer.
	Artifact bool
	// LeaseNs is for how long a holder may hold; default 10 ms. All clients must have the same.
	LeaseNs fabric.Time
	// Threshold is after how many writers in a row readers come; default 16.
	Threshold uint32
	// Tries is how often a writer tries to take a free lock before it queues; 0: it queues at once. Between two it pauses for PauseNs, doubled with each.
	Tries int
	// PauseNs is for how long a reader pauses before each READ of the epoch, and a writer after each of RelCnt in vain; 0: one READ follows the other.
	PauseNs fabric.Time
}

// PublishedPauseNs is what the client of the published code has for it, unless it is told otherwise.
const PublishedPauseNs = 1862

// DefaultThreshold is N of section 3.3 of the paper.
const DefaultThreshold = 16

func (c Config) withDefaults() Config {
	c.LeaseNs, c.Threshold = cmp.Or(c.LeaseNs, 10*fabric.Millisecond), cmp.Or(c.Threshold, DefaultThreshold)
	return c
}

// extCAS is ExtCAS: the fields under cmpMask are compared, those under swapMask replaced.
func extCAS(a fabric.Addr, w *fabric.Wide, cmp, cmpMask, swap, swapMask entry) fabric.Op {
	*w = fabric.Wide{
		Cmp: cmp.words(), CmpMask: cmpMask.words(),
		Swap: swap.words(), SwapMask: swapMask.words(),
	}
	return fabric.Op{Kind: fabric.OpMaskedCAS16, Addr: a, Wide: w}
}

// addReader is ExtFAA({RdrCnt, 1}); leaveReader is ExtFAA({RdrCnt, -1}, {RelCnt, 1}).
func addReader(a fabric.Addr, w *fabric.Wide) fabric.Op {
	*w = fabric.Wide{Swap: [2]uint64{oneReader, 0}, Boundary: [2]uint64{rdrTop | epochBit, 0}}
	return fabric.Op{Kind: fabric.OpMaskedFAA16, Addr: a, Wide: w}
}

func leaveReader(a fabric.Addr, w *fabric.Wide) fabric.Op {
	*w = fabric.Wide{Swap: [2]uint64{rdrMask, 1}, Boundary: [2]uint64{rdrTop | epochBit, 0}}
	return fabric.Op{Kind: fabric.OpMaskedFAA16, Addr: a, Wide: w}
}

func (e entry) words() [2]uint64 { return [2]uint64{e.head, e.rel} }

func found(w *fabric.Wide) entry { return entry{w.Old[0], w.Old[1]} }
