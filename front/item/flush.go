package item

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/objstore"
)

// A flush takes one atomic step for all items: the number of the last flush grows, and items with another number are not there any
// more. The number is in a control record, in a store of its own. An operation must know the number as it is while the operation is under
// way, and does not read the record for that: a server reads it every pollEvery, and goes by what it read for a lease.
//
//   - A flush first says in the record that it is under way, and waits for longer than a lease. From then on every server has either read
//     that, or its lease is over: both have it read the record for each operation.
//   - Then the number grows, in one step: that is the flush. What reads the record from then on takes no item from before.
//   - In the same step the flush is over, and servers may go by leases again.
//
// A get reads its item first, and takes the number afterwards: so the number was right at a moment after that of the item. An operation that
// changes an item takes the number first, and stores the item with it. If a flush comes between the two, the item is not there: the operation took place
// before the flush. If such an operation finds an item with a greater number than its own, it starts again with a new one, so that nothing
// from before a flush replaces what was stored after it.
//
// A server that crashes while it flushes leaves the record as under way: operations are slower then, and right, until another server ends it.
const (
	pollEvery = 10 * time.Millisecond
	lease     = 60 * time.Millisecond
	flushWait = lease + 10*time.Millisecond
	// idlePoll is how often an unused server reads it, which it is after idleAfter readings without an operation between two: for flushes that are due.
	idlePoll  = 500 * time.Millisecond
	idleAfter = 100
	// abandoned is after how long a flush that is still under way is taken for that of a crashed server.
	abandoned = time.Second
)

var controlKey = []byte("flush")

// A record is what all servers know of flushes.
//
//	offset  bytes
//	  0       8   which flush is under way; 0: none
//	  8       4   number of the last flush
//	 12       4   second of the store's clock in which one is due; 0: none is
type record struct {
	underWay uint64
	number   uint32
	due      uint32
}

const recordSize = 16

func (r *record) encode(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, r.underWay)
	b = binary.LittleEndian.AppendUint32(b, r.number)
	return binary.LittleEndian.AppendUint32(b, r.due)
}

// decodeRecord reads a record; one that makes no sense is none.
func decodeRecord(b []byte) (r record, ok bool) {
	if len(b) != recordSize {
		return r, false
	}
	return record{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint32(b[8:]), binary.LittleEndian.Uint32(b[12:])}, true
}

// A lastFlush is what a server has read of the record.
type lastFlush struct {
	readAt atomic.Int64 // nanoseconds of the server's clock when the read began; 0: never
	number atomic.Uint64
	used   atomic.Bool   // an operation has asked since the watcher looked
	wanted chan struct{} // wakes the watcher of a server that was unused

	mu    sync.Mutex    // of writers
	since int64         // what was read of the record by a read that began before is of another one
	eras  atomic.Uint32 // how often the record has become another one
}

// slow is the bit of lastFlush.number that says that a flush is under way. The others are the number of the last one.
const slow = 1 << 32

// Flushes are those of a store's items. Any number of goroutines may use them.
type Flushes struct {
	// use lends a function a client of the store that has the record.
	use     func(context.Context, func(*objstore.Client) error) error
	started time.Time
	last    lastFlush
}

// ControlSuffix is behind the name of a store in that of the one with its record of flushes, which ControlConfig makes.
const ControlSuffix = ".control"

// ControlConfig is how the store with the record is made.
var ControlConfig = declock.StoreConfig{Objects: 1, MaxValue: 1 << 10, NoEvict: true}

// NewFlushes returns the flushes of which the record is in a store. use lends a client of that, and meets losses of memory; it may call its function again.
func NewFlushes(use func(context.Context, func(*objstore.Client) error) error) *Flushes {
	x := &Flushes{use: use, started: time.Now()}
	x.last.wanted = make(chan struct{}, 1)
	return x
}

// Read reads the record anew, and makes it if there is none. A failure is that of the store.
func (x *Flushes) Read(ctx context.Context) (number uint32, err error) {
	r, err := x.readRecord(ctx)
	return r.number, err
}

// Look reads the record anew, and flushes if that is due.
func (x *Flushes) Look(ctx context.Context) error {
	_, err := x.look(ctx)
	return err
}

// Forget forgets what was read of the record, which may be another one from now on. It is called before any operation can find a store of items that was
// opened with that: each that has the number from before finds then that the era has ended, and starts again with a new one.
func (x *Flushes) Forget() {
	l := &x.last
	l.mu.Lock()
	defer l.mu.Unlock()
	l.eras.Add(1)
	l.readAt.Store(0)
	l.since = int64(x.clock())
}

// Era is taken before the number of the last flush, and compared when an item is stored with that: in another era the number is of a record that is not there any more.
func (x *Flushes) Era() uint32 { return x.last.eras.Load() }

// clock is the process's own.
func (x *Flushes) clock() time.Duration { return time.Since(x.started) }

// set notes a record that was read, unless one that was read later is there, or the record is another one since. readAt is written last, and read first.
func (l *lastFlush) set(r *record, at time.Duration) {
	v := uint64(r.number)
	if r.underWay != 0 {
		v |= slow
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if int64(at) > max(l.readAt.Load(), l.since) {
		l.number.Store(v)
		l.readAt.Store(int64(at))
	}
}

// Number returns the number of the last flush.
func (x *Flushes) Number(ctx context.Context) (uint32, error) {
	if !x.last.used.Load() {
		x.last.used.Store(true)
	}
	at := x.last.readAt.Load()
	v := x.last.number.Load()
	if v&slow == 0 && at != 0 && x.clock()-time.Duration(at) < lease {
		return uint32(v), nil
	}
	select {
	case x.last.wanted <- struct{}{}:
	default:
	}
	r, err := x.readRecord(ctx)
	return r.number, err
}

// untilPoll returns how long the watcher waits until it reads the record again, and how many times now it was not needed: no operation has asked for the
// number, and no flush is due or under way.
func untilPoll(needed bool, unneeded int) (time.Duration, int) {
	switch {
	case needed:
		return pollEvery, 0
	case unneeded+1 < idleAfter:
		return pollEvery, unneeded + 1
	}
	return idlePoll, idleAfter
}

// readRecord reads the record, and makes it if it is not there. Its first number is the time, so that it is greater than any from before memory was lost.
func (x *Flushes) readRecord(ctx context.Context) (r record, err error) {
	at := x.clock()
	ok := false
	err = x.use(ctx, func(c *objstore.Client) error {
		it, err := c.Get(controlKey)
		if err == nil {
			r, ok = decodeRecord(it.Value)
		}
		return err
	})
	if err == nil && ok {
		x.last.set(&r, at)
		return r, nil
	}
	if err != nil && !errors.Is(err, objstore.ErrNotFound) {
		return r, err
	}
	at = x.clock()
	err = x.changeRecord(ctx, func(now *record) bool { r = *now; return true })
	if err == nil {
		x.last.set(&r, at)
	}
	return r, err
}

// changeRecord changes the record if f says so.
func (x *Flushes) changeRecord(ctx context.Context, f func(*record) bool) error {
	u := objstore.Update{Read: -1, Apply: func(o *objstore.Object) objstore.Change {
		r, ok := decodeRecord(o.Value)
		if !ok {
			r = record{number: o.Now}
		}
		if !f(&r) && ok {
			return objstore.Change{}
		}
		return objstore.Change{Action: objstore.Put, Value: r.encode(nil)}
	}}
	return x.use(ctx, func(c *objstore.Client) error { return c.Update(controlKey, u) })
}

// Schedule has a flush take place in a second of the store's clock, in place of one that was due.
func (x *Flushes) Schedule(ctx context.Context, due uint32) error {
	return x.changeRecord(ctx, func(r *record) bool { r.due = due; return true })
}

// Flush makes the items that are there now not be there, for all servers, in one step.
func (x *Flushes) Flush(ctx context.Context) error { return x.flush(ctx, 0) }

// flush is Flush. due is that of the record, if the flush is one that was due then: it takes place once.
func (x *Flushes) flush(ctx context.Context, due uint32) error {
	me := rand.Uint64() | 1
	var first record
	for begun := x.clock(); ; {
		over, mine := false, false
		err := x.changeRecord(ctx, func(r *record) bool {
			mine = false
			if first == (record{}) {
				first = *r
			}
			// One that another server has begun since serves as this one.
			over = r.number != first.number || due != 0 && r.due != due
			if !over && (r.underWay == 0 || x.clock()-begun > abandoned) {
				r.underWay, mine = me, true
			}
			return mine
		})
		if err != nil || over {
			return err
		}
		if !mine {
			time.Sleep(pollEvery)
			continue
		}
		time.Sleep(flushWait)
		err = x.changeRecord(ctx, func(r *record) bool {
			if mine = r.underWay == me; mine {
				*r = record{number: r.number + 1}
			}
			return mine
		})
		if err == nil && mine {
			_, err = x.readRecord(ctx)
			return err
		}
		if err != nil {
			return err
		}
		begun = x.clock() // another has taken the flush over: two must not take it from each other for ever
	}
}

// Watch reads the record until ctx ends, often while there are operations. It makes flushes that are due, and ends one that a crashed server has left.
func (x *Flushes) Watch(ctx context.Context) {
	var seen uint64 // a flush under way
	var since time.Duration
	for wait, unneeded := pollEvery, 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		case <-x.last.wanted:
		}
		r, err := x.look(ctx)
		switch {
		case err != nil:
		case r.underWay != seen:
			seen, since = r.underWay, x.clock()
		case seen != 0 && x.clock()-since > 2*abandoned:
			_ = x.changeRecord(ctx, func(r *record) bool { // or the next time
				was := r.underWay == seen
				if was {
					r.underWay = 0
				}
				return was
			})
		}
		wait, unneeded = untilPoll(x.last.used.Swap(false) || r.due != 0 || r.underWay != 0, unneeded)
	}
}

// look reads the record, and flushes if that is due.
func (x *Flushes) look(ctx context.Context) (record, error) {
	r, err := x.readRecord(ctx)
	if err != nil || r.due == 0 {
		return r, err
	}
	now := uint32(0)
	err = x.use(ctx, func(c *objstore.Client) error { now = c.Now(); return nil })
	if err == nil && now >= r.due {
		err = x.flush(ctx, r.due)
	}
	return r, err
}
