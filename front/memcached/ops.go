package memcached

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/front/item"
	"github.com/declock/declock/objstore"
)

// A status is how an operation ended.
type status uint8

const (
	stored    status = iota // or deleted, touched, found
	notStored               // the condition did not hold
	exists                  // the unique is another
	notFound
	notNumber
)

// A mode is a way to store an item.
type mode uint8

const (
	modeSet mode = iota
	modeAdd
	modeReplace
	modeAppend
	modePrepend
	modeCAS
)

// A request is an item to be stored.
type request struct {
	mode    mode
	key     []byte
	value   []byte // with room for a head before it
	flags   uint32
	exptime int64
	cas     uint64 // 0: any
	// invalidate stores the item as stale if its unique is older than that which is there (ms with I).
	invalidate bool

	era     uint32 // see item.Flushes
	number  uint32 // of the last flush
	again   bool   // the number is too old, or that of the item is unknown
	seen    uint32 // then: that of the item
	lost    uint32 // number of items from before the record was lost; the last flush's: of none
	status  status
	stored  uint64 // unique of what was stored
	created bool
}

// maxRelative is the longest exptime that is relative; a larger one is a Unix time.
const maxRelative = 30 * 24 * 3600

// expiry returns the second of expiry of an exptime; one that is not after now is past.
func expiry(exptime int64, now uint32) uint32 {
	switch {
	case exptime == 0:
		return 0
	case exptime < 0:
		return now
	case exptime <= maxRelative:
		return now + uint32(exptime)
	}
	return uint32(min(exptime, 1<<32-1))
}

// errLarge: only clients of Redis can have stored the value.
var errLarge = fmt.Errorf("memcached: larger than the largest item: %w", objstore.ErrValueSize)

// large reports whether an item is larger than any of memcached's. Its value has been read if it is one object (up to 2.2 MiB); of a value in segments the server reads none.
func (s *Server) large(it *entry) bool { return it.size > s.o.MaxItem }

// get calls see with the item of a key, and the client that it lies in the memory of. If it returns that there is none, or an error, what see has done is void.
func (w *worker) get(key []byte, see func(it *entry, k *objstore.Client)) (found bool, err error) {
	large := false
	found, err = w.look(key, func(it *entry, k *objstore.Client) {
		if large = w.large(it); !large {
			see(it, k)
		}
	})
	if found && large {
		return false, errLarge
	}
	return found, err
}

// look is get for which of a large item the beginning of its value does.
func (w *worker) look(key []byte, see func(it *entry, k *objstore.Client)) (found bool, err error) {
	at := w.getTime.Begin()
	err = w.do(items, func(k *objstore.Client) error {
		expired := k.Stats().Expired
		o, size, err := w.open(k, key)
		if k.Stats().Expired != expired {
			w.counted.add(getExpired, 1)
		}
		if err != nil {
			return err
		}
		if found = w.item.itemOf(&o, size); found {
			see(&w.item, k)
		}
		return nil
	})
	w.getTime.End(at)
	w.item.value = nil
	switch {
	case errors.Is(err, objstore.ErrNotFound):
		return false, nil
	case err != nil || !found:
		return false, err
	}
	return w.live(&w.item)
}

// open gets an object, of a large item the beginning.
func (w *worker) open(k *objstore.Client, key []byte) (o objstore.Item, size int, err error) {
	o, l, err := k.Open(key)
	for err == nil && l != nil {
		if l.Size() > headSize+w.o.MaxItem {
			return o, l.Size(), nil
		}
		if w.buf, err = k.Read(l, 0, l.Size(), w.buf[:0]); err == nil {
			o.Value, l = w.buf, nil
		} else if errors.Is(err, objstore.ErrChanged) {
			o, l, err = k.Open(key)
		}
	}
	return o, len(o.Value), err
}

// live reports whether an item that has been read has outlived all flushes.
func (w *worker) live(it *entry) (bool, error) {
	n, err := w.flushes.Number(context.Background())
	if err == nil && it.Flush != n {
		w.counted.add(getFlushed, 1)
	}
	return err == nil && it.Flush == n, err
}

// update changes the object of a key with apply, which is given the number of the last flush, and so much of the value as read says; negative: all, or the error is errLarge. A
// key that is not there is notFound if ifFound is set, and apply is not called.
func (w *worker) update(key []byte, read int, ifFound bool, apply func(o *objstore.Object, it *entry, live bool, number uint32) objstore.Change) (found bool, err error) {
	all := read < 0
	if all {
		read = w.o.MaxItem
	}
	era := w.flushes.Era()
	n, err := w.flushes.Number(context.Background())
	if err != nil {
		return false, err
	}
	at := w.storeTime.Begin()
	defer w.storeTime.End(at)
	for lost := n; ; {
		again, large, seen := false, false, n
		err = w.do(items, func(k *objstore.Client) error {
			return k.Update(key, objstore.Update{Read: headSize + read, IfFound: ifFound, Apply: func(o *objstore.Object) objstore.Change {
				it, live, newer := w.opened(o, era, n, lost)
				if again, seen = newer, it.Flush; again {
					return objstore.Change{}
				}
				if large = all && live && w.large(&it); large {
					return objstore.Change{}
				}
				return apply(o, &it, live, n)
			}})
		})
		switch {
		case err == nil && large:
			return false, errLarge
		case errors.Is(err, objstore.ErrNotFound):
			return false, nil
		case err != nil:
			return false, err
		case !again:
			return true, nil
		}
		era = w.flushes.Era()
		if n, err = w.flushes.Read(context.Background()); err != nil {
			return false, err
		}
		if lost = n; int32(seen-n) > 0 {
			lost = seen
		}
	}
}

// opened returns the item in an object, whether it has outlived all flushes up to one, of an era, and whether it was stored after a later one: not one that the record,
// read since, does not know. That item is from before the record was lost. If the era has ended, the number is too old.
func (s *Server) opened(o *objstore.Object, era, number, lost uint32) (it entry, live, newer bool) {
	if s.flushes.Era() != era {
		it.Flush = number
		return it, false, true
	}
	if !o.Found {
		return it, false, false
	}
	ok := it.itemOf(&o.Item, o.Size)
	return it, ok && it.Flush == number, ok && it.Flush != lost && int32(it.Flush-number) > 0
}

// store stores the item of w.req.
func (w *worker) store() error {
	r := &w.req
	read := headSize
	if r.mode == modeAppend || r.mode == modePrepend {
		read += w.o.MaxItem // what is larger does not fit
	}
	ifFound := r.mode != modeSet && r.mode != modeAdd
	r.era = w.flushes.Era()
	n, err := w.flushes.Number(context.Background())
	if err != nil {
		return err
	}
	r.lost = n
	at := w.storeTime.Begin()
	defer w.storeTime.End(at)
	for {
		r.number, r.again, r.created, r.stored = n, false, false, 0
		u := objstore.Update{Read: read, IfFound: ifFound, Apply: w.apply}
		err := w.do(items, func(k *objstore.Client) error { return k.Update(r.key, u) })
		switch {
		case errors.Is(err, objstore.ErrNotFound):
			r.absent()
			return nil
		case err != nil:
			return err
		case !r.again:
			return nil
		}
		r.era = w.flushes.Era()
		if n, err = w.flushes.Read(context.Background()); err != nil {
			return err
		}
		if r.lost = n; int32(r.seen-n) > 0 {
			r.lost = r.seen
		}
	}
}

// absent sets the status of a request that needs an item, and there is none.
func (r *request) absent() {
	r.status = notStored
	if r.mode == modeCAS {
		r.status = notFound
	}
}

// applyStore decides what becomes of w.req, under the lock of the key.
func (w *worker) applyStore(o *objstore.Object) objstore.Change {
	r := &w.req
	old, live, newer := w.opened(o, r.era, r.number, r.lost)
	r.created, r.stored = false, 0
	if r.again = newer; newer {
		r.seen = old.Flush
		return objstore.Change{}
	}
	h := item.Head{Unique: item.Unique(r.key, o.Token), Flush: r.number}
	ch := objstore.Change{Action: objstore.Put, Value: r.value, Flags: r.flags}
	ch.Expiry = expiry(r.exptime, o.Now)
	if !live {
		if r.mode != modeSet && r.mode != modeAdd {
			r.absent()
			return objstore.Change{}
		}
	} else {
		switch {
		case r.mode == modeAdd:
			r.status = notStored
			return objstore.Change{}
		case r.mode == modeCAS && r.invalidate && r.cas != 0 && r.cas < old.Unique:
			h.State = stale | old.State&tokenSent
			ch.Expiry, ch.Early = old.expiry, old.early
		case r.mode == modeCAS && r.cas != old.Unique, r.mode != modeSet && r.mode != modeReplace && r.cas != 0 && r.cas != old.Unique:
			r.status = exists
			return objstore.Change{}
		}
		if r.mode == modeAppend || r.mode == modePrepend {
			if !w.fits(r.key, old.flags, old.size+len(r.value)-headSize) {
				r.status = notStored
				return objstore.Change{}
			}
			ch.Value = w.joined(r, old.value)
			ch.Flags, ch.Expiry, ch.Early = old.flags, old.expiry, old.early
		}
	}
	r.status, r.stored, r.created = stored, h.Unique, !o.Found
	if o.Expired {
		w.counted.add(reclaimed, 1)
	}
	h.Encode(ch.Value)
	return ch
}

// joined returns a value with the request's before or behind it, and room for a head.
func (w *worker) joined(r *request, old []byte) []byte {
	w.buf = append(w.buf[:0], make([]byte, headSize)...)
	if r.mode == modePrepend {
		w.buf = append(append(w.buf, r.value[headSize:]...), old...)
	} else {
		w.buf = append(append(w.buf, old...), r.value[headSize:]...)
	}
	return w.buf
}

// delete deletes the item of a key if it has a unique; 0: any.
func (w *worker) delete(key []byte, cas uint64) (s status, err error) {
	found, err := w.update(key, 0, true, func(_ *objstore.Object, it *entry, live bool, _ uint32) objstore.Change {
		switch {
		case !live:
			s = notFound
		case cas != 0 && cas != it.Unique:
			s = exists
			return objstore.Change{}
		default:
			s = stored
		}
		return objstore.Change{Action: objstore.Remove}
	})
	if !found {
		s = notFound
	}
	return s, err
}

// touch gives an item another time of expiry. see, if not nil, gets it, with its value, under the lock.
func (w *worker) touch(key []byte, exptime int64, see func(*entry)) (found bool, err error) {
	read := 0
	if see != nil {
		read = -1
	}
	called, err := w.update(key, read, true, func(o *objstore.Object, it *entry, live bool, _ uint32) objstore.Change {
		if found = live; !live {
			return objstore.Change{Action: objstore.Remove}
		}
		if see != nil {
			see(it)
		}
		return objstore.Change{Action: objstore.Expire, Expiry: expiry(exptime, o.Now)}
	})
	return called && found && err == nil, err
}

// A delta is an addition to an item's decimal value.
type delta struct {
	decr    bool
	by      uint64
	cas     uint64 // 0: any
	exptime *int64 // a new one
	// create stores initial, with the exptime createFor, if there is no item.
	create    bool
	initial   uint64
	createFor int64

	// what came of it
	status  status
	created bool
	value   uint64
	item    entry
	now     uint32
}

// numberRead is how much of a value is read to find a number in it.
const numberRead = 64

// count does a delta.
func (w *worker) count(key []byte, d *delta) error {
	d.status = notFound
	called, err := w.update(key, numberRead, !d.create, func(o *objstore.Object, it *entry, live bool, number uint32) objstore.Change {
		d.created, d.now = false, o.Now
		if !live {
			if !d.create {
				d.status = notFound
				return objstore.Change{Action: objstore.Remove}
			}
			d.status, d.created, d.value = stored, true, d.initial
			d.item = entry{Head: item.Head{Unique: item.Unique(key, o.Token), Flush: number}}
			return w.number(d, 0, d.createFor, o.Now)
		}
		v, ok := parseUint64(it.value)
		switch {
		case it.size == 0 || w.large(it):
			ok = false
		case d.cas != 0 && d.cas != it.Unique:
			d.status = exists
			return objstore.Change{}
		}
		if !ok {
			d.status = notNumber
			return objstore.Change{}
		}
		if d.decr {
			v -= min(v, d.by)
		} else {
			v += d.by
		}
		d.status, d.value, d.item = stored, v, *it
		d.item.Unique = item.Unique(key, o.Token)
		if d.exptime != nil {
			d.item.early = 0
			return w.number(d, it.size, *d.exptime, o.Now)
		}
		ch := w.number(d, it.size, 0, o.Now)
		ch.Expiry, ch.Early, d.item.expiry = it.expiry, it.early, it.expiry
		return ch
	})
	if !called {
		d.status = notFound
	}
	d.item.value = nil
	return err
}

// number returns the change that stores the number of d, with blanks behind it to a size, as memcached does.
func (w *worker) number(d *delta, size int, exptime int64, now uint32) objstore.Change {
	w.buf = append(w.buf[:0], make([]byte, headSize)...)
	d.item.Head.Encode(w.buf)
	w.buf = strconv.AppendUint(w.buf, d.value, 10)
	for len(w.buf) < headSize+size {
		w.buf = append(w.buf, ' ')
	}
	d.item.expiry = expiry(exptime, now)
	return objstore.Change{Action: objstore.Put, Value: w.buf, Flags: d.item.flags, Expiry: d.item.expiry}
}

// failure returns what a client is told of an error.
func failure(err error) string {
	switch {
	case errors.Is(err, objstore.ErrNoSpace):
		return "SERVER_ERROR out of memory storing object"
	case errors.Is(err, objstore.ErrValueSize):
		return "SERVER_ERROR object too large for cache"
	case errors.Is(err, errDetached), over(err):
		return "SERVER_ERROR not a member of the cluster, try again"
	case errors.Is(err, fabric.ErrUnknownOutcome):
		return "SERVER_ERROR outcome unknown, a memory node does not answer"
	case errors.Is(err, fabric.ErrNodeDown):
		return "SERVER_ERROR a memory node is down"
	}
	return fmt.Sprintf("SERVER_ERROR %.200q", err.Error())
}

// used notes that a client has got an item.
func (w *worker) used(key []byte) { w.uses.note(key, w.second.Load()) }
