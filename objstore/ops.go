package objstore

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// Get implements Cache.
func (c *Client) Get(key []byte) (Item, error) {
	if err := c.session.Begin(); err != nil {
		return Item{}, err
	}
	it, err := c.get(key)
	c.session.End()
	return it, err
}

func (c *Client) get(key []byte) (it Item, err error) {
	var k work
	if it, err = c.getObject(&k, key); err != nil || k.h.kind != kindList {
		return it, err
	}
	it, c.large.whole, err = c.getWhole(key, it, c.large.whole[:0])
	return it, err
}

// getObject gets an object, which may be a list of segments.
func (c *Client) getObject(k *work, key []byte) (it Item, err error) {
	if err := c.start(k, key); err != nil {
		return Item{}, err
	}
	if !k.segment {
		c.stats.Gets++
	}
	c.trimBoth()
	if k.unregistered {
		return c.getUnregistered(k)
	}
	if err = c.outlast(k, func() (err error) { it, err = c.getOnce(k); return err }); err != nil {
		c.dropGarbage()
	}
	return it, err
}

func (c *Client) getOnce(k *work) (Item, error) {
	if !c.s.locked {
		if it, done, err := c.getUnlocked(k); done {
			return it, err
		}
		*k = work{look: k.afresh()}
	}
	if err := c.lookup(k, lock.Shared); err != nil {
		return Item{}, err
	}
	if !k.found {
		return Item{}, c.unlock(ErrNotFound)
	}
	clock := c.Clock()
	now := uint32(clock / fabric.Second)
	if k.h.expired(clock) {
		if err := c.unlock(nil); err != nil {
			return Item{}, err
		}
		return Item{}, c.dropExpired(k)
	}
	var before []fabric.Op
	if c.stale(&k.look, now) {
		before = c.refresh(k, now)
	}
	if err := c.l.Release(&c.hold, before); err != nil {
		return Item{}, fmt.Errorf("objstore: %w", err)
	}
	return c.item(&k.look, now), nil
}

// item returns the object that was found, for the user. now is the second of the store's clock.
func (c *Client) item(k *look, now uint32) Item {
	v := c.value(k)
	if !k.segment {
		c.stats.Hits++
	}
	c.stats.BytesRead += uint64(len(v))
	return k.h.item(v, now)
}

// item returns an object with a value, for the user.
func (h *header) item(value []byte, now uint32) Item {
	return Item{Value: value, Flags: h.flags, CAS: h.unique, Expiry: h.expiry.second, Early: h.expiry.early, Access: h.access.at(now)}
}

// stale reports whether the object's access time is to be written.
func (c *Client) stale(k *look, now uint32) bool {
	return int32(now-k.h.access.at(now)) >= int32(c.s.cfg.AccessRefreshS)
}

// refresh returns the operation that gives the object a new access time. Under
// a shared lock others may do the same at the same time: no client changes the
// expiry beside it then.
func (c *Client) refresh(k *work, now uint32) []fabric.Op {
	k.h.access = access{second: now}
	c.before[0] = fabric.Store(k.n.At(k.word.chunk().off64).Add(metaOffset), k.h.meta())
	return c.before[:1]
}

// dropExpired drops the object that was found expired, if it can without waiting:
// others may be reading it.
func (c *Client) dropExpired(k *work) error {
	c.user.Enter()
	defer c.user.Exit()
	ch, err := c.unlink(k.n, k.bucket, k.slot, k.word, k.h.expiry)
	if err != nil && !errors.Is(err, fabric.ErrTooFewCopies) { // it stays, and is dropped later
		return err
	}
	if !ch.none() {
		c.stats.Expired++
		c.s.places.forget(k.hash, k.word)
		c.freeObject(k.n, k.word, k.h.kind)
	}
	return ErrNotFound
}

// beginChange begins an operation of the user that changes the object of a key, and endChange ends it.
func (c *Client) beginChange(k *work, key []byte) error {
	if err := c.session.Begin(); err != nil {
		return err
	}
	c.user.Enter()
	k.need = toChange
	err := c.start(k, key)
	if err != nil {
		c.endChange()
	}
	return err
}

func (c *Client) endChange() {
	c.user.Exit()
	c.dropGarbage()
	c.session.End()
}

// A condition says when to store.
type condition uint8

const (
	always condition = iota
	ifAbsent
	ifPresent
	ifUnchanged // there with a given unique
)

// check says why not to store, given whether there is a live object and the unique asked for.
func (cond condition) check(live bool, have, unique uint64) error {
	switch {
	case cond == ifAbsent && live:
		return ErrExists
	case (cond == ifPresent || cond == ifUnchanged) && !live:
		return ErrNotFound
	case cond == ifUnchanged && have != unique:
		return ErrExists
	}
	return nil
}

// Set implements Cache.
func (c *Client) Set(key, value []byte, o Options) error { return c.store(key, value, o, always, 0) }

// Add implements Cache.
func (c *Client) Add(key, value []byte, o Options) error { return c.store(key, value, o, ifAbsent, 0) }

// Replace implements Cache.
func (c *Client) Replace(key, value []byte, o Options) error {
	return c.store(key, value, o, ifPresent, 0)
}

// CompareAndSwap implements Cache.
func (c *Client) CompareAndSwap(key, value []byte, o Options, cas uint64) error {
	return c.store(key, value, o, ifUnchanged, cas)
}

func (c *Client) store(key, value []byte, o Options, cond condition, unique uint64) error {
	if c.s.large(len(value)) {
		return c.storeLarge(key, value, o, cond, unique)
	}
	k := work{look: look{head: true}, absorbs: cond == always}
	if err := c.beginChange(&k, key); err != nil {
		return err
	}
	defer c.endChange()
	if uint64(len(value)) > uint64(c.s.geo.maxValue) {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrValueSize, len(value), c.s.geo.maxValue)
	}
	n := headerSize + uint64(len(key)+len(value))
	if len(value) > keepBuffer && c.port.Lend(value) {
		defer c.port.Lend(nil)
		n, k.tail = headerSize+uint64(len(key)), value
	}
	c.out = c.grow(c.trim(c.out), n)
	copy(c.out[headerSize:], k.key)
	copy(c.out[headerSize+len(key):n], value)
	c.obj = c.trim(c.obj) // not before: the value may lie in it
	return c.outlast(&k, func() error {
		return c.orAlone(&k, func() error { return c.storeOnce(&k, c.out[:n], o, cond, unique) })
	})
}

// storeOnce stores the object in b, which has its key and value.
func (c *Client) storeOnce(k *work, b []byte, o Options, cond condition, unique uint64) error {
	ch, err := c.alloc(k.n, classFor(k.size(b)))
	if err != nil {
		return err
	}
	begun := *k
	if k.set = cond == always; k.set && c.opens(k.n) {
		if done, err := c.setOpen(k, b, o, ch); done || err != nil {
			return err
		}
		begun.set = true
		*k = begun
	}
	err = c.lookup(k, lock.Exclusive)
	if err == nil && k.openSlot {
		if err = c.unlock(nil); err == nil {
			if done, err := c.setOpen(k, b, o, ch); done || err != nil {
				return err
			}
			*k = begun
			k.insist = true
			err = c.lookup(k, lock.Exclusive)
		}
	}
	if err != nil {
		c.free(k.n, ch)
		return err
	}
	clock := c.Clock()
	if err := cond.check(k.found && !k.h.expired(clock), k.h.unique, unique); err != nil {
		c.free(k.n, ch)
		return c.unlockAsFound(k, err)
	}
	h := header{access: access{second: uint32(clock / fabric.Second)}, expiry: c.expiryOf(o), flags: o.Flags, valueLen: uint32(k.size(b)) - headerSize - uint32(len(k.key))}
	return c.storeObject(k, &h, ch, b)
}

// size returns the size of the object in b, k.tail and k.hole.
func (k *work) size(b []byte) uint64 { return uint64(len(b) + len(k.tail) + k.hole) }

// storeObject stores the object in b and k.tail, of which header is still to be written, in
// chunk ch under the lock that is held, and releases it.
func (c *Client) storeObject(k *work, h *header, ch chunk, b []byte) error {
	n, err := c.encodeObject(k, h, ch, b)
	var tag uint8
	if err == nil {
		tag, err = c.tagFor(k, h.unique, k.set)
	}
	if err != nil {
		c.free(k.n, ch)
		return c.unlock(err)
	}
	w := makeSlot(k.fp, ch, k.size(b), tag)
	var known bool
	switch {
	case k.found:
		c.setHandoff(k, c.slotOf(k), w, b)
		known, err = c.publish(k, n, k.slot, uint64(c.inMemory(k)), uint64(w))
	case k.vacant != 0:
		k.slot = k.vacant
		c.setHandoff(k, c.slotOf(k), w, b)
		known, err = c.publish(k, n, k.slot, uint64(c.inMemory(k)), uint64(w))
	default:
		known, err = c.overflow(k, n, w)
	}
	if err != nil {
		c.s.places.put(k.hash, 0, 0)
		if known || c.hold.Left {
			c.free(k.n, ch)
		} else {
			k.unknown = true
			c.lose(k.n, ch)
		}
		return err
	}
	if c.hold.Left {
		c.free(k.n, ch)
		c.stats.Absorbed++
		c.stats.Stores++
		c.stats.BytesWritten += uint64(h.valueLen)
		return nil
	}
	c.s.places.put(k.hash, w, c.s.saw(k.bucket, k.slot, h.unique))
	if c.s.geo.opens && w.open() {
		c.noteOpen(k, w)
	}
	if !k.segment {
		c.stats.Stores++
	}
	c.stats.BytesWritten += uint64(h.valueLen)
	if k.deferral != 0 {
		c.dropKept(k)
		return nil
	}
	if k.found {
		c.freeObject(k.n, k.word, k.h.kind)
	}
	return nil
}

// encodeObject writes the header of the object in b and k.tail, with a new unique, and makes the first n operations of c.before those that write it to a chunk.
func (c *Client) encodeObject(k *work, h *header, ch chunk, b []byte) (n int, err error) {
	if h.unique, err = c.nextUnique(k.node); err != nil {
		return 0, err
	}
	h.class, h.keyLen, h.kind = ch.class, uint8(len(k.key)), k.kind()
	h.check = h.checkOf(k.hash)
	h.encode(b)
	c.before[0] = fabric.Write(k.n.At(ch.off64), b)
	if len(k.tail) == 0 {
		return 1, nil
	}
	// behind the first word, which readers go by (unlocked.go)
	c.before[1] = fabric.Write(k.n.At(ch.off64).Add(uint64(len(b))), k.tail)
	return 2, nil
}

// overflow publishes w, behind the first n operations, in a new overflow block, because no slot is free. A
// bucket that has as many blocks as it may have loses an object instead.
func (c *Client) overflow(k *work, n int, w slotWord) (known bool, err error) {
	if k.depth >= maxOverflow {
		return c.replaceAny(k, n, w)
	}
	block, err := c.alloc(k.n, overflowClass)
	switch {
	case errors.Is(err, ErrNoSpace) && !c.s.cfg.NoEvict:
		return c.replaceAny(k, n, w)
	case err != nil:
		return true, c.unlock(err)
	}
	clear(c.block)
	putWord(c.block, 0, uint64(w))
	c.before[n] = fabric.Write(k.n.At(block.off64), c.block)
	known, err = c.publish(k, n+1, k.link, 0, uint64(makeLink(block)))
	switch {
	case err == nil:
		c.stats.Overflows++
	case known:
		c.free(k.n, block)
	default:
		c.lose(k.n, block)
	}
	return known, err
}

// replaceAny publishes w in place of an object of the bucket's last slots,
// which are in c.slots.
func (c *Client) replaceAny(k *work, n int, w slotWord) (known bool, err error) {
	if c.s.cfg.NoEvict {
		return true, c.unlock(fmt.Errorf("%w: bucket at %v is full", ErrNoSpace, k.bucket))
	}
	slots := uint64(overflowSlots)
	if k.depth == 0 {
		slots = uint64(c.s.geo.slots)
	}
	i := c.port.Rand() % slots
	victim := slotWord(wordAt(c.slots, int(i)))
	slot := k.link - fabric.Addr((slots-i)*slotSize)
	if c.s.geo.opens {
		if victim, err = c.holdSlot(slot, victim); err != nil {
			return true, c.unlock(err)
		}
	}
	if !holds(k.n, victim) {
		return true, c.unlock(fmt.Errorf("%w: slot at %v is %v", ErrCorrupt, slot, victim))
	}
	if known, err = c.publish(k, n, slot, uint64(victim), uint64(w)); err == nil {
		c.stats.Evictions++
		c.freeObject(k.n, victim, unknownKind)
	}
	return known, err
}

// Delete implements Cache.
func (c *Client) Delete(key []byte) error {
	k := work{look: look{head: true}, absorbs: true}
	if err := c.beginChange(&k, key); err != nil {
		return err
	}
	defer c.endChange()
	c.trimBoth()
	err := c.outlast(&k, func() error {
		return c.orAlone(&k, func() error {
			if err := c.lookupLive(&k); err != nil {
				return err
			}
			return c.remove(&k)
		})
	})
	if err == nil {
		c.stats.Deletes++
	}
	return err
}

// orAlone executes an operation on a key, and again if it was deferred to a holder that has not executed it.
func (c *Client) orAlone(k *work, try func() error) error {
	err := try()
	if err != nil && errors.Is(err, lock.ErrNotExecuted) {
		*k = k.anew()
		k.alone = true
		err = try()
	}
	return err
}

// remove unlinks the object that was found and releases the lock.
func (c *Client) remove(k *work) error {
	c.setHandoff(k, c.slotOf(k), 0, nil)
	known, err := c.publish(k, 0, k.slot, uint64(c.inMemory(k)), 0)
	if c.hold.Left {
		if err == nil {
			c.stats.Absorbed++
		}
		return err
	}
	if !known {
		c.stats.Leaked++
	}
	c.s.places.forget(k.hash, k.word)
	switch {
	case err != nil:
	case k.deferral != 0:
		c.dropKept(k)
	default:
		c.freeObject(k.n, k.word, k.h.kind)
	}
	return err
}

// lookupLive is lookup for changing what is there: with an exclusive lock. An
// expired object is dropped, and is not there.
func (c *Client) lookupLive(k *work) error {
	if err := c.miss(k); err != nil {
		return err
	}
	if err := c.lookup(k, lock.Exclusive); err != nil {
		return err
	}
	if !k.found {
		return c.unlockAsFound(k, ErrNotFound)
	}
	if k.h.expired(c.Clock()) {
		if err := c.remove(k); err != nil {
			return err
		}
		c.stats.Expired++
		return ErrNotFound
	}
	return nil
}

// Touch implements Cache. It replaces the one word of access and expiry in place.
func (c *Client) Touch(key []byte, ttl uint32) error { return c.TouchAs(key, Options{TTL: ttl}) }

// TouchAs gives the object the time of expiry that it would have if it were stored now with options.
func (c *Client) TouchAs(key []byte, o Options) error {
	k := work{look: look{head: true}}
	if err := c.beginChange(&k, key); err != nil {
		return err
	}
	defer c.endChange()
	c.trimBoth()
	return c.outlast(&k, func() error {
		if err := c.lookupLive(&k); err != nil {
			return err
		}
		k.h.expiry = c.expiryOf(o)
		return c.releaseRefreshed(&k, c.refresh(&k, c.now()))
	})
}

// Append implements Cache.
func (c *Client) Append(key, data []byte) error { return c.extend(key, data, false) }

// Prepend implements Cache.
func (c *Client) Prepend(key, data []byte) error { return c.extend(key, data, true) }

// extend reads the object to where its value must stand in the new one, so that
// only the header, the key and the data are moved. The data may lie in c.obj, where Get put its value: so
// the object is read into the other buffer.
func (c *Client) extend(key, data []byte, before bool) error {
	if c.s.geo.segment != 0 {
		return c.extendLarge(key, data, before)
	}
	var k work
	if err := c.beginChange(&k, key); err != nil {
		return err
	}
	defer c.endChange()
	if before {
		k.at = uint64(len(data))
	}
	if uint64(len(data)) > uint64(c.s.geo.maxValue) {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrValueSize, len(data), c.s.geo.maxValue)
	}
	c.obj, c.out = c.trim(c.out), c.obj
	return c.outlast(&k, func() error { return c.extendOnce(&k, data, before) })
}

func (c *Client) extendOnce(k *work, data []byte, before bool) error {
	if err := c.lookupLive(k); err != nil {
		return err
	}
	valueLen := uint64(k.h.valueLen) + uint64(len(data))
	if valueLen > uint64(c.s.geo.maxValue) {
		return c.unlockAsFound(k, fmt.Errorf("%w: %d bytes, at most %d", ErrValueSize, valueLen, c.s.geo.maxValue))
	}
	begin := headerSize + uint64(len(k.key))
	n := begin + valueLen
	ch, err := c.alloc(k.n, classFor(n))
	if err != nil {
		return c.unlock(err)
	}
	c.obj = c.grow(c.obj, n)
	copy(c.obj[headerSize:], k.key)
	if before {
		copy(c.obj[begin:], data)
	} else {
		copy(c.obj[begin+uint64(k.h.valueLen):], data)
	}
	h := header{access: access{second: c.now()}, expiry: k.h.expiry, flags: k.h.flags, valueLen: uint32(valueLen)}
	return c.storeObject(k, &h, ch, c.obj[:n])
}

// Incr implements Cache.
func (c *Client) Incr(key []byte, delta uint64) (uint64, error) {
	return c.add(key, func(v uint64) uint64 { return v + delta })
}

// Decr implements Cache.
func (c *Client) Decr(key []byte, delta uint64) (uint64, error) {
	return c.add(key, func(v uint64) uint64 { return v - min(v, delta) })
}

// maxDigits is the length of the largest 64-bit number.
const maxDigits = 20

// add replaces a decimal value. As in memcached, a result that is shorter than
// what was there is padded with spaces behind to the same length.
func (c *Client) add(key []byte, f func(uint64) uint64) (v uint64, err error) {
	var k work
	if err := c.beginChange(&k, key); err != nil {
		return 0, err
	}
	defer c.endChange()
	c.trimBoth()
	err = c.outlast(&k, func() (err error) { v, err = c.addOnce(&k, f); return err })
	return v, err
}

func (c *Client) addOnce(k *work, f func(uint64) uint64) (uint64, error) {
	if err := c.lookupLive(k); err != nil {
		return 0, err
	}
	old := c.value(&k.look)
	v, ok := parseDecimal(old)
	if !ok || k.h.kind == kindList {
		return 0, c.unlockAsFound(k, ErrNotNumber)
	}
	v = f(v)
	begin := headerSize + len(k.key)
	c.out = c.grow(c.out, uint64(begin+maxDigits))
	copy(c.out[headerSize:], k.key)
	b := strconv.AppendUint(c.out[:begin], v, 10)
	for len(b) < begin+len(old) {
		b = append(b, ' ')
	}
	ch, err := c.alloc(k.n, classFor(uint64(len(b))))
	if err != nil {
		return 0, c.unlock(err)
	}
	h := header{access: access{second: c.now()}, expiry: k.h.expiry, flags: k.h.flags, valueLen: uint32(len(b) - begin)}
	if err := c.storeObject(k, &h, ch, b); err != nil {
		return 0, err
	}
	return v, nil
}

// parseDecimal parses 1 to 20 digits with spaces behind.
func parseDecimal(b []byte) (v uint64, ok bool) {
	if len(b) > maxDigits {
		return 0, false
	}
	for len(b) > 0 && b[len(b)-1] == ' ' {
		b = b[:len(b)-1]
	}
	for _, d := range b {
		if d < '0' || d > '9' {
			return 0, false
		}
		w := v*10 + uint64(d-'0')
		if v > ^uint64(0)/10 || w < v*10 {
			return 0, false
		}
		v = w
	}
	return v, len(b) > 0
}
