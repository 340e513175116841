package sim

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/declock/declock/fabric"
)

// casClient is the spinlock of the paper's section 2.3, as simple as can be.
func casClient(p fabric.Port, draw func() uint64, until fabric.Time, ops, retries *int, lat *[]fabric.Time) {
	const writer = 1 << 32
	op := make([]fabric.Op, 1)
	do := func(o fabric.Op) uint64 {
		op[0] = o
		if err := p.Do(op); err != nil {
			panic(err)
		}
		return op[0].Old
	}
	for p.Now() < until {
		begin := p.Now()
		a := fabric.At(0, draw()*benchStride)
		write := p.Rand()&1 == 0
		for guess := uint64(0); ; {
			next := guess + 1
			if write {
				guess, next = 0, writer
			}
			old := do(fabric.CAS(a, guess, next))
			if old == guess {
				break
			}
			*retries++
			guess = old
			if old >= writer {
				guess = 0
			}
		}
		if write {
			do(fabric.Store(a+64, 1))
			do(fabric.FAA(a, ^uint64(writer-1)))
		} else {
			do(fabric.Load(a + 64))
			do(fabric.FAA(a, ^uint64(0)))
		}
		*ops++
		*lat = append(*lat, p.Now()-begin)
	}
}

func casRun(nic NIC, clients int, span fabric.Time) (mops, retries float64, p50, p99 fabric.Time, s NICStats) {
	c := New(Config{Seed: 1, NIC: nic})
	defer c.Close()
	c.AddMN(benchLocks * benchStride)
	z := newZipf(benchLocks, benchTheta)
	var ops, tries int
	var lat []fabric.Time
	var n *Node
	for i := range clients {
		if i%32 == 0 {
			n = c.AddCN()
		}
		c.Go(n, fmt.Sprint(i), func(p fabric.Port) {
			casClient(p, func() uint64 { return z.draw(p.Rand()) }, span, &ops, &tries, &lat)
		})
	}
	if err := c.Run(); err != nil {
		panic(err)
	}
	slices.Sort(lat)
	return float64(ops) * 1e3 / float64(c.Now()), float64(tries) / float64(ops), lat[len(lat)/2], lat[len(lat)*99/100], c.NICStats(0)
}

// Section 2.3, figure 3: CASLock's throughput and median latency collapse, because atomics that
// wait stall the pipeline of the memory node's NIC. The control shows that it is that.
func TestCASLockCollapses(t *testing.T) {
	const span = 4 * fabric.Millisecond
	peak, _, p50, _, _ := casRun(CX4(), 24, span)
	few, retries, slow, _, s := casRun(CX4(), 256, span)
	free := CX4()
	free.AtomicQueue = 1024
	_, _, unstalled, _, _ := casRun(free, 256, span)
	t.Logf("24 clients: %.2f Mops, p50 %d ns; 256: %.2f Mops, p50 %d ns, %.1f retries, %d stalls; without stalls p50 %d ns",
		peak, p50, few, slow, retries, s.Total().Stalls, unstalled)
	if few > peak/4 || slow < 5*p50 || s.Total().Stalls == 0 {
		t.Errorf("no collapse")
	}
	if unstalled > slow/2 {
		t.Errorf("head-of-line blocking accounts for less than half of the median")
	}
}

// quietCX4 returns CX4 without what is drawn.
func quietCX4() NIC {
	n := CX4()
	n.PostMin, n.PostMax = 150, 150
	n.MessageMin, n.MessageMax = 1650, 1650
	return n
}

// timed runs chains one after the other by one client, and returns how long each took.
func timed(t *testing.T, nic NIC, chains ...[]fabric.Op) []fabric.Time {
	t.Helper()
	c := New(Config{NIC: nic})
	defer c.Close()
	c.AddMN(1 << 20)
	var took []fabric.Time
	p, err := c.AddCN().Open()
	if err != nil {
		t.Fatal(err)
	}
	for _, ops := range chains {
		begin := c.Now()
		if err := p.Do(ops); err != nil {
			t.Fatal(err)
		}
		took = append(took, c.Now()-begin)
	}
	return took
}

// The latency of one operation is the sum of the model's parts.
func TestLatencyUnloaded(t *testing.T) {
	a := fabric.At(0, 64)
	n := quietCX4()
	took := timed(t, n, []fabric.Op{fabric.Load(a)}, []fabric.Op{fabric.Store(a, 1)}, []fabric.Op{fabric.FAA(a, 1)},
		[]fabric.Op{fabric.FAA(a, 1), fabric.Load(a)}, []fabric.Op{fabric.Store(a, 1), fabric.FAA(a, 1)},
		[]fabric.Op{fabric.FAA(a, 1), fabric.Store(a, 1)})
	base := n.PostMin + 2*n.OneWay + n.Poll + n.Pipe
	const wire = 16 // headers and words on the links, rounded
	for i, want := range []fabric.Time{base + n.PCIeRead, base + n.PCIeWrite, base + n.PCIeAtomic,
		base + n.Pipe + n.PCIeRead, base + n.Pipe + n.PCIeAtomic,
		base + n.PCIeAtomic + 2*n.OneWay + n.Pipe + n.PCIeWrite, // a fence is a round trip
	} {
		if took[i] < want || took[i] > want+2*wire {
			t.Errorf("chain %d took %d ns, want %d and a little for the wire", i, took[i], want)
		}
	}
}

// storm lets clients on nodes of their own post chains of n operations each at time 0, and
// returns when the last was done.
func storm(nic NIC, clients int, chain func(i int) []fabric.Op) (fabric.Time, NICStats) {
	c := New(Config{NIC: nic})
	defer c.Close()
	c.AddMN(1 << 24)
	for i := range clients {
		c.Go(c.AddCN(), fmt.Sprint(i), func(p fabric.Port) {
			ops := chain(i)
			for k := range ops {
				if ops[k].Kind == fabric.OpNone {
					ops[k] = fabric.Read(fabric.At(0, 0), p.Alloc(1<<16))
				}
			}
			if err := p.Do(ops); err != nil {
				panic(err)
			}
		})
	}
	if err := c.Run(); err != nil {
		panic(err)
	}
	return c.Now(), c.NICStats(0)
}

func TestAtomicsOfOneSlotAreSerialised(t *testing.T) {
	n := quietCX4()
	const clients = 10
	at := func(stride uint64) fabric.Time {
		end, _ := storm(n, clients, func(i int) []fabric.Op { return []fabric.Op{fabric.FAA(fabric.At(0, uint64(i)*stride), 1)} })
		return end
	}
	same, collide, apart := at(0), at(8192), at(16)
	if want := apart + (clients-1)*(n.Atomic-n.Pipe); same < want-20 || same > want+20 {
		t.Errorf("atomics on one word took %d ns, on different words %d, want %d", same, apart, want)
	}
	if collide != same {
		t.Errorf("words 8 KiB apart took %d ns, the same word %d", collide, same)
	}
}

func TestPipelineBoundsOperations(t *testing.T) {
	n := quietCX4()
	one, _ := storm(n, 1, func(int) []fabric.Op { return []fabric.Op{fabric.Load(fabric.At(0, 0))} })
	all, s := storm(n, 200, func(int) []fabric.Op { return []fabric.Op{fabric.Load(fabric.At(0, 0))} })
	if want := one + 199*n.Pipe; all != want {
		t.Errorf("200 READs took %d ns, want %d", all, want)
	}
	if k := s.Kinds[fabric.OpRead]; k.QueueWait == 0 || s.PipeBusy != 200*n.Pipe || k.Ops != 200 || k.Bytes != 1600 || k != s.Total() {
		t.Errorf("counters: %+v", s)
	}
}

// 16 atomics may wait; with one more the READ behind them waits, too.
func TestFullAtomicUnitStallsThePipeline(t *testing.T) {
	read := func(atomics int) (fabric.Time, NICStats) {
		c := New(Config{NIC: quietCX4()})
		defer c.Close()
		c.AddMN(1 << 20)
		for i := range atomics {
			c.Go(c.AddCN(), fmt.Sprint(i), func(p fabric.Port) { p.Do([]fabric.Op{fabric.FAA(fabric.At(0, 0), 1)}) })
		}
		took := fabric.Time(0)
		c.Go(c.AddCN(), "reader", func(p fabric.Port) {
			p.Do([]fabric.Op{fabric.Load(fabric.At(0, 512))})
			took = p.Now()
		})
		if err := c.Run(); err != nil {
			t.Fatal(err)
		}
		return took, c.NICStats(0)
	}
	free, s := read(17) // one executes, 16 wait
	if s.Total().Stalls != 0 {
		t.Errorf("17 atomics on one word stalled the pipeline: %+v", s)
	}
	held, s := read(30)
	if k := s.Kinds[fabric.OpFAA]; k.Stalls == 0 || k.StallTime == 0 || k.SlotWait == 0 || held < free+1000 {
		t.Errorf("a READ behind 17 atomics took %d ns, behind 30 %d; %+v", free, held, s)
	}
}

func TestLinkBoundsBandwidth(t *testing.T) {
	n := quietCX4()
	const clients, size = 20, 1 << 16
	end, s := storm(n, clients, func(int) []fabric.Op { return make([]fabric.Op, 1) })
	least := fabric.Time(clients * size * n.BytePs / 1000)
	if end < least || end > least+5000 {
		t.Errorf("%d READs of %d bytes took %d ns, the link alone takes %d", clients, size, end, least)
	}
	if s.BytesOut != clients*uint64(size+n.Overhead) {
		t.Errorf("%d bytes out", s.BytesOut)
	}
}

// A queue pair has at most MaxAtomics READs and atomics under way.
func TestQueuePairBoundsAtomics(t *testing.T) {
	run := func(limit int) fabric.Time {
		n := quietCX4()
		n.MaxAtomics, n.PostMin, n.PostMax = limit, 1, 1
		c := New(Config{NIC: n})
		defer c.Close()
		c.AddMN(1 << 20)
		p, _ := c.AddCN().Open()
		ops := make([]fabric.Op, 32)
		var pend []fabric.Pending
		for i := range ops {
			ops[i] = fabric.Load(fabric.At(0, uint64(8*i)))
			pd, err := p.Post(ops[i : i+1])
			if err != nil {
				t.Fatal(err)
			}
			pend = append(pend, pd)
		}
		for _, pd := range pend {
			if err := p.Wait(pd); err != nil {
				t.Fatal(err)
			}
		}
		return c.Now()
	}
	wide, narrow, one := run(32), run(16), run(1)
	if narrow <= wide || one < 32*1800 {
		t.Errorf("32 READs took %d ns with 32 under way, %d with 16, %d with 1", wide, narrow, one)
	}
}

// Two clients of a core share its CPU; clients of two cores do not.
func TestClientsShareACore(t *testing.T) {
	run := func(perCore int) fabric.Time {
		n := quietCX4()
		n.PostMin, n.PostMax, n.Poll = 5000, 5000, 5000
		c := New(Config{NIC: n, ClientsPerCore: perCore})
		defer c.Close()
		c.AddMN(1 << 20)
		cn := c.AddCN()
		for i := range 2 {
			c.Go(cn, fmt.Sprint(i), func(p fabric.Port) { p.Do([]fabric.Op{fabric.Store(fabric.At(0, 0), 1)}) })
		}
		if err := c.Run(); err != nil {
			t.Fatal(err)
		}
		return c.Now()
	}
	if apart, shared := run(1), run(2); shared < apart+4000 {
		t.Errorf("on two cores %d ns, on one %d", apart, shared)
	}
}

func TestMessageLatency(t *testing.T) {
	run := func(scale float64, local bool) fabric.Time {
		n := CX4()
		n.MessageScale = scale
		c := New(Config{NIC: n})
		defer c.Close()
		a := c.AddCN()
		b := a
		if !local {
			b = c.AddCN()
		}
		p, _ := a.Open()
		q, _ := b.Open()
		p.Send(q.ID(), &fabric.Message{})
		if _, err := q.Recv(fabric.Forever); err != nil {
			t.Fatal(err)
		}
		return c.Now()
	}
	if d := run(1, false); d < 1600 || d > 1720 {
		t.Errorf("a message took %d ns, want 1600 to 1700", d)
	}
	if d := run(4, false); d < 6400 || d > 6820 {
		t.Errorf("a message took %d ns at scale 4", d)
	}
	if d := run(4, true); d != 150 {
		t.Errorf("a local message took %d ns, want 150", d)
	}
}

func TestPresetsAndValidation(t *testing.T) {
	for _, name := range []string{"cx4", "cx5", "cx6", "ideal", "cxl"} {
		n, err := Preset(name)
		if err != nil || n.String() != name || n.Validate() != nil {
			t.Errorf("preset %s: %v, %v", name, n, errors.Join(err, n.Validate()))
		}
	}
	if _, err := Preset("cx9"); !errors.Is(err, ErrConfig) {
		t.Errorf("preset cx9: %v", err)
	}
	for i, spoil := range []func(c *Config){
		func(c *Config) { c.NIC.PostMax = 1 }, func(c *Config) { c.NIC.OneWay = -1 },
		func(c *Config) { c.NIC.AtomicSlots = 500 }, func(c *Config) { c.NIC.AtomicQueue = 0 },
		func(c *Config) { c.NIC.MaxAtomics = 0 }, func(c *Config) { c.NIC.MessageScale = 0 },
		func(c *Config) { c.NIC.SlotShift = 2 }, func(c *Config) { c.NIC.SendQueue = 0 },
		func(c *Config) { c.NIC.PCIeAtomic = 1 }, func(c *Config) { c.Cores = -1 },
		func(c *Config) { c.ClientsPerCore = -1 }, func(c *Config) { c.Tear.Prob = 2 },
		func(c *Config) { c.Tear.Grain = 12 }, func(c *Config) { c.DetectDelay = -1 },
		func(c *Config) { c.Late = 9 }, func(c *Config) { c.Clocks = []Clock{{Drift: 2e9}} },
	} {
		c := Config{NIC: CX4()}
		spoil(&c)
		if err := c.Validate(); !errors.Is(err, ErrConfig) {
			t.Errorf("configuration %d: %v", i, err)
		}
	}
}
