package bench

import (
	"math"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/declock/declock/fabric"
)

// A journal has all operations of a run in virtual time, in the order in which they were done: what of them
// is measured is known afterwards.
type journal struct {
	list []entry
	lost uint64
}

// An entry is one operation. Latencies are in nanoseconds, to 4 s.
type entry struct {
	op, acquire, release uint32
	kind                 kind
}

// kind is what an operation was, as far as its latency is counted by itself.
type kind uint8

const (
	plainOp kind = iota
	hottestOp
	writeOp
	txnOp // and those behind it: a transaction of a locktrace.Kind
)

func clip(d fabric.Time) uint32 { return uint32(min(max(d, 0), math.MaxUint32)) }

func (j *journal) add(op, acquire, release fabric.Time, hottest bool) {
	k := plainOp
	if hottest {
		k = hottestOp
	}
	j.list = append(j.list, entry{clip(op), clip(acquire), clip(release), k})
}

// ofKind returns all that an operation of a kind takes, from one to before another.
func (j *journal) ofKind(from, to int, k kind) *hdrhistogram.Histogram {
	h := newHistogram(simDigits)
	for _, e := range j.list[from:to] {
		if e.kind == k {
			record(h, fabric.Time(e.op))
		}
	}
	return h
}

func (j *journal) lose() { j.lost++ }

// data returns the latencies of all that is between acquisition and release, in parts of equal length: of each data operation, say.
func (j *journal) data(from, to, parts int) *hdrhistogram.Histogram {
	h := newHistogram(simDigits)
	for _, e := range j.list[from:to] {
		record(h, fabric.Time(e.op-min(e.acquire+e.release, e.op))/fabric.Time(parts))
	}
	return h
}

// tally returns the tally of the operations from one to before another.
func (j *journal) tally(from, to int) *tally {
	t := newTally(simDigits)
	t.lost = j.lost
	for _, e := range j.list[from:to] {
		t.add(fabric.Time(e.op), fabric.Time(e.acquire), fabric.Time(e.release), e.kind == hottestOp)
	}
	return t
}
