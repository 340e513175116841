package replay

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/declock/declock/objstore"
	"github.com/declock/declock/traces"
)

const (
	progressEvery = 256
	// maxUniques bounds the uniques that a client remembers between gets and cas.
	maxUniques = 1 << 10
	// sleepSlice bounds how late the end of a context is seen while waiting for trace time.
	sleepSlice = 10e6
	// keptMessages of errors each client keeps.
	keptMessages = 8
	maxNumber    = 10 // digits: room to count up and down
	// trackedKeys bounds what a client remembers for Verify, 72 bytes a key.
	trackedKeys = 1 << 14
)

// A Client replays one stream of records against its own Cache: a plain
// loop without goroutines, channels or allocations. One goroutine uses it at a time.
type Client struct {
	o       Options
	cache   objstore.Cache
	clocked objstore.Clocked // cache, if it is one
	me      writer
	res     *Result
	err     error

	track  *tracker          // nil without Verify
	writes uint64            // stamps given out
	uniq   map[uint64]uint64 // of the last gets of some keys, by hash

	buf     []byte // of values that verify themselves
	plain   []byte // of all others
	key     [objstore.MaxKey]byte
	start   int64 // of the replay, for Speed; 0: when Run begins
	traceT  uint32
	started bool
	lastTTL uint32

	ops, flushed struct{ ops, reads, hits, errors, failures uint64 }
}

// NewClient makes client number id (over all processes) on its cache.
func NewClient(cache objstore.Cache, id int, o Options) (*Client, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if id < 0 || id > 1<<16-1 {
		return nil, fmt.Errorf("%w: client %d: ids are 0 to 65535", ErrOptions, id)
	}
	c := &Client{o: o, cache: cache, me: newWriter(o.RunID, uint16(id)), res: &Result{Clients: 1}, uniq: make(map[uint64]uint64, maxUniques)}
	c.clocked, _ = cache.(objstore.Clocked)
	if o.Verify {
		c.track = newTracker(trackedKeys, c.me)
	}
	return c, nil
}

// Result returns what was measured so far. Not while Run or Warm runs.
func (c *Client) Result() *Result { return c.res }

// Run does the records of the stream, one after the other, until it ends, ctx is done or there are
// too many errors. The error is ErrTooMany or the stream's.
func (c *Client) Run(ctx context.Context, src traces.Source) error {
	c.res.StartNs = wallNow()
	if c.start == 0 {
		c.start = c.res.StartNs
	}
	var rec traces.Record
	for c.err == nil && ctx.Err() == nil && src.Next(&rec) {
		if rec.Time != c.traceT || !c.started {
			if !c.newTime(ctx, rec.Time) {
				break
			}
		}
		c.do(&rec)
		if c.ops.ops++; c.ops.ops%progressEvery == 0 {
			c.flush()
		}
	}
	c.flush()
	c.res.EndNs = wallNow()
	c.res.Stopped = c.res.Stopped || c.err != nil || ctx.Err() != nil
	if c.err != nil {
		return c.err
	}
	return src.Err()
}

// Warm stores the records of the stream, unmeasured, before Run.
func (c *Client) Warm(ctx context.Context, src traces.Source) error {
	var rec traces.Record
	n := uint64(0)
	for ctx.Err() == nil && c.err == nil && src.Next(&rec) {
		if n == 0 && c.clocked != nil {
			c.clocked.SetNow(c.o.TimeBase + rec.Time)
		}
		key, h := c.keyOf(&rec)
		v, s := c.value(&rec, kindBase, key, h)
		c.lastTTL = rec.TTL
		err := c.cache.Set(key, v, objstore.Options{TTL: c.ttl(rec.TTL)})
		if out := outcomeOf(err); out == hit {
			c.res.Warmed++
			c.learnBase(h, s, key, v)
		} else {
			c.res.WarmErrors++
			c.report(rec.Op, key, err)
		}
		if n++; n%progressEvery == 0 {
			c.o.Progress.Warmed.Add(progressEvery)
		}
	}
	c.o.Progress.Warmed.Add(n % progressEvery)
	if c.err != nil {
		return c.err
	}
	return src.Err()
}

// newTime moves to a new second of the trace, and waits for it if the
// replay is paced. It returns false if ctx ended meanwhile.
func (c *Client) newTime(ctx context.Context, t uint32) bool {
	c.traceT, c.started = t, true
	if c.clocked != nil && c.o.TTL == TTLTrace {
		c.clocked.SetNow(c.o.TimeBase + t)
	}
	if c.o.Speed == 0 || t < c.o.TraceStart {
		return true
	}
	due := c.start + int64(float64(t-c.o.TraceStart)*1e9/c.o.Speed)
	for ctx.Err() == nil {
		wait := due - wallNow()
		if wait <= 0 {
			c.res.MaxLagNs = max(c.res.MaxLagNs, -wait)
			return true
		}
		time.Sleep(time.Duration(min(wait, sleepSlice)))
	}
	return false
}

// do does one record.
func (c *Client) do(rec *traces.Record) {
	key, h := c.keyOf(rec)
	switch op := rec.Op; op {
	case traces.OpGet, traces.OpGets:
		c.get(rec, key, h)
	case traces.OpSet, traces.OpAdd, traces.OpReplace, traces.OpCAS:
		c.store(rec, key, h)
	case traces.OpAppend, traces.OpPrepend:
		c.extend(rec, key, h)
	case traces.OpDelete:
		t0 := wallNow()
		err := c.cache.Delete(key)
		if c.done(op, t0, err, key) == failed {
			c.track.forget(h)
		} else {
			c.track.missed(h)
		}
	case traces.OpIncr, traces.OpDecr:
		c.count(rec, key, h)
	}
}

func (c *Client) get(rec *traces.Record, key []byte, h uint64) {
	t0 := wallNow()
	item, err := c.cache.Get(key)
	out := c.done(rec.Op, t0, err, key)
	c.ops.reads++
	switch out {
	case hit:
		c.ops.hits++
		if rec.Op == traces.OpGets {
			c.remember(key, item.CAS)
		}
		if c.track != nil {
			c.verify(rec.Op, h, key, item.Value)
		}
	case miss:
		c.track.missed(h)
		if c.o.FillOnMiss && rec.ValueSize > 0 {
			c.fill(rec, key, h)
		}
	}
}

// fill is what the user of a look-aside cache does after a miss.
func (c *Client) fill(rec *traces.Record, key []byte, h uint64) {
	v, s := c.value(rec, kindBase, key, h)
	t0 := wallNow()
	// A get has no TTL: take that of this client's last write.
	err := c.cache.Set(key, v, objstore.Options{TTL: c.ttl(c.lastTTL)})
	if out := c.done(opFill, t0, err, key); out == hit {
		c.learnBase(h, s, key, v)
	} else if out == failed {
		c.track.forget(h)
	}
}

func (c *Client) store(rec *traces.Record, key []byte, h uint64) {
	v, s := c.value(rec, kindBase, key, h)
	c.lastTTL = rec.TTL
	o := objstore.Options{TTL: c.ttl(rec.TTL)}
	var unique uint64
	if rec.Op == traces.OpCAS {
		var ok bool
		if unique, ok = c.uniqueOf(key, h); !ok {
			return
		}
	}
	var err error
	t0 := wallNow()
	switch rec.Op {
	case traces.OpSet:
		err = c.cache.Set(key, v, o)
	case traces.OpAdd:
		err = c.cache.Add(key, v, o)
	case traces.OpReplace:
		err = c.cache.Replace(key, v, o)
	default:
		err = c.cache.CompareAndSwap(key, v, o, unique)
	}
	out := c.done(rec.Op, t0, err, key)
	switch out {
	case hit:
		if rec.Op == traces.OpAdd {
			c.track.missed(h) // add found nothing
		}
		c.learnBase(h, s, key, v)
	case miss:
		c.track.missed(h)
	case failed, tooLarge: // memcached removes the old value of a set that is too large
		c.track.forget(h)
	}
}

func (c *Client) extend(rec *traces.Record, key []byte, h uint64) {
	v, _ := c.value(rec, kindPiece, key, h)
	var err error
	t0 := wallNow()
	if rec.Op == traces.OpAppend {
		err = c.cache.Append(key, v)
	} else {
		err = c.cache.Prepend(key, v)
	}
	switch c.done(rec.Op, t0, err, key) {
	case hit:
		c.track.added(h)
	case miss:
		c.track.missed(h)
	case failed, tooLarge:
		c.track.forget(h)
	}
}

func (c *Client) count(rec *traces.Record, key []byte, h uint64) {
	var n uint64
	var err error
	t0 := wallNow()
	if rec.Op == traces.OpIncr {
		n, err = c.cache.Incr(key, 1)
	} else {
		n, err = c.cache.Decr(key, 1)
	}
	switch c.done(rec.Op, t0, err, key) {
	case hit:
		if c.track != nil {
			c.counted(rec.Op, h, key, n)
		}
	case miss:
		c.track.missed(h)
	case failed:
		c.track.forget(h)
	}
}

// counted checks the number that incr or decr returned.
func (c *Client) counted(op traces.Op, h uint64, key []byte, n uint64) {
	if k := c.track.find(h); c.o.Exclusive && k != nil && k.present && k.isNum {
		want := k.num + 1
		if op == traces.OpDecr {
			want = max(k.num, 1) - 1
		}
		if n != want {
			c.verifyFailure(op, key, "it returned %d, but the number was %d", n, k.num)
		}
	}
	c.track.wroteNumber(h, n)
}

// uniqueOf returns the unique that the last gets of the key returned. Without one it does the gets
// itself, unmeasured: users of cas do; a trace may have cut it off. Not ok counts the cas as a miss or an error.
func (c *Client) uniqueOf(key []byte, h uint64) (unique uint64, ok bool) {
	at := traces.HashKey(key)
	if unique, ok = c.uniq[at]; ok {
		delete(c.uniq, at) // once: the next cas of this client must have seen the next value
		return unique, true
	}
	c.res.ExtraGets++
	t0 := wallNow()
	item, err := c.cache.Get(key)
	if err != nil {
		if c.done(traces.OpCAS, t0, err, key) == miss {
			c.track.missed(h)
		}
		return 0, false
	}
	return item.CAS, true
}

func (c *Client) remember(key []byte, unique uint64) {
	if len(c.uniq) >= maxUniques {
		clear(c.uniq)
	}
	c.uniq[traces.HashKey(key)] = unique
}

// done counts an operation that began at t0, and its latency unless it failed.
func (c *Client) done(op traces.Op, t0 int64, err error, key []byte) outcome {
	ns := wallNow() - t0
	r := c.res.row(op)
	out := hit
	if err != nil {
		out = outcomeOf(err)
	}
	r.Outcomes[out]++
	if out == failed {
		c.report(op, key, err)
		return out
	}
	r.record(ns)
	return out
}

// report counts an error of the cache.
func (c *Client) report(op traces.Op, key []byte, err error) {
	c.ops.errors++
	c.res.count(c.o.Kinds, err)
	c.note(err, "%s of %q: %v", opName(op), key, err)
}

// verifyFailure counts something that must not be.
func (c *Client) verifyFailure(op traces.Op, key []byte, format string, args ...any) {
	c.ops.failures++
	c.res.VerifyFailures++
	c.note(nil, "verify: %s of %q by %s: %s", opName(op), key, c.me, fmt.Sprintf(format, args...))
}

// note keeps the first messages, and ends the replay with the one that is too many, whose cause may be nil.
func (c *Client) note(cause error, format string, args ...any) {
	n := c.ops.errors + c.ops.failures
	fatal := c.o.MaxErrors > 0 && n >= c.o.MaxErrors && c.err == nil
	keep := len(c.res.Messages) < keptMessages
	if !fatal && !keep {
		return
	}
	text := fmt.Sprintf(format, args...)
	if keep {
		c.res.Messages = append(c.res.Messages, text)
	}
	if fatal {
		c.err = &tooMany{text: fmt.Sprintf("%v: %d of %s; the last: %s", ErrTooMany, n, c.me, text), cause: cause}
		c.o.Stop()
	}
}

// tooMany is ErrTooMany, and what the last error was.
type tooMany struct {
	text  string
	cause error // nil: a verification failure
}

func (e *tooMany) Error() string { return e.text }

// Unwrap returns ErrTooMany and the cause.
func (e *tooMany) Unwrap() []error {
	if e.cause == nil {
		return []error{ErrTooMany}
	}
	return []error{ErrTooMany, e.cause}
}

// keyOf returns the key to use, and its hash where Verify needs it. Keys over the cache's bound
// keep their beginning and get a hash for the rest.
func (c *Client) keyOf(rec *traces.Record) ([]byte, uint64) {
	key := rec.Key
	if len(key) > objstore.MaxKey {
		c.res.LongKeys++
		n := copy(c.key[:], key[:objstore.MaxKey-16])
		key = appendHex(c.key[:n], traces.HashKey(key))
	}
	if c.track == nil {
		return key, 0
	}
	return key, traces.HashKey(key)
}

func appendHex(b []byte, x uint64) []byte {
	for shift := 60; shift >= 0; shift -= 4 {
		b = append(b, "0123456789abcdef"[x>>shift&15])
	}
	return b
}

func (c *Client) ttl(ttl uint32) uint32 {
	if c.o.TTL == TTLNone {
		return 0
	}
	return ttl
}

// value makes the bytes to store for a record: a number, a block, or filler.
func (c *Client) value(rec *traces.Record, kind blockKind, key []byte, h uint64) ([]byte, stamp) {
	n := int(rec.ValueSize)
	c.writes++
	s := newStamp(c.me, c.writes)
	if traces.IsCounterKey(key) {
		if kind == kindPiece {
			return digits[:1], s
		}
		return digits[:min(max(n, 1), maxNumber)], s
	}
	if n > c.o.MaxValue {
		c.res.Capped++
		n = c.o.MaxValue
	}
	if c.track == nil {
		if n > len(c.plain) {
			c.plain = plainBytes(n)
		}
		return c.plain[:n], s
	}
	if n < MinBlock {
		c.res.Raised++
		n = MinBlock
	}
	if n > len(c.buf) {
		c.buf = make([]byte, n+n/2)
	}
	putBlock(c.buf[:n], kind, h, s)
	return c.buf[:n], s
}

var digits = []byte("1000000000")

var (
	plainMutex  sync.Mutex
	sharedPlain []byte
)

// plainBytes returns at least n bytes of text, one array for all clients.
func plainBytes(n int) []byte {
	plainMutex.Lock()
	defer plainMutex.Unlock()
	if n > len(sharedPlain) {
		sharedPlain = bytes.Repeat([]byte("DecLock replays this. "), (n+n/2)/22+1)
	}
	return sharedPlain
}

// verify checks a value that was read.
func (c *Client) verify(op traces.Op, h uint64, key, v []byte) {
	c.res.Verified++
	if traces.IsCounterKey(key) {
		c.verifyNumber(op, h, key, v)
		return
	}
	info, at, what := checkValue(v, h, c.me)
	if what != "" {
		c.verifyFailure(op, key, "%s (at byte %d of %d)", what, at, len(v))
		c.track.forget(h)
		return
	}
	if what = c.track.read(h, info); what != "" {
		c.verifyFailure(op, key, "%s (the value is %s)", what, info.base)
	}
}

func (c *Client) verifyNumber(op traces.Op, h uint64, key, v []byte) {
	// memcached pads a number that got shorter with blanks.
	n, err := strconv.ParseUint(string(bytes.TrimRight(v, " ")), 10, 64)
	if err != nil {
		c.verifyFailure(op, key, "the counter holds %.40q, which is no number", v)
		c.track.forget(h)
		return
	}
	if k := c.track.find(h); c.o.Exclusive && k != nil && k.present && k.isNum && k.num != n {
		c.verifyFailure(op, key, "the counter holds %d and not %d", n, k.num)
	}
	c.track.wroteNumber(h, n)
}

func (c *Client) learnBase(h uint64, s stamp, key, v []byte) {
	switch {
	case c.track == nil:
	case traces.IsCounterKey(key):
		n, _ := strconv.ParseUint(string(v), 10, 64)
		c.track.wroteNumber(h, n)
	default:
		c.track.wrote(h, s)
	}
}

// flush makes progress visible.
func (c *Client) flush() {
	p, a, b := c.o.Progress, &c.ops, &c.flushed
	p.Ops.Add(a.ops - b.ops)
	p.Reads.Add(a.reads - b.reads)
	p.Hits.Add(a.hits - b.hits)
	p.Errors.Add(a.errors - b.errors)
	p.VerifyFailures.Add(a.failures - b.failures)
	*b = *a
}
