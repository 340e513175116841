package objstore

import (
	"errors"
	"slices"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// GetMulti reads many keys in the time of a few. The optimistic reads of a batch of keys (unlocked.go) are packed into as few chains for each memory node as these
// may be long, and all chains are posted before the first is waited for: two round trips for all keys, one if the location cache knows
// them. What that does not settle is done by gets, one after the other. Each key is read at a moment of its own, as by a Get.
//
// Where READs of a chain may be exchanged, a chain has one READ of each of its keys, and the next READs are posted when it has completed: three round trips for
// keys that the location cache knows, six for others, and eight for those of which it is wrong. A get takes the lock there, in two round trips, so a
// few keys are left to gets.

// Where a batch costs no round trip, since the memory is the CPU's (fabric.Gatherer), it has so few keys that all that is known of them fits into the nearest cache.

// Bounds of a batch. Larger requests are several.
const (
	batchKeys  = 128
	gatherKeys = 32      // with a Gatherer
	batchBytes = 1 << 20 // of objects, but for the first
	// fewestUnordered is how many keys are worth a batch where READs of a chain may be exchanged.
	fewestUnordered = 4
)

// A Result is what GetMulti has found of a key.
type Result struct {
	Item         // its Value lies in what GetMulti has appended to
	Large *Large // OpenMulti: the value has segments, and Value is its beginning
	Err   error  // ErrNotFound: there is none
}

// A batch is what GetMulti has under way.
type batch struct {
	gatherer fabric.Gatherer // that the Port is, or nil: then each part has one chain, however long

	keys   []byte // copies: those of the caller may lie in what Get returned
	units  []unit
	ops    []fabric.Op
	step   []fabric.Op // one of each unit: those that are under way where READs may be exchanged
	slots  []byte      // buckets; of the Port
	bytes  uint64      // of c.obj that are in use
	chains []posted
}

// A unit is one key of a batch.
type unit struct {
	look    // slot and word: of an object that is to be read again, or was found
	result  *Result
	guess   slotWord // by the location cache
	seen    sighting // of guess
	number  int32    // in the batch
	first   int32    // its first operation in the batch's
	reads   int32    // how many it has; 0: some failed, or there are none
	chain   int32    // that they are in
	under   int32    // where in the batch's step the one is that is under way
	outcome outcome  // what the reads have found so far
	in      bool     // its reads are those of tryReadIn
	retry   bool     // and did not do
	again   bool     // its object is to be read
}

// A posted is a chain under way.
type posted struct {
	ops     []fabric.Op
	pending fabric.Pending
	err     error
}

// GetMulti is Get of the first n keys: of all, unless there are more than 128 of them, or their values have more than about 1 MiB. At least one is got.
// results, as long as keys, gets what is found; values are appended to dst, which may be nil. The error is that of a client that is closed.
func (c *Client) GetMulti(keys [][]byte, results []Result, dst []byte) (n int, _ []byte, err error) {
	return c.multi(keys, results, dst, false)
}

// OpenMulti is GetMulti that reads no segments, as [Client.Open] is Get.
func (c *Client) OpenMulti(keys [][]byte, results []Result, dst []byte) (n int, _ []byte, err error) {
	return c.multi(keys, results, dst, true)
}

func (c *Client) multi(keys [][]byte, results []Result, dst []byte, open bool) (n int, _ []byte, err error) {
	if err := c.session.Begin(); err != nil {
		return 0, dst, err
	}
	defer c.session.End()
	c.small++
	c.trimBoth()
	most := batchKeys
	if c.batch.gatherer != nil {
		most = gatherKeys
	}
	keys = keys[:min(len(keys), batchKeys)]
	for begun, k := len(dst), most; k == most && n < len(keys) && len(dst)-begun < batchBytes; n += k {
		k, dst = c.getBatch(keys[n:min(n+most, len(keys))], results[n:], dst, open)
	}
	return n, dst, nil
}

func (c *Client) getBatch(keys [][]byte, results []Result, dst []byte, open bool) (int, []byte) {
	b, begun := &c.batch, len(dst)
	optimistic := !c.s.cfg.Paper && (c.s.order || len(keys) >= fewestUnordered) && c.s.h.UpToDate()
	n := c.beginBatch(keys, results, optimistic, &look{})
	if optimistic {
		c.findBatch()
		dst = c.takeValues(dst)
	}
	var down []int // parts
	var why error
	for i := range b.units {
		u := &b.units[i]
		if u.outcome != unclear {
			continue
		}
		if slices.Contains(down, u.node) { // one get has waited for it
			*u.result = Result{Err: why}
			continue
		}
		if i > 0 && len(dst)-begun > batchBytes {
			return i, dst
		}
		dst = c.getResult(u, dst, open)
		err := u.result.Err
		if errors.Is(err, fabric.ErrNodeDown) && u.place != (place{}) {
			down, why = append(down, u.node), err
		}
	}
	return n, dst
}

// findBatch reads the units of the batch.
func (c *Client) findBatch() {
	b := &c.batch
	c.readBatch((*unit).sane, c.firstReads)
	retry, again := c.settleFirsts()
	if retry {
		c.readBatch(func(u *unit) bool { return u.retry }, c.firstReads)
		_, again = c.settleFirsts()
	}
	if !again {
		return
	}
	c.obj = c.grow(c.obj, b.bytes)
	c.readBatch(func(u *unit) bool { return u.again }, c.secondReads)
	for i := range b.units {
		c.settleSecond(&b.units[i])
	}
}

// settleFirsts is settleFirst of all units. It reports whether some are to be read in the way of tryRead, and whether objects are to be read again.
func (c *Client) settleFirsts() (retry, again bool) {
	for i := range c.batch.units {
		u := &c.batch.units[i]
		c.settleFirst(u)
		retry, again = retry || u.retry, again || u.again
	}
	return retry, again
}

// getResult gets what a batch has not found, and appends the value, or, with open, its beginning, to dst.
func (c *Client) getResult(u *unit, dst []byte, open bool) []byte {
	r := u.result
	if *r = (Result{}); !open {
		r.Item, dst, r.Err = c.getTo(u.key, dst)
		return dst
	}
	if r.Item, r.Large, r.Err = c.openObject(u.key); r.Err == nil {
		from := len(dst)
		dst = append(dst, r.Value...)
		r.Value = dst[from:len(dst):len(dst)]
	}
	return dst
}

// beginBatch makes units of the first keys, as a model has them, and returns how many. Their objects are at most batchBytes, as far as the location cache knows.
func (c *Client) beginBatch(keys [][]byte, results []Result, optimistic bool, model *look) int {
	b := &c.batch
	keys = keys[:min(len(keys), batchKeys)]
	if b.slots == nil {
		b.slots = c.port.Alloc(batchKeys * c.s.slotsLen())
	}
	b.keys, b.bytes = b.keys[:0], 0
	for _, key := range keys {
		b.keys = append(b.keys, key...)
	}
	b.units = slices.Grow(b.units[:0], len(keys))[:len(keys)]
	clear(b.units)
	from := 0
	for i, key := range keys {
		u := &b.units[i]
		u.number, u.head, u.value, u.segment = int32(i), model.head, model.value, model.segment
		if results != nil {
			u.result = &results[i]
		}
		u.key = b.keys[from : from+len(key)]
		from += len(key)
		if optimistic && u.sane() {
			u.place = c.s.locate(u.key)
			u.n = c.s.h.Parts[u.node]
			c.s.places.touch(u.hash) // all, before the first is needed
		}
	}
	for i := range b.units {
		u := &b.units[i]
		if u.n == nil {
			continue
		}
		if u.guess, u.seen = c.s.places.get(u.hash); !holds(u.n, u.guess) || u.want(u.guess) < headerSize {
			u.guess = 0
		}
		if u.guess != 0 && !c.room(u, u.guess) && i > 0 {
			b.units = b.units[:i]
			break
		}
	}
	c.obj = c.grow(c.obj, b.bytes)
	return len(b.units)
}

// sane reports whether there may be such a key.
func (u *unit) sane() bool { return len(u.key) > 0 && len(u.key) <= MaxKey }

// slotsOf returns where the slots of a unit's bucket are read to.
func (c *Client) slotsOf(u *unit) []byte {
	n := c.s.slotsLen()
	return c.batch.slots[int(u.number)*n:][:n]
}

// room gives a unit room for an object, and reports whether all is within bounds.
func (c *Client) room(u *unit, w slotWord) bool {
	u.at = c.batch.bytes
	c.batch.bytes += (u.want(w) + 7) &^ 7
	return c.batch.bytes <= batchBytes
}

// readBatch executes the reads of some units.
func (c *Client) readBatch(some func(u *unit) bool, reads func(u *unit, ops []fabric.Op) []fabric.Op) {
	b, inOrder := &c.batch, c.s.order
	b.ops, b.chains = slices.Grow(b.ops[:0], 5*len(b.units)), b.chains[:0]
	longest := fabric.MaxChain
	if b.gatherer != nil {
		longest = cap(b.ops)
	}
	for part := range c.s.h.Parts {
		ready, first := false, len(b.ops)
		for i := range b.units {
			u := &b.units[i]
			if u.node != part || !some(u) {
				continue
			}
			if !ready && lock.Ready(c.l, u.bucket) != nil {
				break // gets will tell
			}
			ready = true
			at := len(b.ops)
			b.ops = reads(u, b.ops)
			if u.first, u.reads = int32(at), int32(len(b.ops)-at); inOrder && len(b.ops)-first > longest {
				b.chains = append(b.chains, posted{ops: b.ops[first:at]})
				first = at
			}
			u.chain = int32(len(b.chains))
		}
		if inOrder && len(b.ops) > first {
			b.chains = append(b.chains, posted{ops: b.ops[first:]})
		}
	}
	if inOrder {
		c.postChains()
		c.waitChains(0)
		return
	}
	for step := int32(0); c.readStep(step); step++ {
	}
}

// readStep executes the READ with a number of each unit, and reports whether any had one.
func (c *Client) readStep(step int32) bool {
	b := &c.batch
	b.step, b.chains = slices.Grow(b.step[:0], len(b.units)), b.chains[:0]
	for part := range c.s.h.Parts {
		first := len(b.step)
		for i := range b.units {
			u := &b.units[i]
			if u.node != part || step >= u.reads {
				continue
			}
			if len(b.step)-first == fabric.MaxChain {
				b.chains = append(b.chains, posted{ops: b.step[first:]})
				first = len(b.step)
			}
			u.chain, u.under = int32(len(b.chains)), int32(len(b.step))
			b.step = append(b.step, b.ops[u.first+step])
		}
		if len(b.step) > first {
			b.chains = append(b.chains, posted{ops: b.step[first:]})
		}
	}
	c.postChains()
	c.waitChains(step)
	for i := range b.units {
		if u := &b.units[i]; step < u.reads {
			b.ops[u.first+step] = b.step[u.under]
		}
	}
	return len(b.step) > 0
}

// postChains posts the chains of the batch.
func (c *Client) postChains() {
	for i := range c.batch.chains {
		p := &c.batch.chains[i]
		if c.batch.gatherer != nil {
			p.err = c.batch.gatherer.Gather(p.ops)
		} else {
			p.pending, p.err = c.port.Post(p.ops)
		}
	}
}

// waitChains waits for the chains that have been posted. Units of which READs beyond done were in one that failed have none.
func (c *Client) waitChains(done int32) {
	b, failed := &c.batch, false
	for i := range b.chains {
		p := &b.chains[i]
		if p.err == nil && b.gatherer == nil {
			p.err = c.port.Wait(p.pending)
		}
		p.ops, failed = nil, failed || p.err != nil
	}
	if !failed {
		return
	}
	for i := range b.units {
		if u := &b.units[i]; u.reads > done && b.chains[u.chain].err != nil {
			u.reads = 0
		}
	}
}

// results returns the operations of a unit, if they have been executed.
func (b *batch) results(u *unit) []fabric.Op {
	if u.reads == 0 {
		return nil
	}
	return b.ops[u.first : u.first+u.reads]
}

// firstReads appends the chain of tryRead, or of tryReadIn.
func (c *Client) firstReads(u *unit, ops []fabric.Op) []fabric.Op {
	n := len(ops)
	if u.guess == 0 {
		ops = ops[:n+1] // there is room
		ops[n].SetRead(c.s.slotsAddr(u.bucket), c.slotsOf(u))
		return ops
	}
	ops = ops[:n+3]
	c.readObject(&u.look, u.guess, &ops[n])
	if slot := u.seen.slot(); slot >= 0 && c.batch.gatherer != nil {
		u.in = true
		ops[n+1].SetLoad(c.s.slotsAddr(u.bucket).Add(uint64(slot) * slotSize))
	} else {
		ops[n+1].SetRead(c.s.slotsAddr(u.bucket), c.slotsOf(u))
	}
	ops[n+2].SetLoad(u.n.At(u.guess.chunk().off64))
	return ops
}

// settleFirst is what tryRead does with the results of its chain.
func (c *Client) settleFirst(u *unit) {
	ops := c.batch.results(u)
	u.reads = 0
	if ops == nil {
		return
	}
	if u.in {
		if u.in, u.retry = false, slotWord(ops[1].Old) != u.guess || !u.seen.of(ops[2].Old); u.retry {
			u.guess = 0
			return
		}
		c.stats.CacheHits++
		u.outcome = c.accept(&u.look, ops[1].Addr, u.guess, ops[2].Old)
		return
	}
	slot, w, s := c.matchSlot(&u.look, c.slotsOf(u))
	switch {
	case s != present:
		u.outcome = s
	case w == u.guess:
		if u.seen.of(ops[2].Old) {
			c.stats.CacheHits++
			u.outcome = c.accept(&u.look, slot, w, ops[2].Old)
		}
	case holds(u.n, w) && u.want(w) >= headerSize:
		before := c.batch.bytes
		if u.again = c.room(u, w); !u.again {
			c.batch.bytes = before
			return
		}
		c.stats.CacheMisses++
		u.slot, u.word = slot, w
	}
}

// secondReads appends the chain of tryReadAt.
func (c *Client) secondReads(u *unit, ops []fabric.Op) []fabric.Op {
	first, n := u.n.At(u.word.chunk().off64), len(ops)
	ops = ops[:n+5]
	ops[n].SetLoad(first)
	ops[n+1].SetLoad(u.slot)
	c.readObject(&u.look, u.word, &ops[n+2])
	ops[n+3].SetLoad(u.slot)
	ops[n+4].SetLoad(first)
	return ops
}

// settleSecond is what tryReadAt does with the results of its chain.
func (c *Client) settleSecond(u *unit) {
	if ops := c.batch.results(u); u.again && ops != nil &&
		slotWord(ops[1].Old) == u.word && slotWord(ops[3].Old) == u.word && ops[0].Old == ops[4].Old {
		u.outcome = c.note(&u.look, u.slot, u.word, ops[0].Old)
	}
}

// takeValues appends what was found to dst.
func (c *Client) takeValues(dst []byte) []byte {
	b, clock, size := &c.batch, c.Clock(), 0
	now := uint32(clock / fabric.Second)
	for i := range b.units {
		u := &b.units[i]
		if u.outcome == present && (u.h.expired(clock) || c.stale(&u.look, now) || u.h.kind == kindList) {
			u.outcome = unclear // another client may have given it more time since; segments are read one after the other
		}
		if u.outcome == present {
			size += int(u.h.valueLen)
		}
	}
	dst = slices.Grow(dst, size)
	for i := range b.units {
		u := &b.units[i]
		switch r := u.result; u.outcome {
		case absent:
			c.stats.Gets++
			*r = Result{Err: ErrNotFound}
		case present: // field by field: a copy of an Item that has just been made waits until its fields are in the cache
			v, from := c.value(&u.look), len(dst)
			dst = append(dst, v...)
			r.Value = dst[from:len(dst):len(dst)]
			r.Flags, r.CAS, r.Expiry, r.Early, r.Access = u.h.flags, u.h.unique, u.h.expiry.second, u.h.expiry.early, u.h.access.at(now)
			r.Large, r.Err = nil, nil
			c.stats.Gets++
			c.stats.Hits++
			c.stats.BytesRead += uint64(len(v))
		}
	}
	return dst
}
