package check

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/declock/declock/btree"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/oracle"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/objstore"
)

// A client is one client of a scenario, whatever it does.
type client struct {
	w     *world
	n     *node
	cn    int // from 1
	name  string
	port  fabric.Port
	k     lock.Locker
	hold  lock.Hold
	named fabric.ClientID // by which the hold was granted
	cell  []byte
	value lock.Value // the cell, where locks keep values
	d     drawer

	asking bool        // an acquisition is under way
	began  fabric.Time // when the last acquisition, or operation of the store, began
	round  int

	unupgraded int       // lock + 1, of which its upgrade was lost
	met        []meeting // by memory node, if memory may be lost
	oldAddress bool      // it asks by an address of memory that is gone
	heard      int       // how often it has heard of lost memory otherwise

	uses    []sideUse // its clients of what is beside the main store or tree
	written int       // values
}

func (w *world) newClient(cn int, name string, p fabric.Port) *client {
	c := &client{w: w, n: w.nodes[cn-1], cn: cn, name: name, port: p, cell: p.Alloc(cellSize)}
	c.k = w.locker(c.n, p)
	c.met = make([]meeting, len(w.generations))
	c.d.Rand = newRand(w.s.Seed, uint64(p.ID()))
	return c
}

// lockRounds is a client that locks.
func (c *client) lockRounds() {
	s := &c.w.s
	for c.round = range s.Rounds {
		if c.n.leaving {
			return
		}
		r := lock.Request{Mode: lock.Exclusive}
		if c.d.percent(s.Reads) && s.Writers == 0 || s.Writers > 0 && c.cn > s.Writers {
			r.Mode = lock.Shared
		}
		which := int(c.d.Uint64n(uint64(s.Locks)))
		cancelAfter := c.givesUp(&r)
		which = c.asksFor(&r, which)
		c.servedUntil(&r, c.w.locks[which])
		if s.Sit == 1 && r.Mode == lock.Exclusive && !r.Try && cancelAfter < 0 { // another holds the lock until this one is done
			r.Deadline = c.port.Now() + 1 + c.d.time(max(s.WaitNs, fabric.Microsecond))
		}
		held, ok := c.acquire(which, &r, cancelAfter)
		if !ok {
			return
		}
		if held {
			c.sleep(c.d.time(s.HoldNs))
			if held, ok = c.upgrades(which, cancelAfter >= 0); !ok || held && !c.release(which) {
				return
			}
		}
		if s.Busy == 0 || c.cn > s.Writers+s.Busy {
			c.sleep(c.d.time(s.ThinkNs))
		}
	}
	if what := baselineOf(s.Lock).takesForCrashed(c.k); what != "" && len(s.Plan) == 0 {
		c.w.object("tickets", what)
	}
}

// givesUp draws whether and when a client gives a request up. It returns when it is interrupted, negative is never.
func (c *client) givesUp(r *lock.Request) (cancelAfter fabric.Time) {
	s := &c.w.s
	switch {
	case c.d.percent(s.Try):
		r.Try = true
	case c.d.percent(s.Deadline):
		r.Deadline = c.port.Now() + 1 + c.d.time(s.WaitNs)
	case c.d.percent(s.Cancel):
		return c.d.time(s.WaitNs)
	}
	return -1
}

// report passes an event to the court, unless the node has been fenced: another may have its number.
func (c *client) report(e oracle.Event) {
	if !c.n.fenced {
		c.w.event(e)
	}
}

func (c *client) sleep(d fabric.Time) {
	if d > 0 {
		_ = c.port.Pause(c.port.Now() + d)
	}
}

// acquire acquires a lock and reports it. cancelAfter is when it is
// interrupted, negative is never. ok is false if the client cannot go on.
func (c *client) acquire(which int, r *lock.Request, cancelAfter fabric.Time) (held, ok bool) {
	gen := c.genOf(which)
	r.Lock = c.w.locks[which].In(gen)
	c.value = lock.Value{Addr: c.w.cell(which).In(gen), Buf: c.cell}
	if c.w.s.Kept == 0 {
		r.Reads = []fabric.Op{fabric.Read(c.value.Addr, c.cell)}
	}
	e := oracle.Event{Kind: oracle.Requested, Client: c.port.ID(), Lock: c.w.locks[which], Mode: r.Mode}
	c.report(e)
	c.asking = true
	c.began = c.w.c.Now()
	if cancelAfter >= 0 {
		c.interruptAfter(cancelAfter)
	}
	var err error
	if c.w.s.Kept != 0 {
		err = c.k.(lock.Keeper).AcquireValue(&c.hold, r, &c.value)
	} else {
		err = c.k.Acquire(&c.hold, r)
	}
	c.asking = false
	c.port.ClearInterrupt()
	if err != nil {
		e.Kind, e.Err = oracle.Refused, err
		c.report(e)
		return false, c.tolerates(r, c.hears(which, err), cancelAfter >= 0 || c.n.leaving)
	}
	e.Kind, e.Token = oracle.Granted, c.hold.Token
	e.Value, e.Torn = cellValue(c.cell)
	c.inTerm(&e)
	if c.lapsed() {
		c.w.object("leases", fmt.Sprintf("[%v] on a node whose lease has run out", &e))
	}
	c.knows(which, gen)
	if c.lost(r.Lock) { // what it believes counts for nothing: the memory node refuses it until it has released
		e.Kind, e.Err = oracle.Refused, lock.ErrLost
	}
	c.w.counts.Grants++
	took := c.w.c.Now() - c.began
	c.w.counts.LongestNs = max(c.w.counts.LongestNs, took)
	if c.w.s.SpanNs > 0 {
		c.w.latency[r.Mode] = append(c.w.latency[r.Mode], took)
		c.w.lastGrant[c.port.ID()] = c.w.c.Now()
	}
	c.report(e)
	c.named = e.Client
	return true, true
}

// cellValue returns the number in a cell, and whether its words differ.
func cellValue(b []byte) (v uint64, torn bool) {
	v = binary.LittleEndian.Uint64(b)
	for i := 8; i < len(b); i += 8 {
		torn = torn || binary.LittleEndian.Uint64(b[i:]) != v
	}
	return v, torn
}

// lost reports whether what the client holds at a lock's memory node is of an epoch before a restart.
func (c *client) lost(l fabric.Addr) bool { return c.port.(*sim.Port).Stale(l.MN()) }

// tolerates reports whether the client goes on after an error. One that nothing explains is an objection.
func (c *client) tolerates(r *lock.Request, err error, canceled bool) bool {
	switch {
	case r.Try && errors.Is(err, lock.ErrBusy),
		r.Deadline != 0 && errors.Is(err, lock.ErrTimeout),
		canceled && errors.Is(err, lock.ErrCanceled),
		c.unserved(r.Lock, err):
		c.w.counts.Refused++
		return true
	}
	if goesOn, judged := c.outlasts(r, err); judged {
		return goesOn
	}
	return c.survives("acquire", err)
}

// again is after how long, at most, a client asks again whose memory node has restarted.
const again = 200 * fabric.Microsecond

// survives reports whether the client goes on after an error that is no answer. One that no fault explains is an objection.
func (c *client) survives(what string, err error) bool {
	switch {
	case c.w.restarting(err, c.began), errors.Is(err, lock.ErrMemoryLost) && c.mayHear(),
		c.w.s.Keys > 0 && c.w.s.BreakNs > 0 && errors.Is(err, fabric.ErrUnknownOutcome), c.w.ofInterrupt(err):
		c.sleep(c.d.time(again))
		return true
	case !c.w.excused(c.cn, err):
		c.w.object("errors", fmt.Sprintf("%v, round %d: %s: %v", c.port.ID(), c.round, what, err))
	}
	return false
}

// release writes the cell, if the lock is exclusive, and releases.
func (c *client) release(which int) bool {
	e := oracle.Event{Kind: oracle.Releasing, Client: c.named, Lock: c.hold.Lock.In(0), Mode: c.hold.Mode}
	var before []fabric.Op
	if c.hold.Mode == lock.Exclusive {
		v, _ := cellValue(c.cell)
		v = v&^0xffff + 1<<16 | uint64(c.port.ID())&0xffff // all writes differ
		for i := 0; i < cellSize; i += 8 {
			binary.LittleEndian.PutUint64(c.cell[i:], v)
		}
		e.Value, e.Writes = v, true
		if c.w.s.Kept == 0 {
			before = []fabric.Op{fabric.Write(c.value.Addr, c.cell)}
		}
	}
	before, bad := c.spoil(before)
	lost := c.lost(e.Lock)
	if bad || c.w.s.Bad > 0 && c.w.s.Kept != 0 { // others may acquire the lock before the error is reported
		e.Err = fabric.ErrOutOfBounds
	}
	if !lost {
		c.report(e)
	}
	written := error(nil)
	if len(before) > 0 && c.w.s.Own > 0 && c.d.percent(c.w.s.Own) {
		if written = c.port.Do(before); written != nil && !lost { // before others acquire the lock
			e.Kind, e.Err = oracle.Released, written
			c.report(e)
		}
		before = nil
	}
	var err error
	lapsed := c.lapsed()
	if c.w.s.Kept != 0 {
		c.value.Dirty = e.Writes
		err = c.k.(lock.Keeper).ReleaseValue(&c.hold, &c.value, before)
	} else {
		err = errors.Join(written, c.k.Release(&c.hold, before))
	}
	e.Kind, e.Err = oracle.Released, err
	if lapsed && err == nil {
		c.w.object("leases", fmt.Sprintf("[%v] on a node whose lease has run out, and nobody says that the lock is lost", &e))
	}
	switch {
	case !lost:
		c.report(e)
	case err == nil && e.Writes:
		c.w.object("lost locks", fmt.Sprintf("[%v]: the memory node has restarted since it was granted, and nobody says that the lock is lost", &e))
	}
	if lost {
		c.began = 0 // with the epoch in which the node got the lock
	}
	if bad && err == nil && !lost {
		c.w.object("errors", fmt.Sprintf("[%v]: an operation before the release is out of bounds, and nobody says so", &e))
	}
	return err == nil || c.unserved(e.Lock, err) || c.w.s.Bad > 0 && errors.Is(err, fabric.ErrOutOfBounds) || c.survives("release", err)
}

// spoil draws whether one of the operations before a release is to fail, and puts it before the others or behind
// them: those behind it are not executed, and the lock is released all the same.
func (c *client) spoil(before []fabric.Op) (_ []fabric.Op, bad bool) {
	if c.w.s.Bad == 0 || !c.d.percent(c.w.s.Bad) {
		return before, false
	}
	beyond := fabric.Load(fabric.At(c.hold.Lock.MN(), fabric.MaxOffset&^7))
	if c.d.percent(50) {
		return append([]fabric.Op{beyond}, before...), true
	}
	return append(before, beyond), true
}

// storeRounds is a client of the object store.
func (c *client) storeRounds() {
	st, err := c.n.store.Client(c.w.storeLocker(c.n, c.port))
	if err != nil {
		c.survives("open", err)
		return
	}
	uniques := map[string]uint64{}
	for c.round = range c.w.s.Rounds {
		c.began = c.w.c.Now()
		var o *oracle.StoreOp
		err := c.mayBeInterrupted(func() (err error) {
			o, err = c.w.storeOp(st, c.port, c.drawOp(uniques))
			return err
		})
		c.w.tap.noteStore(c.port.ID(), o, err)
		if err != nil {
			c.w.unknown++
		}
		if o.Result == oracle.Done {
			c.w.counts.Grants++
		}
		if o.Method == "get" && o.Result == oracle.Done {
			uniques[o.Key] = o.CAS
		}
		if err != nil && !c.survives(o.String(), err) {
			return
		}
		c.sleep(c.d.time(c.w.s.ThinkNs))
	}
}

// drawOp draws an operation.
func (c *client) drawOp(uniques map[string]uint64) oracle.StoreOp {
	o := oracle.StoreOp{Client: int(c.port.ID()), Key: "key" + strconv.Itoa(int(c.d.Uint64n(uint64(c.w.s.Keys))))}
	o.Method = pick(&c.d, "get", "get", "get", "set", "set", "add", "replace", "cas", "cas", "append", "prepend",
		"delete", "incr", "decr", "touch")
	if c.w.s.Open > 0 && c.d.percent(70) {
		o.Method = "set"
	}
	if c.w.s.Hot > 0 && c.d.percent(c.w.s.Hot) {
		o.Key, o.Method = "key0", pick(&c.d, "set", "set", "delete")
	}
	switch o.Method {
	case "incr", "decr":
		o.Arg = strconv.Itoa(c.d.between(1, 9))
	case "append", "prepend":
		o.Arg = strconv.Itoa(c.d.between(0, 9))
	case "set", "add", "replace", "cas":
		o.Arg = fmt.Sprintf("%d%04d", uint64(o.Client)&0xffff, c.round) // all values differ
		if n := c.w.s.Values; n > 0 && c.d.percent(50) {
			b := make([]byte, c.d.Uint64n(uint64(n)))
			for i := range b {
				b[i] = 'a' + byte(i*7+c.round)%26
			}
			o.Arg += string(b)
		}
	}
	if c.w.s.Expiring > 0 && c.d.percent(c.w.s.Expiring) {
		o.TTL = uint32(c.d.between(1, 4))
	}
	if o.Method == "cas" {
		if o.Unique = uniques[o.Key]; o.Unique == 0 {
			o.Method, o.Arg = "get", ""
		}
	}
	return o
}

// doStore does an operation and writes its result down. short: there may be no room for it.
func doStore(st *objstore.Client, o *oracle.StoreOp, short bool) (err error) {
	key, arg := []byte(o.Key), []byte(o.Arg)
	opts := objstore.Options{TTL: o.TTL}
	var n uint64
	switch o.Method {
	case "get":
		var it objstore.Item
		it, err = st.Get(key)
		o.Value, o.CAS = string(it.Value), it.CAS
	case "set":
		err = st.Set(key, arg, opts)
	case "add":
		err = st.Add(key, arg, opts)
	case "replace":
		err = st.Replace(key, arg, opts)
	case "cas":
		err = st.CompareAndSwap(key, arg, opts, o.Unique)
	case "append":
		err = st.Append(key, arg)
	case "prepend":
		err = st.Prepend(key, arg)
	case "delete":
		err = st.Delete(key)
	case "touch":
		err = st.Touch(key, o.TTL)
	case "incr", "decr":
		delta, _ := strconv.ParseUint(o.Arg, 10, 64)
		if o.Method == "incr" {
			n, err = st.Incr(key, delta)
		} else {
			n, err = st.Decr(key, delta)
		}
		o.Value = strconv.FormatUint(n, 10)
	}
	return ends(o, err, short, errors.Is(err, fabric.ErrFenced))
}

// ends writes down how an operation of the store or tree has ended. short: there may be no room for it. failed: there is an answer perhaps,
// and an error: unlock failed. It returns the error if there is no result. An error that does not say that the outcome is unknown says that the operation has changed nothing, and
// never will.
func ends(o *oracle.StoreOp, err error, short, failed bool) error {
	o.Result = oracle.Failed
	switch {
	case errors.Is(err, fabric.ErrUnknownOutcome):
		o.Result = oracle.Unknown
		return err
	case failed:
		return err
	case err == nil:
		o.Result = oracle.Done
	case isAny(err, objstore.ErrNotFound, btree.ErrNotFound):
		o.Result = oracle.NotFound
	case isAny(err, objstore.ErrExists, btree.ErrExists):
		o.Result = oracle.Exists
	case errors.Is(err, objstore.ErrNotNumber):
		o.Result = oracle.NotNumber
	case short && isAny(err, objstore.ErrNoSpace, btree.ErrNoSpace):
		o.Result = oracle.NoSpace
	default:
		return err
	}
	return nil
}

// isAny reports whether an error is one of a list.
func isAny(err error, list ...error) bool {
	return slices.ContainsFunc(list, func(e error) bool { return errors.Is(err, e) })
}
