package item

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/front"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/objstore"
)

// Items are the items of a store. Any number of goroutines may use them.
type Items struct {
	cluster *declock.Cluster
	name    string
	cfg     declock.StoreConfig
	stores  atomic.Pointer[stores]
	opening sync.Mutex
	started time.Time
	flushes *Flushes

	gets, updates front.Timer

	stop     context.CancelFunc
	watching sync.WaitGroup
}

// stores are the two that Items have open.
type stores struct {
	objects *declock.Store
	control *declock.Store // of the record of flushes
}

// Open opens the store with a name, and a second one that says which items count; or makes them, the first as cfg says.
func Open(ctx context.Context, c *declock.Cluster, name string, cfg declock.StoreConfig) (*Items, error) {
	x := &Items{cluster: c, name: name, cfg: cfg, started: time.Now()}
	x.flushes = NewFlushes(x.useControl)
	err := x.open(ctx)
	if err == nil {
		_, err = x.flushes.Read(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("front: store %q: %w", name, err)
	}
	watch, stop := context.WithCancel(context.Background())
	x.stop = stop
	x.watching.Go(func() { x.flushes.Watch(watch) })
	return x, nil
}

// open opens the stores; if they are open, those anew that have been dropped.
func (x *Items) open(ctx context.Context) error {
	x.opening.Lock()
	defer x.opening.Unlock()
	objects, err := x.cluster.Store(ctx, x.name, x.cfg)
	if err != nil {
		return err
	}
	control, err := x.cluster.Store(ctx, x.name+ControlSuffix, ControlConfig)
	if err != nil {
		return err
	}
	if before := x.stores.Load(); before != nil && before.control != control {
		x.flushes.Forget()
	}
	x.stores.Store(&stores{objects, control})
	return nil
}

func (x *Items) objects() *declock.Store { return x.stores.Load().objects }

// useControl lends f a client of the store with the record of flushes.
func (x *Items) useControl(ctx context.Context, f func(*objstore.Client) error) error {
	for since := time.Duration(0); ; {
		if err := x.stores.Load().control.Use(ctx, f); !x.retry(ctx, err, &since) {
			return err
		}
	}
}

// Flush makes the items that are there now not be there, for all servers, in one step.
func (x *Items) Flush(ctx context.Context) error { return x.flushes.Flush(ctx) }

// Close ends what Items do by themselves. The stores stay open until the cluster is closed.
func (x *Items) Close() {
	x.stop()
	x.watching.Wait()
}

// MaxValue returns the size of the largest value.
func (x *Items) MaxValue() int { return x.objects().MaxValue() - HeadSize }

// lossWait bounds how long an operation waits for a store that is being made anew.
const lossWait = time.Second

// retry reports whether an operation is to be done once more because of its error: memory was lost, of which one operation is notified, the store is just being made anew, or
// was dropped: then it is made anew here. since, at first 0, is when the operation has failed first: one that succeeds reads no clock.
func (x *Items) retry(ctx context.Context, err error, since *time.Duration) bool {
	if err == nil {
		return false
	}
	wasDropped := errors.Is(err, objstore.ErrDropped)
	if !wasDropped && !errors.Is(err, declock.ErrMemoryLost) {
		return false
	}
	now := x.clock()
	if *since == 0 {
		*since = now
	}
	switch {
	case now-*since > lossWait:
		return false
	case wasDropped:
		return x.open(ctx) == nil
	}
	time.Sleep(time.Millisecond)
	return true
}

// clock is the process's own.
func (x *Items) clock() time.Duration { return time.Since(x.started) }

// View calls f with the item of a key, whose value is good until f returns; f must not use x. Of a value in segments it has the beginning. If View reports that there is none, what f has done is to be undone: the
// item was flushed. f may be called more than once.
func (x *Items) View(ctx context.Context, key []byte, f func(Item)) (found bool, err error) {
	var flush uint32
	see := func(c *objstore.Client) error {
		o, l, err := c.Open(key)
		if err != nil {
			return err
		}
		var it Item
		if found = it.open(&o, l, c.Clock()); found {
			flush = it.Flush
			f(it)
		}
		return nil
	}
	at := x.gets.Begin()
	err = x.objects().Use(ctx, see)
	for since := time.Duration(0); err != nil; err = x.objects().Use(ctx, see) {
		if !x.retry(ctx, err, &since) {
			break
		}
	}
	x.gets.End(at)
	if errors.Is(err, objstore.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !found {
		return false, nil
	}
	n, err := x.flushes.Number(ctx) // as it is after the read
	return err == nil && n == flush, err
}

// An Object is what Update finds under a key. The zero Object is none.
type Object struct {
	Item
	Found bool
	// Replaced: Put puts the item in place of one that has expired.
	Replaced bool
	Token    lock.Token // see objstore.Object
}

// InSegments reports whether the value has segments which have not been read.
func (o *Object) InSegments() bool { return o.Found && len(o.Value) < o.Size }

// A Change is what a function that is given to Update decides.
type Change struct {
	Action objstore.Action
	Value  []byte // of Put, with HeadSize bytes of room before it; nil: Put leaves the value as it is, which Update must have read whole
	Flags  uint32 // of Put
	Expiry int64  // of Put and Expire, Unix time in milliseconds; 0 is never
	State  uint8  // of Put
	// Upload is the rest of the value, behind the head, which Value is then; or nil.
	Upload *objstore.Upload
}

// An Update says how Items.Update goes about it: see objstore.Update.
type Update struct {
	Read      int
	Beginning bool // of a value in segments Apply needs to see nothing, whatever Read says: Object.InSegments
	IfFound   bool
	Apply     func(*Object) Change
}

// Update changes the item of a key as a function decides that sees it: one operation, under the lock of the key's bucket. The function may be called again
// with another object: only what it decides last takes place. If IfFound is set and there is no object, Update reports so and does not call it; an item that
// was flushed is an object that is not Found.
func (x *Items) Update(ctx context.Context, key []byte, u Update) (called bool, err error) {
	if u.Read >= 0 {
		u.Read += HeadSize
	}
	era := x.flushes.Era()
	n, err := x.flushes.Number(ctx)
	if err != nil {
		return false, err
	}
	for lost := n; ; {
		seen, again, err := x.update(ctx, key, &u, era, n, lost)
		switch {
		case errors.Is(err, objstore.ErrNotFound):
			return false, nil
		case err != nil:
			return false, err
		case !again:
			return true, nil
		}
		era = x.flushes.Era()
		if n, err = x.flushes.Read(ctx); err != nil {
			return false, err
		}
		if lost = n; int32(seen-n) > 0 {
			lost = seen
		}
	}
}

// update is Update with a number of the last flush, of an era. If that has ended, or the item is newer, it is left, and again is set; seen is the item's number. An item with the
// number lost is one from before the record was lost.
func (x *Items) update(ctx context.Context, key []byte, u *Update, era, number, lost uint32) (seen uint32, again bool, err error) {
	d := decisions.Get().(*decision)
	d.flushes, d.key, d.apply, d.era, d.number, d.lost = x.flushes, key, u.Apply, era, number, lost
	begun := x.updates.Begin()
	defer func() { // also if Apply panics
		x.updates.End(begun)
		*d = decision{decide: d.decide}
		decisions.Put(d)
	}()
	for since := time.Duration(0); ; {
		d.again, d.seen = false, number
		err = x.objects().Update(ctx, key, objstore.Update{Read: u.Read, Beginning: u.Beginning, IfFound: u.IfFound, Apply: d.decide})
		if !x.retry(ctx, err, &since) {
			return d.seen, d.again, err
		}
	}
}

// A decision is what update does under the lock.
type decision struct {
	flushes           *Flushes
	key               []byte
	apply             func(*Object) Change // the user's
	era, number, lost uint32
	object            Object // that apply sees
	again             bool
	seen              uint32

	decide func(*objstore.Object) objstore.Change // for objstore.Update
}

// decisions has those that are not in use: a function that is made for each update takes memory.
var decisions = sync.Pool{New: func() any {
	d := new(decision)
	d.decide = d.of
	return d
}}

// of decides what becomes of an object.
func (d *decision) of(at *objstore.Object) objstore.Change {
	if d.again = d.flushes.Era() != d.era; d.again {
		return objstore.Change{}
	}
	o := &d.object
	*o = Object{Token: at.Token, Replaced: at.Expired}
	if at.Found {
		ok := o.itemOf(&at.Item, at.Size, at.Clock)
		if d.again = ok && o.Flush != d.lost && int32(o.Flush-d.number) > 0; d.again {
			d.seen = o.Flush
			return objstore.Change{}
		}
		o.Found = ok && o.Flush == d.number
	}
	if !o.Found {
		o.Item = Item{Clock: at.Clock}
	}
	return o.change(d.key, d.apply(o), d.number, at)
}

// change returns what becomes of the object.
func (o *Object) change(key []byte, ch Change, number uint32, at *objstore.Object) objstore.Change {
	second, early := expiryOf(ch.Expiry)
	switch ch.Action {
	case objstore.Expire:
		if !o.Found {
			return objstore.Change{Action: objstore.Remove} // what is not there for clients
		}
		return objstore.Change{Action: objstore.Expire, Expiry: second, Early: early}
	case objstore.Put:
		h := Head{Unique: Unique(key, o.Token), Flush: number, State: ch.State}
		value := ch.Value
		if value == nil {
			value = at.Value[:at.Size]
		}
		h.Encode(value)
		return objstore.Change{Action: objstore.Put, Value: value, Flags: ch.Flags, Expiry: second, Early: early, Upload: ch.Upload}
	}
	return objstore.Change{Action: ch.Action}
}
