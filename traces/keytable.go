package traces

// A keyEntry counts the requests of one key.
type keyEntry struct {
	hash      uint64 // 0 is an empty slot
	count     uint32 // stays at its maximum
	keySize   uint32
	valueSize uint32 // the last whole value's
}

// A keyTable is an open hash table of keys with a hash below a threshold. When
// it is full it halves the threshold and drops the keys above.
type keyTable struct {
	slots   []keyEntry
	n, most int
	halved  uint // times
}

const firstSlots = 1 << 10

func newKeyTable(most int) keyTable {
	return keyTable{slots: make([]keyEntry, firstSlots), most: max(most, 16)}
}

// share of all keys that the table holds.
func (t *keyTable) share() float64 { return 1 / float64(uint64(1)<<t.halved) }

// sampled reports whether the hash is below the threshold: its upper bits select, its lower bits place.
func (t *keyTable) sampled(hash uint64) bool { return hash>>(64-t.halved) == 0 }

func (t *keyTable) add(hash uint64, keySize, valueSize uint32) {
	if !t.sampled(hash) {
		return
	}
	if hash == 0 {
		hash = 1
	}
	e := t.find(hash)
	if e.hash == 0 {
		if t.n >= t.most {
			t.halve()
			t.add(hash, keySize, valueSize)
			return
		}
		if (t.n+1)*4 > len(t.slots)*3 {
			t.rebuild(len(t.slots) * 2)
			e = t.find(hash)
		}
		e.hash = hash
		t.n++
	}
	if e.count++; e.count == 0 {
		e.count--
	}
	e.keySize = keySize
	if valueSize > 0 {
		e.valueSize = valueSize
	}
}

// find returns the slot of the hash, or the empty one where it belongs.
func (t *keyTable) find(hash uint64) *keyEntry {
	mask := uint64(len(t.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		if e := &t.slots[i]; e.hash == hash || e.hash == 0 {
			return e
		}
	}
}

// halve the threshold until there is room.
func (t *keyTable) halve() {
	for t.n >= t.most && t.halved < 63 {
		t.halved++
		t.rebuild(len(t.slots))
	}
}

// rebuild moves the keys that still belong into a table of the given size.
func (t *keyTable) rebuild(size int) {
	old := t.slots
	t.slots, t.n = make([]keyEntry, size), 0
	for i := range old {
		if e := &old[i]; e.hash != 0 && t.sampled(e.hash) {
			*t.find(e.hash) = *e
			t.n++
		}
	}
}

func (t *keyTable) each(visit func(*keyEntry)) {
	for i := range t.slots {
		if e := &t.slots[i]; e.hash != 0 {
			visit(e)
		}
	}
}
