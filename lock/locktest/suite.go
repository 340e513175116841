package locktest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/fabrictest"
	"github.com/declock/declock/lock"
)

const nodes = 3

// Run runs the suite for a mechanism on the clusters of a harness.
func Run(t *testing.T, h fabrictest.Harness, m Mechanism) {
	for _, x := range []struct {
		name string
		f    func(*env)
	}{
		{"Exclusion", testExclusion},
		{"SharedTogether", testSharedTogether},
		{"Update", testUpdate},
		{"Tokens", testTokens},
		{"Try", testTry},
		{"Deadline", testDeadline},
		{"Cancel", testCancel},
		{"CancelAmongWaiters", testCancelAmongWaiters},
		{"BeforeInOrder", testBefore},
		{"BeforeFails", testBeforeFails},
		{"ReadsFail", testReadsFail},
		{"Refused", testRefused},
		{"Handoffs", testHandoffs},
		{"Misuse", testMisuse},
		{"Corrupt", testCorrupt},
		{"Lease", testLease},
		{"RoundTrips", testRoundTrips},
		{"SeveralLocks", testSeveralLocks},
		{"Stats", testStats},
		{"Mix", testMix},
		{"Allocations", testAllocations},
	} {
		t.Run(x.name, func(t *testing.T) {
			cl := h.Start(t, fabrictest.Config{Mem: []uint64{memory}, CNs: nodes})
			defer cl.Close()
			if m.Atomic16 && !cl.Node(0).Caps().Atomic16 {
				t.Skip("the fabric has no 16-byte atomics here")
			}
			e := &env{t: t, m: &m, cl: cl, ses: m.Start(t, cl, nodes), nodes: nodes, patience: patience}
			if p, ok := cl.(Patient); ok {
				e.patience = p.Patience()
			}
			defer e.stopUnused()
			x.f(e)
		})
	}
}

// All runs the suite on each kind of cluster: in virtual time, from some seeds and with READs exchanged, on shared memory and over TCP.
// The last two run only if virtual time finds nothing: there, a client that waits for ever takes its whole patience.
func All(t *testing.T, seeds uint64, m Mechanism) {
	virtual(t, seeds, m)
	if t.Failed() {
		t.Log("not run on shared memory and over TCP, for the failures in virtual time come first")
		return
	}
	t.Run("shm", func(t *testing.T) { Run(t, Shm(t.TempDir()), m) })
	t.Run("tcp", func(t *testing.T) { Run(t, TCP(), m) })
}

// Form is All for one of several forms of a mechanism: those that differ little from one that runs everywhere run in virtual time only, but with -locktest.full.
func Form(t *testing.T, seeds uint64, m Mechanism, everywhere bool) {
	if everywhere || *full {
		All(t, seeds, m)
		return
	}
	virtual(t, seeds, m)
}

func virtual(t *testing.T, seeds uint64, m Mechanism) {
	for seed := range seeds {
		t.Run(fmt.Sprintf("sim, seed %d", seed), func(t *testing.T) { Run(t, Sim(seed), m) })
	}
	t.Run("sim, READs exchanged", func(t *testing.T) { Run(t, SimUnordered(1), m) })
}

// clients returns n clients on each node.
func (e *env) clients(n int) []*client {
	var list []*client
	for range n {
		for i := range e.nodes {
			list = append(list, e.client(i))
		}
	}
	return list
}

// checkData checks that all words of a lock's data are the same, and returns them.
func (c *client) checkData() uint64 {
	c.t.Helper()
	v := binary.LittleEndian.Uint64(c.buf)
	for i := 8; i < dataSize; i += 8 {
		if w := binary.LittleEndian.Uint64(c.buf[i:]); w != v {
			c.fatal("data read under the lock is torn: word 0 is %d, word %d is %d", v, i/8, w)
		}
	}
	return v
}

func (c *client) fillData(v uint64) {
	for i := 0; i < dataSize; i += 8 {
		binary.LittleEndian.PutUint64(c.buf[i:], v)
	}
}

// update adds 1 to the data of a lock under the lock.
func (c *client) update(h *lock.Hold, i int) {
	c.t.Helper()
	reads := [2]fabric.Op{fabric.Read(c.e.dataAt(i), c.buf), fabric.Load(c.e.dataAt(i))}
	c.acquire(h, i, lock.Exclusive, reads[:]...)
	v := c.checkData()
	if reads[1].Old != v {
		c.fatal("of two READs of one word under the lock, one has %d and one %d", v, reads[1].Old)
	}
	c.fillData(v + 1)
	c.release(h, fabric.Write(c.e.dataAt(i), c.buf))
}

// Writers exclude all others: no update is lost, no reader sees half of one.
func testExclusion(e *env) {
	rounds := e.rounds(60)
	clients := e.clients(3)
	e.run(clients, func(i int, c *client) {
		var h lock.Hold
		for k := range rounds {
			if (i+k)%3 == 0 {
				c.acquire(&h, 0, lock.Shared, fabric.Read(e.dataAt(0), c.buf))
				first := c.checkData()
				// Nothing changes while a reader is there.
				c.pause(fabric.Microsecond)
				c.must(c.Do([]fabric.Op{fabric.Read(e.dataAt(0), c.buf)}), "READ")
				if !c.release(&h) {
					continue
				}
				if v := c.checkData(); v != first {
					c.fatal("data changed from %d to %d under a shared lock", first, v)
				}
			} else {
				c.update(&h, 0)
			}
		}
		c.add(e.flag(0), 1)
		if i == 0 {
			c.until(e.flag(0), uint64(len(clients)))
			c.acquire(&h, 0, lock.Shared, fabric.Read(e.dataAt(0), c.buf))
			writes := uint64(len(clients) * rounds * 2 / 3) // of each client's rounds, two of three: rounds divides by 3
			if v := c.checkData(); v != writes {
				c.fatal("data is %d after %d updates", v, writes)
			}
			c.release(&h)
		}
	})
}

// All readers hold the lock together.
func testSharedTogether(e *env) {
	if e.m.ExclusiveOnly {
		e.t.Skip("the mechanism grants shared requests one at a time")
	}
	clients := e.clients(2)
	e.run(clients, func(_ int, c *client) {
		var h lock.Hold
		for round := range uint64(3) {
			c.acquire(&h, 0, lock.Shared)
			c.add(e.flag(0), 1)
			c.until(e.flag(0), (round+1)*uint64(len(clients)))
			c.release(&h)
			c.add(e.flag(1), 1)
			c.until(e.flag(1), (round+1)*uint64(len(clients)))
		}
	})
}

// Tokens grow with every exclusive grant; a shared one is not smaller than
// those before it.
func testTokens(e *env) {
	if e.m.NoTokens {
		e.t.Skip("the mechanism has no tokens")
	}
	e.run(e.clients(2), func(i int, c *client) {
		var h lock.Hold
		reads := []fabric.Op{fabric.Load(e.dataAt(0))}
		for k := range e.rounds(40) {
			mode := lock.Exclusive
			if (i+k)%4 == 0 {
				mode = lock.Shared
			}
			c.acquire(&h, 0, mode, reads...)
			last := lock.Token(c.load(e.dataAt(0)))
			if h.Token < last || mode == lock.Exclusive && h.Token == last {
				c.fatal("%v grant has token %d after %d", mode, h.Token, last)
			}
			if mode == lock.Exclusive {
				c.release(&h, fabric.Store(e.dataAt(0), uint64(h.Token)))
			} else {
				c.release(&h)
			}
		}
	})
}

// try tries to acquire, and releases if that succeeds.
func (c *client) try(i int, mode lock.Mode, want error) {
	c.t.Helper()
	var h lock.Hold
	r := lock.Request{Lock: c.e.lockAt(i), Mode: mode, Try: true}
	err := c.Acquire(&h, &r)
	for limit := c.Now() + c.e.patience; c.e.m.Lasts && want == nil && errors.Is(err, lock.ErrBusy) && c.Now() < limit; {
		c.pause(100 * fabric.Microsecond)
		err = c.Acquire(&h, &r)
	}
	if err == nil && want == lock.ErrBusy && c.e.lapses() {
		want = nil
	}
	c.want(err, want, "try %v", mode)
	if h.Held != (want == nil) {
		c.fatal("Hold after try %v: %+v", mode, h)
	}
	if want == nil {
		c.release(&h)
	}
}

func testTry(e *env) {
	e.run([]*client{e.client(0), e.client(1), e.client(0)}, func(i int, c *client) {
		var h lock.Hold
		if i == 0 {
			c.acquire(&h, 0, lock.Exclusive)
			c.add(e.flag(0), 1)
			c.until(e.flag(1), 2) // both have tried
			c.release(&h)
			c.add(e.flag(0), 1)
			c.until(e.flag(1), 4)
			c.acquire(&h, 0, lock.Shared)
			c.add(e.flag(0), 1)
			c.until(e.flag(1), 6)
			c.release(&h)
			return
		}
		c.until(e.flag(0), 1)
		c.try(0, lock.Exclusive, lock.ErrBusy)
		c.try(0, lock.Shared, lock.ErrBusy)
		c.add(e.flag(1), 1)
		c.until(e.flag(0), 2)
		if i == 1 { // alone: the other would be in its way
			c.try(0, lock.Exclusive, nil)
			c.try(0, lock.Shared, nil)
			c.add(e.flag(2), 1)
		}
		c.until(e.flag(2), 1)
		c.add(e.flag(1), 1)
		c.until(e.flag(0), 3)
		c.try(0, lock.Exclusive, lock.ErrBusy)
		busy := uint64(3)
		if e.m.ExclusiveOnly {
			c.try(0, lock.Shared, lock.ErrBusy)
			busy++
		} else {
			c.try(0, lock.Shared, nil)
		}
		c.add(e.flag(1), 1)
		if n := c.Stats().Busy; n != busy && !e.m.Lasts {
			c.fatal("Stats.Busy is %d after %d tries without success", n, busy)
		}
	})
}

// A wait that ends at its deadline leaves the lock as it was.
func testDeadline(e *env) {
	e.run([]*client{e.client(0), e.client(1), e.client(0)}, func(i int, c *client) {
		var h lock.Hold
		if i == 0 {
			c.acquire(&h, 0, lock.Exclusive)
			c.add(e.flag(0), 1)
			c.until(e.flag(1), 2)
			c.release(&h)
			c.update(&h, 0)
			return
		}
		c.until(e.flag(0), 1)
		for _, mode := range []lock.Mode{lock.Exclusive, lock.Shared} {
			begin := c.Now()
			r := lock.Request{Lock: e.lockAt(0), Mode: mode, Deadline: begin + 200*fabric.Microsecond}
			c.fails(&h, c.Acquire(&h, &r), lock.ErrTimeout, "acquire %v with a deadline", mode)
			if c.Now() < begin+200*fabric.Microsecond {
				c.fatal("timed out %d ns early", begin+200*fabric.Microsecond-c.Now())
			}
		}
		if n := c.Stats().Cancels; n != 2 {
			c.fatal("Stats.Cancels is %d after 2 timeouts", n)
		}
		c.add(e.flag(1), 1)
		for range 3 {
			c.update(&h, 0)
		}
	})
}

// A waiter whose Port is interrupted returns at once, and can go on.
func testCancel(e *env) {
	waiter := e.client(1)
	e.run([]*client{e.client(0), waiter}, func(i int, c *client) {
		var h lock.Hold
		for round, mode := range []lock.Mode{lock.Exclusive, lock.Shared} {
			n := uint64(round + 1)
			if i == 0 {
				c.acquire(&h, 0, lock.Exclusive)
				c.add(e.flag(0), 1)
				c.until(e.flag(1), n)
				c.pause(50 * fabric.Microsecond)
				waiter.Interrupt()
				c.until(e.flag(2), n)
				c.release(&h)
				if c.load(e.flag(5)) != 0 {
					return
				}
				c.update(&h, 0)
				c.add(e.flag(3), 1)
				c.until(e.flag(4), n)
				continue
			}
			c.until(e.flag(0), n)
			err := c.Do([]fabric.Op{fabric.FAA(e.flag(1), 1)})
			if err == nil {
				err = c.Acquire(&h, &lock.Request{Lock: e.lockAt(0), Mode: mode})
			}
			if errors.Is(err, fabric.ErrUnknownOutcome) || errors.Is(err, fabric.ErrInterrupted) { // a busy machine has kept the answer to an operation back for longer than an interrupt waits
				c.t.Logf("%v: acquire %v when interrupted: %v", c.ID(), mode, err)
				c.ClearInterrupt()
				c.add(e.flag(5), 1)
				c.add(e.flag(2), 1)
				return
			}
			c.fails(&h, err, lock.ErrCanceled, "acquire %v when interrupted", mode)
			c.ClearInterrupt()
			c.add(e.flag(2), 1)
			c.update(&h, 0)
			c.until(e.flag(3), n)
			c.add(e.flag(4), 1)
		}
	})
}

// Waiters that give up in the middle of a queue, again and again, keep no other
// from the lock.
func testCancelAmongWaiters(e *env) {
	clients := e.clients(3)
	e.run(clients, func(i int, c *client) {
		var h lock.Hold
		for k := range e.rounds(30) {
			if i%3 == 2 {
				mode := lock.Mode(k % 2)
				r := lock.Request{Lock: e.lockAt(0), Mode: mode, Deadline: c.Now() + fabric.Time(c.Rand()%20_000)}
				err := c.Acquire(&h, &r)
				if err == nil {
					c.release(&h)
					continue
				}
				c.want(err, lock.ErrTimeout, "acquire %v with a short deadline", mode)
				continue
			}
			c.update(&h, 0)
		}
	})
}

// The operations given to Release execute in order, under the lock, and give
// their results.
func testBefore(e *env) {
	e.run(e.clients(2), func(_ int, c *client) {
		var h lock.Hold
		a := e.dataAt(1)
		for range e.rounds(20) {
			c.acquire(&h, 1, lock.Exclusive, fabric.Load(a))
			before := make([]fabric.Op, 0, lock.MaxPiggyback)
			before = append(before, fabric.Store(a, 7), fabric.FAA(a, 3), fabric.CAS(a, 10, 20), fabric.Load(a),
				fabric.CAS(a, 10, 30), fabric.Write(a.Add(8), c.buf[:16]), fabric.FAA(a, 1), fabric.Load(a))
			c.release(&h, before...)
			for i, want := range []uint64{1: 7, 2: 10, 3: 20, 4: 20, 6: 20, 7: 21} {
				if want != 0 && before[i].Old != want {
					c.fatal("operation %d of before: %v, found %d, want %d", i, before[i], before[i].Old, want)
				}
			}
		}
	})
}

// A release whose operations fail releases all the same.
func testBeforeFails(e *env) {
	e.run(e.clients(1), func(_ int, c *client) {
		var h lock.Hold
		for range 3 {
			c.acquire(&h, 0, lock.Exclusive)
			before := []fabric.Op{fabric.Store(e.dataAt(0), 1), fabric.Load(fabric.At(0, memory))}
			c.fails(&h, c.Release(&h, before), fabric.ErrOutOfBounds, "release with a bad operation")
		}
	})
}

// An acquire whose READs fail does not hold.
func testReadsFail(e *env) {
	e.run(e.clients(1), func(_ int, c *client) {
		var h lock.Hold
		for _, mode := range []lock.Mode{lock.Exclusive, lock.Shared} {
			r := lock.Request{Lock: e.lockAt(0), Mode: mode, Deadline: c.Now() + e.patience,
				Reads: []fabric.Op{fabric.Load(fabric.At(0, memory))}}
			c.fails(&h, c.Acquire(&h, &r), fabric.ErrOutOfBounds, "acquire %v with a bad READ", mode)
			c.acquire(&h, 0, mode)
			c.release(&h)
		}
	})
}

// A chain that the fabric refuses before it posts anything has changed nothing: an acquire does not hold, and has nothing
// to undo; a release releases all the same. First on a lock of the client's own, then on one that all want.
func testRefused(e *env) {
	e.run(e.clients(1), func(i int, c *client) {
		data := e.dataAt(0)
		for _, x := range []struct {
			bad  fabric.Op
			want error
		}{
			{fabric.Read(data, make([]byte, 8)), fabric.ErrBadBuffer},
			{fabric.Load(data.Add(1)), fabric.ErrMisaligned},
			{fabric.Load(fabric.At(1, 64)), fabric.ErrBadChain},
		} {
			for k := range 8 {
				var h lock.Hold
				n := 1 + i
				if k >= 4 {
					n = 0
				}
				r := lock.Request{Lock: e.lockAt(n), Mode: lock.Mode(k % 2), Try: k/2%2 == 1, Deadline: c.Now() + e.patience}
				for r.Reads = []fabric.Op{fabric.Load(data), x.bad}; ; r.Reads = r.Reads[1:] { // behind others, and as the first
					if err := c.Acquire(&h, &r); !r.Try || k < 4 || !errors.Is(err, lock.ErrBusy) {
						c.want(err, x.want, "acquire %v, try %v, with READs that are refused", r.Mode, r.Try)
					}
					if h.Held {
						c.fatal("Hold after a refused acquire: %+v", h)
					}
					if len(r.Reads) == 1 {
						break
					}
				}
				c.acquire(&h, n, r.Mode)
				c.fails(&h, c.Release(&h, []fabric.Op{fabric.Load(data), x.bad}), x.want, "release with an operation that is refused")
			}
		}
	})
}

func testMisuse(e *env) {
	e.run([]*client{e.client(0)}, func(_ int, c *client) {
		var h lock.Hold
		c.want(c.Release(&h, nil), lock.ErrMisuse, "release of a zero Hold")
		c.acquire(&h, 0, lock.Exclusive)
		c.want(c.Acquire(&h, &lock.Request{Lock: e.lockAt(1)}), lock.ErrMisuse, "acquire with a Hold that holds")
		c.release(&h)
		c.want(c.Release(&h, nil), lock.ErrMisuse, "second release")
		for mode := lock.Shared; e.m.StaleHolds && mode <= lock.Exclusive; mode++ {
			c.acquire(&h, 0, mode)
			stale := h
			c.release(&h)
			c.want(c.Release(&stale, nil), lock.ErrMisuse, "release by a copy of a Hold that was released %v", mode)
		}
		r := lock.Request{Lock: e.lockAt(0), Reads: make([]fabric.Op, lock.MaxPiggyback+1)}
		for i := range r.Reads {
			r.Reads[i] = fabric.Load(e.dataAt(0))
		}
		c.want(c.Acquire(&h, &r), lock.ErrMisuse, "acquire with too many READs")
		r.Reads = r.Reads[:lock.MaxPiggyback]
		c.must(c.Acquire(&h, &r), "acquire with as many READs as may be")
		c.release(&h)
		c.try(0, lock.Exclusive, nil)
	})
}

// A lock whose bytes make no sense is refused, and left as it is.
func testCorrupt(e *env) {
	if e.m.Corrupt == nil {
		e.t.Skip("the mechanism takes any bytes for a lock")
	}
	e.run([]*client{e.client(0)}, func(_ int, c *client) {
		n := len(e.m.Corrupt)
		buf := c.Alloc(n)
		copy(buf, e.m.Corrupt)
		c.must(c.Do([]fabric.Op{fabric.Write(e.lockAt(0), buf)}), "WRITE")
		for mode := lock.Shared; mode <= lock.Exclusive; mode++ {
			var h lock.Hold
			c.fails(&h, c.Acquire(&h, &lock.Request{Lock: e.lockAt(0), Mode: mode}), lock.ErrCorrupt, "acquire %v", mode)
			c.must(c.Do([]fabric.Op{fabric.Read(e.lockAt(0), buf)}), "READ")
			if !bytes.Equal(buf, e.m.Corrupt) {
				c.fatal("a corrupt lock of %x has become %x", e.m.Corrupt, buf)
			}
		}
	})
}

// A holder whose lease has expired is notified at its release, which changes neither the data nor the lock. The lock goes on.
func testLease(e *env) {
	if _, virtual := e.cl.(*simCluster); e.m.LeaseNs == 0 || !virtual {
		e.t.Skip("the mechanism has no leases, or they are long")
	}
	e.patience += 20 * e.m.LeaseNs
	e.run([]*client{e.client(0), e.client(1)}, func(i int, c *client) {
		var h lock.Hold
		for round, mode := range []lock.Mode{lock.Shared, lock.Exclusive} {
			n := uint64(round + 1)
			if i == 0 {
				c.acquire(&h, 0, mode)
				c.add(e.flag(0), 1)
				c.pause(e.m.LeaseNs + fabric.Microsecond)
				before := c.lockWords(0) // the waiter has long since queued, and passes the holder over after two leases
				c.want(c.Release(&h, []fabric.Op{fabric.Store(e.dataAt(0), 7)}), lock.ErrLost, "release after the lease")
				if h.Held || c.load(e.dataAt(0)) != 0 {
					c.fatal("after an expired release: %+v, data %d", h, c.load(e.dataAt(0)))
				}
				if after := c.lockWords(0); !bytes.Equal(before, after) {
					c.fatal("an expired release %v changes the lock from %x to %x", mode, before, after)
				}
				c.until(e.flag(1), n)
				continue
			}
			c.until(e.flag(0), n)
			c.acquire(&h, 0, lock.Exclusive)
			c.release(&h)
			c.add(e.flag(1), 1)
		}
	})
}

// lockWords returns the bytes of a lock.
func (c *client) lockWords(i int) []byte {
	c.t.Helper()
	buf := c.Alloc(int(c.e.m.Layout.Size))
	c.must(c.Do([]fabric.Op{fabric.Read(c.e.lockAt(i), buf)}), "READ")
	return buf
}

// A free lock is acquired by one chain and released by one, of as many operations as the mechanism says; no client is notified.
func testRoundTrips(e *env) {
	if e.m.FreeOps == [2]uint64{} {
		e.t.Skip("the mechanism does not say how many operations it takes")
	}
	e.run([]*client{e.client(0)}, func(_ int, c *client) {
		var h lock.Hold
		for mode := lock.Shared; mode <= lock.Exclusive; mode++ {
			before := *c.Port.Stats()
			c.acquire(&h, 0, mode)
			acquired := *c.Port.Stats()
			c.release(&h)
			now := *c.Port.Stats()
			if acquired.Chains-before.Chains != 1 || now.Chains-acquired.Chains != 1 || acquired.Total()-before.Total() != e.m.FreeOps[0] ||
				now.Total()-acquired.Total() != e.m.FreeOps[1] || e.m.FreeOps[0] != c.Stats().AcquireOps || now.Sent+now.SentLocal != 0 {
				c.fatal("%v: %d and %d chains, %d and %d operations, %d messages; want one chain each, of %d operations", mode,
					acquired.Chains-before.Chains, now.Chains-acquired.Chains, acquired.Total()-before.Total(), now.Total()-acquired.Total(),
					now.Sent+now.SentLocal, e.m.FreeOps)
			}
			*c.Stats() = lock.Stats{}
		}
	})
}

// A client holds two locks at once and moves an amount from one to the other.
func testSeveralLocks(e *env) {
	const locks = 5
	clients := e.clients(2)
	e.run(clients, func(i int, c *client) {
		var hs [locks]lock.Hold
		for range e.rounds(40) {
			a, b := int(c.Rand()%locks), int(c.Rand()%locks)
			if a == b {
				continue
			}
			first, second := min(a, b), max(a, b)
			c.acquire(&hs[first], first, lock.Exclusive)
			c.acquire(&hs[second], second, lock.Exclusive)
			va, vb := c.load(e.dataAt(a)), c.load(e.dataAt(b))
			c.release(&hs[a], fabric.Store(e.dataAt(a), va-1))
			c.release(&hs[b], fabric.Store(e.dataAt(b), vb+1))
		}
		c.add(e.flag(0), 1)
		c.until(e.flag(0), uint64(len(clients)))
		var sum uint64
		for k := range hs {
			c.acquire(&hs[k], k, lock.Shared)
			sum += c.load(e.dataAt(k))
		}
		if sum != 0 {
			c.fatal("accounts sum to %d", int64(sum))
		}
		for k := range hs {
			c.release(&hs[k])
		}
	})
}

func testStats(e *env) {
	rounds := e.rounds(24)
	e.run(e.clients(2), func(_ int, c *client) {
		var h lock.Hold
		for k := range rounds {
			c.acquire(&h, 0, lock.Mode(k%2))
			c.release(&h)
		}
		s := c.Stats()
		if s.Acquires != uint64(rounds) {
			c.fatal("Stats.Acquires is %d after %d", s.Acquires, rounds)
		}
		// How each was granted. A grant by the memory node after a wait among the
		// clients of the own node may count twice.
		if s.Immediate+s.Waits+s.LocalJoins+s.LocalWaits < uint64(rounds) || s.Immediate > uint64(rounds) {
			c.fatal("Stats do not add up: %+v", *s)
		}
		if s.Busy != 0 || s.Cancels != 0 {
			c.fatal("Stats count tries and cancellations that were not: %+v", *s)
		}
	})
}

// Everything at once on a few locks. All clients come to an end.
func testMix(e *env) {
	const locks = 3
	clients := e.clients(3)
	e.run(clients, func(_ int, c *client) {
		var h lock.Hold
		for range e.rounds(60) {
			i := int(c.Rand() % locks)
			r := lock.Request{Lock: e.lockAt(i), Mode: lock.Mode(c.Rand() % 2), Deadline: c.Now() + e.patience,
				Reads: []fabric.Op{fabric.Read(e.dataAt(i), c.buf)}}
			switch c.Rand() % 4 {
			case 0:
				r.Try = true
			case 1:
				r.Deadline = c.Now() + fabric.Time(c.Rand()%50_000)
			}
			err := c.Acquire(&h, &r)
			switch {
			case err == nil && r.Mode == lock.Exclusive:
				v := c.checkData()
				c.fillData(v + 1)
				c.add(e.flag(10+i), 1)
				c.release(&h, fabric.Write(e.dataAt(i), c.buf))
			case err == nil:
				c.checkData()
				c.release(&h)
			case r.Try:
				c.want(err, lock.ErrBusy, "try")
			default:
				c.want(err, lock.ErrTimeout, "acquire")
			}
		}
		c.add(e.flag(0), 1)
		c.until(e.flag(0), uint64(len(clients)))
		for i := range locks {
			c.acquire(&h, i, lock.Shared, fabric.Read(e.dataAt(i), c.buf))
			if v, want := c.checkData(), c.load(e.flag(10+i)); v != want {
				c.fatal("data of lock %d is %d after %d updates", i, v, want)
			}
			c.release(&h)
		}
	})
}

// Acquiring and releasing a free lock does not allocate.
func testAllocations(e *env) {
	if fabrictest.RaceEnabled {
		e.t.Skip("the race detector allocates")
	}
	if _, ok := e.cl.(fabrictest.Allocator); ok {
		e.t.Skip("the fabric allocates, and says so")
	}
	e.run([]*client{e.client(0)}, func(_ int, c *client) {
		var h lock.Hold
		r := &lock.Request{Lock: e.lockAt(0), Reads: []fabric.Op{fabric.Read(e.dataAt(0), c.buf)}}
		before := []fabric.Op{fabric.Write(e.dataAt(0), c.buf)}
		pairs := func() {
			for i := range 20 {
				r.Mode = lock.Mode(i / 10) // a writer that comes after readers waits for their lease, where locks have one: once
				c.must(c.Acquire(&h, r), "acquire")
				if err := c.Release(&h, before); err != nil && !c.lapsed(&h, err) {
					c.must(err, "release")
				}
			}
		}
		// All of the process is counted: a thread that the runtime starts, an agent's round of clock synchronisation, the
		// connection for its messages, which takes long on a busy machine. What the lock itself does is in every count.
		n := testing.AllocsPerRun(e.rounds(25), pairs)
		for tries := 1; n > 0 && tries < 50; tries++ {
			c.pause(fabric.Time(tries) * fabric.Millisecond)
			n = min(n, testing.AllocsPerRun(e.rounds(25), pairs))
		}
		if n > 0 {
			c.fatal("%v allocations in 20 acquires and releases", n)
		}
	})
}
