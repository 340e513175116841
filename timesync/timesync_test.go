package timesync_test

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/timesync"
)

const (
	us = fabric.Microsecond
	ms = fabric.Millisecond
)

// "If the difference between two timestamps is greater than half of the maximum
// timestamp value, the timestamp with the larger value is considered to be the
// earlier timestamp" (section 5.3). Exactly half counts as before, both ways.
func TestStampHalfRange(t *testing.T) {
	for _, c := range []struct {
		a, b timesync.Stamp
		want bool
	}{
		{0, 0, false}, {0, 1, true}, {1, 0, false},
		{0, 32767, true}, {32767, 0, false},
		{0, 32768, true}, {32768, 0, true}, // half: no order
		{0, 32769, false}, {32769, 0, true},
		{65535, 0, true}, {0, 65535, false},
		{65000, 500, true}, {500, 65000, false},
	} {
		if got := c.a.Before(c.b); got != c.want {
			t.Errorf("%d before %d: %v, want %v", c.a, c.b, got, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		// What is less than half a range apart is ordered as time is, across the wrap.
		when := rapid.Int64Range(0, 1<<50).Draw(t, "when")
		later := rapid.Int64Range(1, 32767).Draw(t, "later")
		a, b := timesync.Stamp(when), timesync.Stamp(when+later)
		if !a.Before(b) || b.Before(a) {
			t.Fatalf("%d us and %d us later: stamps %d, %d", when, later, a, b)
		}
	})
}

// The zero Clock works: it counts microseconds of the node's time.
func TestClockWraps(t *testing.T) {
	var c timesync.Clock
	for _, k := range []struct {
		now  fabric.Time
		want timesync.Stamp
	}{{0, 0}, {999, 0}, {1000, 1}, {65535 * us, 65535}, {65536 * us, 0}, {65537 * us, 1}, {fabric.Time(1)<<62 + 1, timesync.Stamp(uint64(1<<62+1) / 1000 & 0xffff)}} {
		if got := c.Stamp(k.now); got != k.want {
			t.Errorf("at %d ns: %d, want %d", k.now, got, k.want)
		}
	}
}

type cluster struct {
	t      *testing.T
	c      *sim.Cluster
	mn     fabric.MemID
	clocks []*timesync.Clock
	nodes  []*sim.Node
}

func newCluster(t *testing.T, cfg sim.Config, n int) *cluster {
	cl := &cluster{t: t, c: sim.New(cfg)}
	t.Cleanup(func() { cl.c.Close() })
	cl.mn = cl.c.AddMN(1 << 16)
	for range n {
		cl.nodes = append(cl.nodes, cl.c.AddCN())
		cl.clocks = append(cl.clocks, new(timesync.Clock))
	}
	return cl
}

// sync makes node i take part in a round from a time on, of n nodes.
func (cl *cluster) sync(i, n int, from, window fabric.Time, want error) {
	cl.c.At(from, func() {
		cl.c.Go(cl.nodes[i], "sync", func(p fabric.Port) {
			err := cl.clocks[i].Sync(p, fabric.At(cl.mn, 64), n, p.Now()+window)
			if !errors.Is(err, want) {
				cl.t.Errorf("cn%d: %v, want %v", i+1, err, want)
			}
		})
	})
}

func (cl *cluster) until(at fabric.Time) {
	cl.t.Helper()
	if err := cl.c.RunUntil(at); err != nil {
		cl.t.Fatal(err)
	}
}

// spread returns how far the clocks of some nodes are apart now, in microseconds.
func (cl *cluster) spread(nodes ...int) int {
	first := cl.clocks[nodes[0]].Stamp(cl.nodes[nodes[0]].Agent().Now())
	lo, hi := 0, 0
	for _, i := range nodes[1:] {
		d := int(int16(cl.clocks[i].Stamp(cl.nodes[i].Agent().Now()) - first))
		lo, hi = min(lo, d), max(hi, d)
	}
	return hi - lo
}

// "This mechanism ensures precision within the latency of one RDMA READ
// (typically less than 3 us)" (section 5.3), whatever the clocks show and
// however they drift, and for a while after.
func TestSyncPrecision(t *testing.T) {
	for seed := range uint64(20) {
		cfg := sim.Config{Seed: seed, Clocks: []sim.Clock{
			{Offset: 0}, {Offset: 5 * fabric.Second, Drift: 20_000}, {Offset: 123456789, Drift: -20_000}, {Offset: 1 << 60, Drift: 5},
			{Offset: 77 * us}, {Offset: 3 * ms}, {Offset: 999}, {Offset: 40 * ms, Drift: 10_000},
		}}
		cl := newCluster(t, cfg, 8)
		all := []int{0, 1, 2, 3, 4, 5, 6, 7}
		for i := range 8 {
			cl.sync(i, 8, 20*us+fabric.Time(i*13)*us, ms, nil)
		}
		cl.until(ms)
		if d := cl.spread(all...); d > 3 {
			t.Errorf("seed %d: clocks are %d us apart after Sync", seed, d)
		}
		// 40 us/s between the worst two.
		cl.until(100 * ms)
		if d := cl.spread(all...); d > 3+4 {
			t.Errorf("seed %d: clocks are %d us apart 100 ms after Sync", seed, d)
		}
		for i, k := range cl.clocks {
			if k.Rounds() != 1 {
				t.Errorf("seed %d: cn%d took part in %d rounds", seed, i+1, k.Rounds())
			}
		}
	}
}

// A node that does not come: the others give the round up, leave no trace on the
// counter, and the next round with it works.
func TestSyncNodeMissing(t *testing.T) {
	cl := newCluster(t, sim.Config{Seed: 1}, 3)
	cl.sync(0, 3, 10*us, 100*us, timesync.ErrNoRound)
	cl.sync(1, 3, 15*us, 100*us, timesync.ErrNoRound)
	cl.until(ms)
	if w := cl.c.PeekWord(fabric.At(cl.mn, 64)); w != 0 {
		t.Errorf("counter %#x after all have left", w)
	}
	for i := range 3 {
		cl.sync(i, 3, 2*ms, 100*us, nil)
	}
	cl.until(3 * ms)
	if d := cl.spread(0, 1, 2); d > 3 {
		t.Errorf("clocks are %d us apart", d)
	}
	if w := cl.c.PeekWord(fabric.At(cl.mn, 64)); w != 1<<32 {
		t.Errorf("counter %#x, want round 1 without nodes", w)
	}
}

// A node crashes after it has added itself: the round of that time is short of
// one, and later rounds are not confused.
func TestSyncNodeCrashesInRound(t *testing.T) {
	cl := newCluster(t, sim.Config{Seed: 1, Late: sim.LateKeep}, 3)
	cl.sync(2, 3, 10*us, ms, nil)
	cl.c.At(30*us, func() { cl.c.Kill(cl.nodes[2]) })
	cl.until(ms)
	// Two are left; the dead one is counted in this round still: one of them
	// gets in with it, the other is too late for that round.
	cl.sync(0, 2, 2*ms, 100*us, nil)
	cl.sync(1, 2, 2*ms+20*us, 100*us, timesync.ErrNoRound)
	cl.until(3 * ms)
	for i := range 2 {
		cl.sync(i, 2, 4*ms, 100*us, nil)
	}
	cl.until(5 * ms)
	if d := cl.spread(0, 1); d > 3 {
		t.Errorf("clocks are %d us apart", d)
	}
}

// More nodes come than were expected (one has joined, and not all know it yet),
// and some leave at the moment when the round begins: all get an answer.
func TestSyncLeaveMeetsBegin(t *testing.T) {
	for seed := range uint64(50) {
		cl := newCluster(t, sim.Config{Seed: seed}, 4)
		answers := 0
		for i := range 4 {
			cl.c.Go(cl.nodes[i], "sync", func(p fabric.Port) {
				_ = p.Pause(fabric.Time(p.Rand() % 5000))
				err := cl.clocks[i].Sync(p, fabric.At(cl.mn, 64), 3, p.Now()+fabric.Time(p.Rand()%8000))
				if err != nil && !errors.Is(err, timesync.ErrNoRound) {
					t.Errorf("seed %d: %v", seed, err)
				}
				answers++
			})
		}
		cl.until(ms)
		if answers != 4 {
			t.Fatalf("seed %d: %d of 4 came back", seed, answers)
		}
		if arrived := uint32(cl.c.PeekWord(fabric.At(cl.mn, 64))); arrived != 0 {
			t.Errorf("seed %d: %d nodes are left on the counter", seed, arrived)
		}
	}
}

// The round number wraps from 2^32-1 to 0.
func TestSyncRoundWraps(t *testing.T) {
	cl := newCluster(t, sim.Config{Seed: 1}, 2)
	cl.c.Poke(fabric.At(cl.mn, 64), []byte{0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff})
	cl.sync(0, 2, 10*us, ms, nil)
	cl.sync(1, 2, 20*us, ms, nil)
	cl.until(ms)
	if w := cl.c.PeekWord(fabric.At(cl.mn, 64)); w != 0 {
		t.Errorf("counter %#x", w)
	}
	if d := cl.spread(0, 1); d > 3 {
		t.Errorf("clocks are %d us apart", d)
	}
}

// Errors of the fabric come through, and leave the clock as it was.
func TestSyncErrors(t *testing.T) {
	cl := newCluster(t, sim.Config{Seed: 1}, 1)
	cl.c.Go(cl.nodes[0], "sync", func(p fabric.Port) {
		k := cl.clocks[0]
		if err := k.Sync(p, fabric.At(cl.mn, 1<<16), 1, fabric.Forever); !errors.Is(err, fabric.ErrOutOfBounds) {
			t.Errorf("out of bounds: %v", err)
		}
		cl.c.RevokeMN(cl.mn)
		if err := k.Sync(p, fabric.At(cl.mn, 64), 1, fabric.Forever); !errors.Is(err, fabric.ErrBadKey) {
			t.Errorf("revoked: %v", err)
		}
		if k.Rounds() != 0 {
			t.Errorf("%d rounds", k.Rounds())
		}
	})
	cl.until(ms)
}

// A node that has joined is in the views of some and not of others: more arrive than the last one to come expects. It begins the round all the
// same, and those that began it at once do so once.
func TestSyncMoreThanExpected(t *testing.T) {
	cl := newCluster(t, sim.Config{}, 4)
	cl.sync(0, 4, 10*us, ms, nil)
	cl.sync(1, 4, 12*us, ms, nil)
	cl.sync(2, 2, 30*us, ms, nil) // knows of two: three are there
	cl.until(2 * ms)
	if d := cl.spread(0, 1, 2); d > 3 {
		t.Errorf("clocks are %d us apart", d)
	}
	for from := fabric.Time(0); from < 40; from++ { // two that begin at once, and a third that comes into the next round
		cl := newCluster(t, sim.Config{}, 4)
		cl.sync(0, 1, 10*us, ms, nil)
		cl.sync(1, 1, 10*us+10*from, ms, nil)
		cl.sync(2, 2, 12*us+100*from, ms, nil)
		cl.until(39 * us)
		if cl.clocks[2].Rounds() == 0 { // else it came before the first had begun
			cl.sync(3, 2, 40*us, ms, nil)
		}
		cl.until(3 * ms)
	}
}
