package replay

// What a client knows of a key it has read or written.
type knowledge struct {
	key uint64 // 0 is an empty slot
	// base is the write that the last seen or written value goes back to, while present.
	base    stamp
	present bool
	isNum   bool
	// pieces of this client in that value.
	pieces uint32
	// ownFloor: a base of this client with a lower count has been replaced or removed.
	ownFloor uint64
	// gone are bases of other clients that this one has seen replaced or removed, latest first.
	gone [3]stamp
	num  uint64 // the number, if isNum
}

// A tracker remembers knowledge of a bounded number of keys. It is direct-mapped: a key that another
// pushes out is merely not checked against the past. It never raises a false alarm.
//
// The rules follow from linearizability of each key and from stamps being unique.
// Once a client has seen a value replaced or missing, that value must not come back (monotonic reads, read your
// writes); as long as the base is the same, all pieces that this client added must be there, once.
type tracker struct {
	slots []knowledge
	mask  uint64
	me    writer
}

func newTracker(keys int, me writer) *tracker {
	n := 1
	for n < keys {
		n *= 2
	}
	return &tracker{slots: make([]knowledge, n), mask: uint64(n - 1), me: me}
}

// find returns what is known of the key, or nil. A nil tracker knows nothing.
func (t *tracker) find(key uint64) *knowledge {
	if t == nil || key == 0 || t.slots[key&t.mask].key != key {
		return nil
	}
	return &t.slots[key&t.mask]
}

// claim returns the key's slot, emptied if it was another's.
func (t *tracker) claim(key uint64) *knowledge {
	k := &t.slots[key&t.mask]
	if k.key != key {
		*k = knowledge{key: key}
	}
	return k
}

// forget is for a write whose outcome is unknown.
func (t *tracker) forget(key uint64) {
	if k := t.find(key); k != nil {
		*k = knowledge{}
	}
}

// retire notes that the known value has been replaced or removed.
func (t *tracker) retire(k *knowledge) {
	if !k.present {
		return
	}
	k.present = false
	switch {
	case k.isNum:
	case k.base.writer() == t.me:
		k.ownFloor = max(k.ownFloor, k.base.count()+1)
	default:
		for i := range k.gone {
			if k.gone[i].writer() == k.base.writer() { // one per writer: the newest
				k.gone[i] = max(k.gone[i], k.base)
				return
			}
		}
		copy(k.gone[1:], k.gone[:])
		k.gone[0] = k.base
	}
}

// read judges a value that was read against what is known, and learns from it.
func (t *tracker) read(key uint64, v valueInfo) (what string) {
	k := t.claim(key)
	if v.base.writer() == t.me {
		if v.base.count() < k.ownFloor {
			return "stale: this client has seen its own later write, or the value removed"
		}
	} else {
		for _, g := range k.gone {
			if g != 0 && g.writer() == v.base.writer() && v.base <= g {
				return "stale: this client has seen this value, or a later one of its writer, replaced or removed"
			}
		}
	}
	if k.present && !k.isNum && k.base == v.base {
		if v.pieces != k.pieces {
			k.pieces = v.pieces
			return "pieces that this client added are missing, or there twice"
		}
		return ""
	}
	t.retire(k)
	k.base, k.pieces, k.present, k.isNum = v.base, v.pieces, true, false
	return ""
}

// wrote learns that this client has written a base.
func (t *tracker) wrote(key uint64, s stamp) {
	k := t.claim(key)
	t.retire(k)
	k.base, k.pieces, k.present, k.isNum = s, 0, true, false
	k.ownFloor = s.count()
}

// wroteNumber learns that this client has written a number.
func (t *tracker) wroteNumber(key, n uint64) {
	k := t.claim(key)
	t.retire(k)
	k.present, k.isNum, k.num = true, true, n
}

// added learns that this client has added a piece to whatever was there.
func (t *tracker) added(key uint64) {
	if k := t.find(key); k != nil && k.present {
		k.pieces++
		if k.isNum {
			*k = knowledge{}
		}
	}
}

// missed learns that the key is not there.
func (t *tracker) missed(key uint64) {
	if k := t.find(key); k != nil {
		t.retire(k)
	}
}
