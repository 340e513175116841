package bench

import (
	"errors"
	"fmt"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// Histograms hold nanoseconds up to a minute.
const maxLatency = 60 * fabric.Second

func newHistogram(digits int) *hdrhistogram.Histogram {
	return hdrhistogram.New(1, int64(maxLatency), digits)
}

// record adds a latency to a histogram.
func record(h *hdrhistogram.Histogram, d fabric.Time) {
	_ = h.RecordValue(int64(min(max(d, 1), maxLatency))) // within the bounds, so it cannot fail
}

// A recorder takes note of operations: a journal that all clients of a run in virtual time have, or, in real time,
// the tally of each.
type recorder interface {
	// add takes note of an operation: how long all of it took, its acquisition, and its release.
	add(op, acquire, release fabric.Time, hottest bool)
	lose()
}

// A tally is what of the operations is measured.
type tally struct {
	ops     uint64
	lost    uint64                  // operations whose lock was taken from them, in the whole run
	op      *hdrhistogram.Histogram // whole operations
	acquire *hdrhistogram.Histogram
	release *hdrhistogram.Histogram
	// hot is of acquisitions of the lock of rank 0, the most contended (paper, Fig. 14).
	hot *hdrhistogram.Histogram
}

// newTally returns a tally whose histograms keep so many digits.
func newTally(digits int) *tally {
	return &tally{op: newHistogram(digits), acquire: newHistogram(digits), release: newHistogram(digits), hot: newHistogram(digits)}
}

func (t *tally) add(op, acquire, release fabric.Time, hottest bool) {
	t.ops++
	record(t.op, op)
	record(t.acquire, acquire)
	record(t.release, release)
	if hottest {
		record(t.hot, acquire)
	}
}

func (t *tally) lose() { t.lost++ }

func (t *tally) merge(o *tally) {
	t.ops += o.ops
	t.lost += o.lost
	from := o.histograms()
	for i, h := range t.histograms() {
		h.Merge(from[i])
	}
}

// histograms returns all that it has.
func (t *tally) histograms() [4]*hdrhistogram.Histogram {
	return [...]*hdrhistogram.Histogram{t.op, t.acquire, t.release, t.hot}
}

// A client runs the microbenchmark over one Locker.
type client struct {
	m     *Micro
	plan  *plan
	seq   *sequence
	lock  lock.Locker
	keep  lock.Keeper // the lock, if it keeps data; or nil
	value lock.Value
	port  fabric.Port
	timer *timedPort // its Port, if its steps are timed; or nil
	notes recorder
	buf   []byte
	hold  lock.Hold
	req   lock.Request
	ops   [1]fabric.Op // that travels with the acquisition or release
	data  [1]fabric.Op
	due   fabric.Time // of the next operation, in an open loop
	began fabric.Time // of the operation under way; 0: none

	// In real time, where each client has its own window: from when to when, and what it counted.
	from, to fabric.Time
	counted  counters
}

func newClient(m *Micro, p *plan, seq *sequence, l lock.Locker, r recorder) *client {
	c := &client{m: m, plan: p, seq: seq, lock: l, port: l.Port(), notes: r, buf: l.Port().Alloc(dataSize)}
	c.timer, _ = c.port.(*timedPort)
	if m.Keep && m.CSLen > 0 {
		c.keep, _ = l.(lock.Keeper)
	}
	return c
}

// step does one operation. from and to bound the window in which it counts if it is done within.
func (c *client) step(from, to fabric.Time) error {
	rank, shared := c.seq.next()
	began := c.port.Now()
	if c.m.Rate > 0 {
		c.due += c.seq.wait()
		if c.due > began {
			if err := c.port.Pause(c.due); err != nil {
				return err
			}
		}
		began = c.due
	}
	c.began = began
	a := c.plan.addr(rank)
	req := &c.req
	*req = lock.Request{Lock: a, Mode: lock.Exclusive}
	data := fabric.Write(a.Add(c.plan.data), c.buf)
	if shared {
		req.Mode, data = lock.Shared, fabric.Read(a.Add(c.plan.data), c.buf)
	}
	n := c.m.CSLen
	var before []fabric.Op
	c.ops[0] = data
	switch {
	case n == 0:
	case c.keep != nil:
		n--
		c.value = lock.Value{Addr: data.Addr, Buf: c.buf, Overwrite: !shared}
	case c.m.Chain || c.m.Keep:
		n--
		if shared {
			req.Reads = c.ops[:]
		} else {
			before = c.ops[:]
		}
	}
	asked := c.port.Now()
	c.timer.begin()
	if err := c.acquire(req); err != nil {
		return fmt.Errorf("acquire %v: %w", a, err)
	}
	c.timer.acquired(shared)
	got := c.port.Now()
	for range n {
		c.data[0] = data
		if err := c.port.Do(c.data[:]); err != nil {
			return fmt.Errorf("data of %v: %w", a, err)
		}
	}
	left := c.port.Now()
	c.timer.begin()
	err := c.release(before)
	c.timer.end()
	done := c.port.Now()
	if errors.Is(err, lock.ErrLost) { // a lease that ran out, say: it does not count
		c.began = 0
		c.notes.lose()
		return nil
	}
	if err != nil {
		return fmt.Errorf("release %v: %w", a, err)
	}
	c.began = 0
	if done >= from && done < to {
		c.notes.add(done-began, got-asked, done-left, rank == 0)
	}
	return nil
}

func (c *client) acquire(r *lock.Request) error {
	if c.keep != nil {
		return c.keep.AcquireValue(&c.hold, r, &c.value)
	}
	return c.lock.Acquire(&c.hold, r)
}

func (c *client) release(before []fabric.Op) error {
	if c.keep != nil {
		c.value.Dirty = c.hold.Mode == lock.Exclusive
		return c.keep.ReleaseValue(&c.hold, &c.value, before)
	}
	return c.lock.Release(&c.hold, before)
}
