package bench

import (
	"encoding/binary"

	"github.com/declock/declock/lab/locktrace"
	"github.com/declock/declock/lock"
)

// historyMost is how many acquisitions there are before a run at most, as far as they matter; of fewer locks there are as many as locks.
const historyMost = 2_000_000

// readBefore says of n locks whether a reader had them last before the run: of transactions of the same kind that one client on each node has done.
func (r *txnRun) readBefore(n int) []bool {
	read := make([]bool, n)
	if r.before == nil {
		return read
	}
	var before []locktrace.Source
	for node := range r.m.CNs {
		before = append(before, r.before(node, node))
	}
	var list []locktrace.Access
	for k, drawn := 0, 0; drawn < min(n, historyMost); k++ {
		list = before[k%len(before)].Next(list[:0])
		for _, a := range list {
			read[a.Lock] = a.Mode == lock.Shared && !r.mutex
		}
		drawn += max(len(list), 1)
	}
	return read
}

// prepare has n locks look used, if that makes a difference: if readers leave a word.
func (r *txnRun) prepare(word uint64, n int) {
	if r.m.Used && word != 0 {
		read := r.readBefore(n)
		r.used = newUsedLocks(r.c, n, word, func(i uint64) bool { return read[i] })
	}
}

// fill writes the word with which locks begin.
func (r *txnRun) fill(n int) {
	if r.word == 0 {
		return
	}
	word := binary.LittleEndian.AppendUint64(nil, r.word)
	for i := range uint32(n) {
		r.c.Poke(r.addr(i), word)
	}
}
