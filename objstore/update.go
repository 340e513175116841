package objstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// An Object is what Update finds under a key. The zero Object is none.
type Object struct {
	Item
	Found   bool
	Expired bool        // there is one that has expired, in place of which Put puts another
	Size    int         // of the whole value, of which Item.Value may be the beginning
	Now     uint32      // second of the store's clock
	Clock   fabric.Time // the store's clock
	// Token is the fencing token of the lock of the key's bucket: of two changes of a key the later one has the greater token, also if the key was
	// deleted between them.
	Token lock.Token
}

// An Action is what Update does to an object.
type Action uint8

// Keep leaves everything as it is; Put stores an object in place of what is there; Expire gives the object that is there another Expiry;
// Remove deletes it. Expire and Remove of no object are Keep.
const (
	Keep Action = iota
	Put
	Expire
	Remove
)

// A Change is what a function that is given to Update decides.
type Change struct {
	Action Action
	Value  []byte  // of Put; it may lie in Object.Value, but not in what an earlier Get returned
	Upload *Upload // of Put, or nil: Value is only the beginning of the value, and this the rest
	Flags  uint32  // of Put
	Expiry uint32  // of Put and Expire: a second of the store's clock, 0 is never
	Early  uint16  // of Put and Expire: how many milliseconds before Expiry, below 1000
}

func (ch *Change) expiry() expiry {
	if ch.Expiry == 0 {
		return expiry{}
	}
	return expiry{ch.Expiry, min(ch.Early, 999)}
}

// An Update says how [Client.Update] goes about it.
type Update struct {
	// Read is how many bytes of the value Apply needs to see, from its beginning; negative: all.
	Read int
	// Beginning has Apply see no more of a value in segments than is in its list, at most 64 bytes, whatever Read says.
	Beginning bool
	// IfFound has Apply called only if there is an object, else Update is ErrNotFound: a miss takes no lock then.
	IfFound bool
	// Apply is called with the object under the key, or none, while the lock is held, so it must neither wait nor use the client. Where values have segments (Config.Segment), or memory
	// has copies, it may be called again, with another object perhaps: only what it decides last takes place, and nothing does if Update is ErrNotFound in the end. What it is
	// given is valid until it returns. If it panics, the lock is released and nothing is changed: but where memory has copies, and it was called before, what that decided may have been.
	Apply func(*Object) Change
}

// Update changes the object of a key as a function decides that sees it: one operation, under the lock of the key's bucket.
//
// No segment is read or written under that lock. A value in segments that Apply has to see is read before, and one that it puts is written behind it: then the lock is acquired
// again, and if the object has changed meanwhile all begins again.
func (c *Client) Update(key []byte, u Update) error {
	d := &c.large.decision
	if c.s.geo.segment != 0 && len(key) <= MaxKey {
		*d = decision{}
		key = d.key[:copy(d.key[:], key)] // c.key is used by segments meanwhile
	}
	again, err := c.updateOnce(key, &u, d)
	for again && err == nil {
		again, err = c.updateOnce(key, &u, d)
	}
	if d.up != nil && d.own && !d.up.ended {
		err = errors.Join(err, c.Abort(d.up))
	}
	return err
}

// updateOnce is Update as far as it comes with one acquisition of the lock. It reports whether it is to be called again.
func (c *Client) updateOnce(key []byte, u *Update, d *decision) (again bool, err error) {
	k := work{look: look{head: u.Read >= 0, value: uint64(max(u.Read, 0))}}
	if c.s.geo.segment != 0 {
		k.value = max(k.value, listSize)
	}
	if err := c.beginChange(&k, key); err != nil {
		return false, err
	}
	defer c.endChange()
	c.trimBoth()
	err = c.outlast(&k, func() (err error) { again, err = c.decideOnce(&k, u, d); return err })
	if !again {
		c.conclude(d.up, err, k.unknown)
	}
	if k.unknown { // else their lists are nowhere any more
		for _, up := range d.before {
			c.conclude(up, err, true)
		}
	}
	return again, err
}

// decideOnce locks the bucket, has Apply decide, and makes the change.
func (c *Client) decideOnce(k *work, u *Update, d *decision) (again bool, err error) {
	if err := c.lookupUpdate(k, u); err != nil {
		return false, err
	}
	if d.stands(k) {
		return false, c.putList(k, c.now(), d)
	}
	if d.up != nil && d.own {
		d.up.ended = true
		if k.trace.None() { // else its segments stay: a backup may have the list
			c.s.uploads.end(d.up.l.ref(0))
			c.discardSegments(&d.up.l, -1)
		}
	} else if d.up != nil && !k.trace.None() {
		d.before = append(d.before, d.up)
	}
	d.up = nil
	o := &c.object
	*o = Object{Clock: c.Clock(), Token: c.hold.Token}
	o.Now = uint32(o.Clock / fabric.Second)
	o.Expired = k.found && k.h.expired(o.Clock)
	if k.found && !o.Expired {
		b := c.value(&k.look)
		o.Item = k.h.item(b, o.Now)
		o.Found, o.Size = true, int(k.h.valueLen)
		if k.h.kind == kindList {
			if seen, err := c.seeLarge(k, u, d); !seen || err != nil {
				return err == nil, err
			}
		}
	}
	ch := c.apply(k, o, u.Apply)
	if ch.Action == Put && (ch.Upload != nil || c.s.large(len(ch.Value))) {
		return c.putLarge(k, d, ch)
	}
	return false, c.change(k, o, ch)
}

// seeLarge gives c.object what Apply is to see of a value in segments. If it is not seen, the lock is released: the value has been read, and the lock is to be acquired again.
func (c *Client) seeLarge(k *work, u *Update, d *decision) (seen bool, err error) {
	b, o := c.value(&k.look), &c.object
	o.Size = int(binary.LittleEndian.Uint32(b))
	if headLen := int(binary.LittleEndian.Uint32(b[8:])); headLen <= listHeadSize && (u.Beginning || u.Read >= 0 && u.Read <= headLen) {
		o.Value = b[listHeadOffset:][:headLen]
		return true, nil
	}
	if d.whole != nil && d.wholeU == k.h.unique {
		o.Value = d.whole
		return true, nil
	}
	if err := c.unlockAsFound(k, nil); err != nil {
		return false, err
	}
	c.user.Exit()
	defer c.user.Enter()
	it, l, err := c.openObject(k.key)
	if d.whole = nil; l != nil {
		n := l.size
		if u.Read >= 0 {
			n = min(n, u.Read)
		}
		d.wholeU = it.CAS
		if d.whole, err = c.appendLarge(nil, l, 0, n); errors.Is(err, ErrNotFound) {
			d.whole, err = nil, c.removeBroken(l)
		}
	}
	if errors.Is(err, ErrNotFound) {
		err = nil
	}
	return false, err
}

// putLarge releases the lock and writes the segments of the value that is to be put, unless they are written already.
func (c *Client) putLarge(k *work, d *decision, ch Change) (again bool, err error) {
	if up := ch.Upload; up != nil {
		if up.ended || !c.s.uploads.has(up.l.ref(0)) || len(ch.Value) != up.l.headLen || !bytes.Equal(up.l.key, k.key) {
			return false, c.unlockAsFound(k, fmt.Errorf("%w: not an upload for key %q with %d bytes before it", ErrConfig, k.key, len(ch.Value)))
		}
		d.decide(k, ch, up, false)
		return false, c.putList(k, c.object.Now, d)
	}
	if err := c.unlockAsFound(k, nil); err != nil {
		return false, err
	}
	found := *k
	c.user.Exit()
	up, err := c.uploadWhole(k.key, ch.Value)
	c.user.Enter()
	if err == nil {
		d.decide(&found, ch, up, true)
	}
	return err == nil, err
}

// apply calls Update's function. If that panics, nothing has been changed, and the lock is released: the program may recover.
func (c *Client) apply(k *work, o *Object, f func(*Object) Change) (ch Change) {
	returned := false
	defer func() {
		if !returned {
			_ = c.unlockAsFound(k, nil)
		}
	}()
	ch = f(o)
	returned = true
	return ch
}

// change does to the object that was found what Update's function has decided, and releases the lock.
func (c *Client) change(k *work, o *Object, ch Change) error {
	switch {
	case ch.Action == Put:
		return c.put(k, o, &ch)
	case ch.Action == Expire && o.Found:
		k.h.expiry = ch.expiry()
		return c.releaseRefreshed(k, c.refresh(k, o.Now))
	case ch.Action == Remove && o.Found:
		if err := c.remove(k); err != nil {
			return err
		}
		c.stats.Deletes++
		return nil
	}
	return c.unlockAsFound(k, nil)
}

// put stores an object under the lock that is held, and releases it.
func (c *Client) put(k *work, o *Object, ch *Change) error {
	if uint64(len(ch.Value)) > uint64(c.s.geo.maxValue) {
		return c.unlockAsFound(k, fmt.Errorf("%w: %d bytes, at most %d", ErrValueSize, len(ch.Value), c.s.geo.maxValue))
	}
	n := headerSize + uint64(len(k.key)+len(ch.Value))
	to, err := c.alloc(k.n, classFor(n))
	if err != nil {
		return c.unlock(err)
	}
	c.out = c.grow(c.out, n)
	copy(c.out[headerSize:], k.key)
	copy(c.out[headerSize+len(k.key):], ch.Value)
	h := header{access: access{second: o.Now}, expiry: ch.expiry(), flags: ch.Flags, valueLen: uint32(len(ch.Value))}
	return c.storeObject(k, &h, to, c.out[:n])
}

// Now returns the second of the store's clock, in which Expiry counts.
func (c *Client) Now() uint32 { return c.now() }

// Clock returns the store's clock, of which Now is the second: for users that keep finer times in values.
func (c *Client) Clock() fabric.Time {
	if c.nowS != 0 {
		return fabric.Time(c.nowS) * fabric.Second
	}
	return c.port.Now()
}
