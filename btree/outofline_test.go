package btree

import (
	"bytes"
	"testing"

	"github.com/declock/declock/fabric/sim"
)

// A record leads to memory that no large value can be in: nothing of it gets into the free lists.
func TestDamagedPlaceOfAValue(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal(), Late: sim.LateDrop}, 1, 4<<20, 1)
	c := w.client(0, w.open(0, w.config()))
	m := c.t.h.Parts[0]
	own := m.Base.Offset() / slotUnit
	for i, o := range []outOfLine{
		{at: makePtr(0, own, 0), size: 2000},
		{at: makePtr(0, own-1, 0), size: 2000},
		{at: makePtr(0, m.Limit/slotUnit-1, 0), size: 2000},
		{at: makePtr(0, 1, 0), size: 2000},
		{at: makePtr(5, own+1<<10, 0), size: 2000},
		{at: makePtr(0, own+1<<10, 0), size: MaxValueSize + 1},
	} {
		key := keyOf(i)
		o.encode(c.outBuf[:])
		end := putRecord(c.own, kindOutOfLine, key, c.outBuf[:])
		c.user.Enter()
		_, err := c.putEncoded(c.own[recordHeader:recordHeader+len(key)], c.own[recordHeader+len(key):end], nil, kindOutOfLine, always)
		c.user.Exit()
		wantErr(t, "damage", err, nil)
		_, err = c.Get(key)
		wantErr(t, "get", err, ErrCorrupt)
		wantErr(t, "reclaim", c.Reclaim(w.cns[0].View), ErrCorrupt)
		wantErr(t, "put", c.Put(key, bytes.Repeat([]byte("x"), 900)), ErrCorrupt)
		wantErr(t, "delete", c.Delete(key), ErrCorrupt)
	}
	for cl := range class(numClasses) {
		m.Heap.Each(uint8(cl), func(from, to uint64) {
			if from < m.Region.HeapOffset()/slotUnit || from < own+m.Entry.Length/slotUnit && to > own {
				t.Errorf("%#x to %#x is in the free list of class %d", from, to, cl)
			}
		})
	}
}
