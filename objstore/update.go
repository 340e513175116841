package objstore

import (
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
	Value  []byte // of Put; it may lie in Object.Value, but not in what an earlier Get returned
	Flags  uint32 // of Put
	Expiry uint32 // of Put and Expire: a second of the store's clock, 0 is never
}

// An Update says how [Client.Update] goes about it.
type Update struct {
	// Read is how many bytes of the value Apply needs to see, from its beginning; negative: all.
	Read int
	// IfFound has Apply called only if there is an object, else Update is ErrNotFound: a miss takes no lock then.
	IfFound bool
	// Apply is called with the object under the key, or none, while the lock is held, so it must neither wait nor use the client. It is called at
	// most once. What it is given is valid until it returns. If it panics, nothing is changed and the lock is released.
	Apply func(*Object) Change
}

// Update changes the object of a key as a function decides that sees it: one operation, under the lock of the key's bucket.
func (c *Client) Update(key []byte, u Update) error {
	k := work{head: u.Read >= 0, value: uint64(max(u.Read, 0))}
	if err := c.beginChange(&k, key); err != nil {
		return err
	}
	defer c.endChange()
	c.trimBoth()
	err := c.outlast(&k, func() error { // Apply is called once only
		if u.IfFound {
			return c.lookupLive(&k)
		}
		return c.lookup(&k, lock.Exclusive)
	})
	if err != nil {
		return err
	}
	o := &c.object
	*o = Object{Clock: c.Clock(), Token: c.hold.Token}
	o.Now = uint32(o.Clock / fabric.Second)
	o.Expired = k.found && k.h.expired(o.Now)
	if k.found && !o.Expired {
		b := c.obj[:k.at+k.want(k.word)]
		b = b[k.at+headerSize+uint64(k.h.keyLen):]
		b = b[:min(uint64(len(b)), uint64(k.h.valueLen))]
		o.Item = Item{Value: b, Flags: k.h.flags, CAS: k.h.unique, Expiry: k.h.expiry, Access: k.h.access}
		o.Found, o.Size = true, int(k.h.valueLen)
	}
	return c.change(&k, o, c.apply(&k, o, u.Apply))
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
		k.h.expiry = ch.Expiry
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
	h := header{access: o.Now, expiry: ch.Expiry, flags: ch.Flags, valueLen: uint32(len(ch.Value))}
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
