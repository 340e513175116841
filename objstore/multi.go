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

// Bounds of a batch. Larger requests are several.
const (
	batchKeys  = 128
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
	work
	result  *Result
	slots   []byte   // of its bucket
	guess   slotWord // by the location cache
	unique  uint64   // of guess
	at      int      // its first operation in the batch's
	reads   int      // how many it has; 0: some failed, or there are none
	chain   int      // that they are in
	under   int      // where in the batch's step the one is that is under way
	outcome outcome  // what the reads have found so far
	again   bool     // its object is to be read
	slot    fabric.Addr
	word    slotWord // of slot
}

// A posted is a chain under way.
type posted struct {
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
	n, dst = c.getBatch(keys, results, dst, open)
	return n, dst, nil
}

func (c *Client) getBatch(keys [][]byte, results []Result, dst []byte, open bool) (int, []byte) {
	b, begun := &c.batch, len(dst)
	optimistic := !c.s.cfg.Paper && (c.s.order || len(keys) >= fewestUnordered) && c.s.h.UpToDate()
	n := c.beginBatch(keys, results, optimistic, &work{})
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
	c.readBatch(func(u *unit) bool { return len(u.key) > 0 && len(u.key) <= MaxKey }, c.firstReads)
	for i := range b.units {
		c.settleFirst(&b.units[i])
	}
	c.obj = c.grow(c.obj, b.bytes)
	c.readBatch(func(u *unit) bool { return u.again }, c.secondReads)
	for i := range b.units {
		c.settleSecond(&b.units[i])
	}
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
func (c *Client) beginBatch(keys [][]byte, results []Result, optimistic bool, model *work) int {
	b := &c.batch
	keys = keys[:min(len(keys), batchKeys)]
	if b.slots == nil {
		b.slots = c.port.Alloc(batchKeys * c.s.slotsLen())
	}
	b.keys, b.units, b.bytes = b.keys[:0], b.units[:0], 0
	for _, key := range keys {
		b.keys = append(b.keys, key...)
	}
	from := 0
	if optimistic {
		c.s.places.touch(keys, c.s.geo.seed)
	}
	b.units = slices.Grow(b.units, len(keys))
	clear(b.units[:len(keys)])
	slots := c.s.slotsLen()
	for i, key := range keys {
		u := &b.units[:i+1][i]
		u.work, u.slots = *model, b.slots[i*slots:][:slots]
		if results != nil {
			u.result = &results[i]
		}
		u.key = b.keys[from : from+len(key)]
		from += len(key)
		if optimistic && len(key) > 0 && len(key) <= MaxKey {
			u.place = c.s.locate(u.key)
			u.n = c.s.h.Parts[u.node]
			if u.guess, u.unique = c.s.places.get(u.hash); !holds(u.n, u.guess) || u.want(u.guess) < headerSize {
				u.guess = 0
			}
			if u.guess != 0 && !c.room(u, u.guess) && i > 0 {
				break
			}
		}
		b.units = b.units[:i+1]
	}
	c.obj = c.grow(c.obj, b.bytes)
	return len(b.units)
}

// room gives a unit room for an object, and reports whether all is within bounds.
func (c *Client) room(u *unit, w slotWord) bool {
	u.work.at = c.batch.bytes
	c.batch.bytes += (u.want(w) + 7) &^ 7
	return c.batch.bytes <= batchBytes
}

// readBatch executes the reads of some units.
func (c *Client) readBatch(some func(u *unit) bool, reads func(u *unit, ops []fabric.Op) []fabric.Op) {
	b, inOrder := &c.batch, c.s.order
	b.ops, b.chains = slices.Grow(b.ops[:0], 5*len(b.units)), b.chains[:0]
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
			u.at = len(b.ops)
			b.ops = reads(u, b.ops)
			if u.reads = len(b.ops) - u.at; inOrder && len(b.ops)-first > fabric.MaxChain {
				c.postChain(b.ops[first:u.at])
				first = u.at
			}
			u.chain = len(b.chains)
		}
		if inOrder {
			c.postChain(b.ops[first:])
		}
	}
	if inOrder {
		c.waitChains(0)
		return
	}
	for step := 0; c.readStep(step); step++ {
	}
}

// readStep executes the READ with a number of each unit, and reports whether any had one.
func (c *Client) readStep(step int) bool {
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
				c.postChain(b.step[first:])
				first = len(b.step)
			}
			u.chain, u.under = len(b.chains), len(b.step)
			b.step = append(b.step, b.ops[u.at+step])
		}
		c.postChain(b.step[first:])
	}
	c.waitChains(step)
	for i := range b.units {
		if u := &b.units[i]; step < u.reads {
			b.ops[u.at+step] = b.step[u.under]
		}
	}
	return len(b.step) > 0
}

func (c *Client) postChain(ops []fabric.Op) {
	if len(ops) > 0 {
		p, err := c.port.Post(ops)
		c.batch.chains = append(c.batch.chains, posted{p, err})
	}
}

// waitChains waits for the chains that have been posted. Units of which READs beyond done were in one that failed have none.
func (c *Client) waitChains(done int) {
	b := &c.batch
	for i := range b.chains {
		if p := &b.chains[i]; p.err == nil {
			p.err = c.port.Wait(p.pending)
		}
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
	return b.ops[u.at : u.at+u.reads]
}

// firstReads appends the chain of tryRead.
func (c *Client) firstReads(u *unit, ops []fabric.Op) []fabric.Op {
	slots := fabric.Read(c.s.slotsAddr(u.bucket), u.slots)
	if u.guess == 0 {
		return append(ops, slots)
	}
	n := len(ops)
	ops = ops[:n+3] // there is room
	c.readObject(&u.work, u.guess, &ops[n])
	ops[n+1], ops[n+2] = slots, fabric.Load(u.n.At(u.guess.chunk().off64))
	return ops
}

// settleFirst is what tryRead does with the results of its chain.
func (c *Client) settleFirst(u *unit) {
	ops := c.batch.results(u)
	u.reads = 0
	if ops == nil {
		return
	}
	slot, w, s := c.matchSlot(&u.work, u.slots)
	switch {
	case s != present:
		u.outcome = s
	case w == u.guess:
		if ops[2].Old == u.unique {
			c.stats.CacheHits++
			u.outcome = c.accept(&u.work, slot, w, u.unique)
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
	first, slot := fabric.Load(u.n.At(u.word.chunk().off64)), fabric.Load(u.slot)
	var object fabric.Op
	c.readObject(&u.work, u.word, &object)
	return append(ops, first, slot, object, slot, first)
}

// settleSecond is what tryReadAt does with the results of its chain.
func (c *Client) settleSecond(u *unit) {
	if ops := c.batch.results(u); u.again && ops != nil &&
		slotWord(ops[1].Old) == u.word && slotWord(ops[3].Old) == u.word && ops[0].Old == ops[4].Old {
		u.outcome = c.accept(&u.work, u.slot, u.word, ops[0].Old)
	}
}

// takeValues appends what was found to dst.
func (c *Client) takeValues(dst []byte) []byte {
	b, clock, size := &c.batch, c.Clock(), 0
	now := uint32(clock / fabric.Second)
	for i := range b.units {
		u := &b.units[i]
		if u.outcome == present && (u.h.expired(clock) || c.stale(&u.work, now) || u.h.kind == kindList) {
			u.outcome = unclear // another client may have given it more time since; segments are read one after the other
		}
		if u.outcome == present {
			size += int(u.h.valueLen)
		}
	}
	dst = slices.Grow(dst, size)
	for i := range b.units {
		u := &b.units[i]
		switch u.outcome {
		case absent:
			c.stats.Gets++
			*u.result = Result{Err: ErrNotFound}
		case present:
			c.stats.Gets++
			from := len(dst)
			u.result.Item, u.result.Large, u.result.Err = c.item(&u.work, now), nil, nil
			dst = append(dst, u.result.Value...)
			u.result.Value = dst[from:len(dst):len(dst)]
		}
	}
	return dst
}
