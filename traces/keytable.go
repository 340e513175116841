package traces

import (
	"maps"
	"math"
)

// A keyCount counts the requests of one key.
type keyCount struct {
	count     uint32 // stays at its maximum
	keySize   uint32
	valueSize uint32 // the last whole value's
}

// A keyTable has the keys with a hash below a threshold, by hash. When it is full it halves the threshold and drops the keys above.
type keyTable struct {
	keys   map[uint64]keyCount
	most   int
	halved uint // times
}

func newKeyTable(most int) keyTable {
	return keyTable{keys: map[uint64]keyCount{}, most: max(most, 16)}
}

// share of all keys that the table holds.
func (t *keyTable) share() float64 { return 1 / float64(uint64(1)<<t.halved) }

// sampled reports whether the hash is below the threshold.
func (t *keyTable) sampled(hash uint64) bool { return hash>>(64-t.halved) == 0 }

func (t *keyTable) add(hash uint64, keySize, valueSize uint32) {
	if !t.sampled(hash) {
		return
	}
	e := t.keys[hash]
	if e.count == 0 && len(t.keys) >= t.most {
		t.halve()
		t.add(hash, keySize, valueSize)
		return
	}
	if e.count < math.MaxUint32 {
		e.count++
	}
	e.keySize = keySize
	if valueSize > 0 {
		e.valueSize = valueSize
	}
	t.keys[hash] = e
}

// halve halves the threshold until there is room.
func (t *keyTable) halve() {
	for len(t.keys) >= t.most && t.halved < 63 {
		t.halved++
		maps.DeleteFunc(t.keys, func(hash uint64, _ keyCount) bool { return !t.sampled(hash) })
	}
}
