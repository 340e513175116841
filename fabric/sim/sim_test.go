package sim

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/declock/declock/fabric"
)

// turmoil runs a bit of everything, faults among it, and returns the history's hash.
func turmoil(seed uint64) (hash uint64, ops uint64) {
	nic := CX4()
	nic.MaxAtomics, nic.SendQueue, nic.AtomicQueue = 1+int(seed%5), 1+int(seed%3), 1+int(seed%7)
	c := New(Config{Seed: seed, NIC: nic, Tear: Tear{Prob: 0.2, Grain: 8}, DetectDelay: 20 * fabric.Microsecond,
		Late: LateOps(seed % uint64(numLateOps)), Clocks: []Clock{{Offset: 5000, Drift: 100_000}}})
	defer c.Close()
	c.AddMN(1 << 20)
	c.AddMN(1 << 20)
	var nodes []*Node
	for range 4 {
		nodes = append(nodes, c.AddCN())
	}
	for _, n := range nodes {
		c.GoAgent(n, func(p fabric.Port) {
			for {
				m, err := p.Recv(fabric.Forever)
				if err != nil {
					return
				}
				p.Send(m.From, &m)
			}
		})
		for i := range 4 {
			c.Go(n, fmt.Sprint(n.id, " client ", i), func(p fabric.Port) { turmoilClient(p) })
		}
	}
	c.At(30_000, func() { c.Kill(nodes[3]) })
	c.At(40_000, func() { c.Pause(nodes[2]) })
	c.At(90_000, func() { c.Resume(nodes[2]) })
	if err := c.Run(); err != nil {
		panic(err)
	}
	if err := c.RunUntil(c.Now() + fabric.Millisecond); err != nil {
		panic(err)
	}
	for _, ch := range c.chains {
		if ch.state != chainFree {
			panic(fmt.Sprintf("seed %d: chain %d of %v is left in state %d", seed, ch.index, ch.port.id, ch.state))
		}
	}
	for _, q := range c.qps {
		if q.pending != 0 || q.head != none {
			panic(fmt.Sprintf("seed %d: queue pair %d of %v has %d operations pending", seed, q.index, q.node, q.pending))
		}
	}
	s := c.NICStats(0)
	return c.Hash(), s.Total().Ops
}

func turmoilClient(p fabric.Port) {
	buf, later := p.Alloc(300), p.Alloc(300)
	for range 100 {
		var pend []fabric.Pending
		for range p.Rand() % 4 {
			a := fabric.At(fabric.MemID(p.Rand()&1), p.Rand()%1000*8)
			pd, err := p.Post([]fabric.Op{fabric.Read(a, later), fabric.FAA(a, 1), fabric.Write(a, later)})
			if err != nil {
				panic(err)
			}
			pend = append(pend, pd)
		}
		a := fabric.At(fabric.MemID(p.Rand()&1), p.Rand()%1000*8)
		ops := []fabric.Op{fabric.FAA(a, p.Rand()), fabric.Read(a, buf)}
		switch p.Rand() % 4 {
		case 0:
			ops = []fabric.Op{fabric.Write(a, buf), fabric.CAS(a, 0, 1), fabric.Store(a, 3)}
		case 1:
			p.Send(fabric.AgentOf(fabric.CNID(1+p.Rand()%4)), &fabric.Message{Kind: fabric.MsgUser})
			p.Recv(p.Now() + 5000)
		case 2:
			p.Pause(p.Now() + fabric.Time(p.Rand()%1000))
		}
		if err := p.Do(ops); err != nil {
			panic(err)
		}
		for _, pd := range pend {
			if err := p.Wait(pd); err != nil {
				panic(err)
			}
		}
	}
}

// Whatever the limits of the NIC and the fate of late operations, a run ends, and ends the same.
func TestTurmoilOfManySeeds(t *testing.T) {
	for seed := range uint64(30) {
		h1, _ := turmoil(seed)
		h2, _ := turmoil(seed)
		if h1 != h2 {
			t.Errorf("seed %d: hashes %#x and %#x", seed, h1, h2)
		}
	}
}

const replayEnv = "DECLOCK_SIM_REPLAY"

// The same seed gives the same history: again, for every GOMAXPROCS, and in another process.
func TestSameSeedSameHistory(t *testing.T) {
	if os.Getenv(replayEnv) != "" {
		h, _ := turmoil(7)
		fmt.Printf("hash %#x\n", h)
		return
	}
	want, ops := turmoil(7)
	if ops < 1000 {
		t.Fatalf("only %d operations", ops)
	}
	for _, procs := range []int{1, 2, 4} {
		before := runtime.GOMAXPROCS(procs)
		got, _ := turmoil(7)
		runtime.GOMAXPROCS(before)
		if got != want {
			t.Errorf("GOMAXPROCS %d: hash %#x, want %#x", procs, got, want)
		}
	}
	if got, _ := turmoil(8); got == want {
		t.Errorf("seeds 7 and 8 have one history")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, procs := range []string{"1", "3"} {
		cmd := exec.Command(exe, "-test.run=^TestSameSeedSameHistory$")
		cmd.Env = append(os.Environ(), replayEnv+"=1", "GOMAXPROCS="+procs, "GOGC=20")
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), fmt.Sprintf("hash %#x\n", want)) {
			t.Errorf("another process says %s (%v), want hash %#x", out, err, want)
		}
	}
}

func TestDeadlockNamesWaiters(t *testing.T) {
	c := New(Config{})
	defer c.Close()
	n := c.AddCN()
	c.GoAgent(n, func(p fabric.Port) { p.Recv(fabric.Forever) })
	c.Go(n, "done", func(p fabric.Port) { p.Pause(7000) })
	c.Go(n, "stuck", func(p fabric.Port) {
		p.Pause(5000)
		p.Recv(fabric.Forever)
	})
	err := c.Run()
	var d *DeadlockError
	if !errors.As(err, &d) {
		t.Fatalf("Run: %v", err)
	}
	want := Blocked{Client: "stuck", ID: fabric.Client(1, 2), For: "a message", Since: 5000}
	if d.Time != 7000 || !slices.Contains(d.Blocked, want) || len(d.Blocked) != 2 {
		t.Errorf("%+v", d)
	}
	if !strings.Contains(err.Error(), "stuck (cn1/2) waits for a message since 5000 ns") {
		t.Errorf("%v", err)
	}
}

func TestPanicEndsTheRun(t *testing.T) {
	c := New(Config{})
	n := c.AddCN()
	cause := errors.New("the cause")
	c.Go(n, "other", func(p fabric.Port) { p.Recv(fabric.Forever) })
	c.Go(n, "bad", func(p fabric.Port) {
		p.Pause(10)
		panicHere(cause)
	})
	err := c.Run()
	var pe *PanicError
	if !errors.As(err, &pe) || pe.Client != "bad" || !errors.Is(err, cause) || !bytes.Contains(pe.Stack, []byte("panicHere")) {
		t.Errorf("Run: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func panicHere(v any) { panic(v) }

func TestCloseUnwindsAllClients(t *testing.T) {
	before := runtime.NumGoroutine()
	c := New(Config{})
	c.AddMN(4096)
	n := c.AddCN()
	unwound := 0
	for i := range 50 {
		c.Go(n, fmt.Sprint(i), func(p fabric.Port) {
			defer func() { unwound++ }()
			defer p.Close()
			if i%2 == 0 {
				p.Recv(fabric.Forever)
			}
			for {
				p.Do([]fabric.Op{fabric.FAA(fabric.At(0, 0), 1)})
			}
		})
	}
	if err := c.RunUntil(100_000); err != nil {
		t.Fatal(err)
	}
	if c.Now() != 100_000 {
		t.Errorf("RunUntil(100000) ended at %d", c.Now())
	}
	c.Go(n, "not begun", func(p fabric.Port) { t.Error("a client began at Close") })
	for range 2 {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if unwound != 50 {
		t.Errorf("%d of 50 clients unwound", unwound)
	}
	if now := runtime.NumGoroutine(); now > before {
		t.Errorf("%d goroutines before, %d after", before, now)
	}
	if err := c.Run(); !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("Run after Close: %v", err)
	}
}

// The last client ends before the time of RunUntil, and an agent and a call are due between: they
// happen in that time, and the clock does not pass over what is to come.
func TestRunUntilGoesOnWithoutClients(t *testing.T) {
	c := New(Config{})
	defer c.Close()
	n := c.AddCN()
	beats, calls := 0, 0
	c.GoAgent(n, func(p fabric.Port) {
		for p.Pause(p.Now()+1000) == nil {
			beats++
		}
	})
	c.Go(n, "brief", func(p fabric.Port) { p.Pause(p.Now() + 1500) })
	c.At(5000, func() { calls++ })
	c.At(20_000, func() { calls++ })
	if err := c.RunUntil(10_000); err != nil {
		t.Fatal(err)
	}
	if c.Now() != 10_000 || beats < 9 || calls != 1 {
		t.Errorf("at %d ns: %d beats of the agent, %d calls", c.Now(), beats, calls)
	}
	if err := c.RunUntil(30_000); err != nil {
		t.Fatal(err)
	}
	if calls != 2 || beats < 29 {
		t.Errorf("at %d ns: %d beats, %d calls", c.Now(), beats, calls)
	}
}

func TestSwallowedUnwindFails(t *testing.T) {
	c := New(Config{})
	n := c.AddCN()
	c.Go(n, "greedy", func(p fabric.Port) {
		for range 5 {
			func() {
				defer func() { recover() }()
				p.Recv(fabric.Forever)
			}()
		}
	})
	c.RunUntil(100)
	if err := c.Close(); !errors.Is(err, ErrSwallowed) {
		t.Errorf("Close: %v", err)
	}
}

func TestEventBudget(t *testing.T) {
	c := New(Config{MaxEvents: 1000})
	defer c.Close()
	c.Go(c.AddCN(), "endless", func(p fabric.Port) {
		for {
			p.Pause(p.Now() + 10)
		}
	})
	if err := c.Run(); !errors.Is(err, ErrBudget) {
		t.Errorf("Run: %v", err)
	}
}

// A client that polls lets time go by; one that only looks at the clock is stopped.
func TestBusyClients(t *testing.T) {
	c := New(Config{})
	defer c.Close()
	n := c.AddCN()
	c.Go(n, "polls", func(p fabric.Port) {
		for {
			if _, err := p.Recv(0); err == nil {
				return
			}
		}
	})
	c.Go(n, "sends", func(p fabric.Port) {
		p.Pause(50_000)
		p.Send(fabric.Client(1, 1), &fabric.Message{})
	})
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	c.Go(n, "spins", func(p fabric.Port) {
		for p.Now() < fabric.Second {
		}
	})
	if err := c.Run(); err == nil || !strings.Contains(err.Error(), "without waiting") {
		t.Errorf("Run: %v", err)
	}
}

// Events come in the order of their times, and those of one instant in the order of their making, whether they were near or
// far when they were made.
func TestEventsInOrder(t *testing.T) {
	r := NewRand(1, 1)
	q := newQueue()
	var want []farEvent
	var now fabric.Time
	for seq := uint64(1); seq < 100_000; seq++ {
		e := farEvent{now + fabric.Time(r.Uint64n(3*wheelSpan)>>r.Uint64n(14)), seq, event{kind: evWake, a: uint32(seq)}}
		if r.Uint64n(100) == 0 {
			e.at += fabric.Time(r.Uint64n(1e6))
		}
		q.push(e.at, e.event)
		at := len(want)
		for at > 0 && want[at-1].at > e.at {
			at--
		}
		want = slices.Insert(want, at, e)
		for len(want) > 100 || len(want) > 0 && r.Uint64n(3) == 0 || len(want) > 0 && seq%5000 == 0 {
			first, ok := q.first()
			if got := q.pop(first); !ok || first != want[0].at || got != want[0].event {
				t.Fatalf("%+v at %d, want %+v", got, first, want[0])
			}
			now, want = first, want[1:]
		}
		if q.len() != len(want) {
			t.Fatalf("%d events, want %d", q.len(), len(want))
		}
	}
}

func TestClocksOfNodesDiffer(t *testing.T) {
	for _, k := range []Clock{{}, {Offset: 1e6}, {Offset: -1e6, Drift: 50_000}, {Drift: -200_000}, {Offset: 3, Drift: 9e8}, {Drift: -9e8}} {
		r := NewRand(3, 3)
		for range 200 {
			now := fabric.Time(r.Uint64n(1e12))
			l := k.local(now) + fabric.Time(r.Uint64n(1e10)) - 1e9
			v := k.virtual(now, l)
			if v < now || k.local(v) < l || v > now && k.local(v-1) >= l {
				t.Fatalf("clock %+v: %d is shown at %d, at %d before (now %d)", k, l, v, v-1, now)
			}
		}
		if k.virtual(5, fabric.Forever) != fabric.Forever {
			t.Errorf("clock %+v: for ever is %d", k, k.virtual(5, fabric.Forever))
		}
	}
	c := New(Config{Clocks: []Clock{{Offset: 1000}, {Drift: 1_000_000}}})
	defer c.Close()
	p, q := c.AddCN().Agent(), c.AddCN().Agent()
	c.RunUntil(fabric.Second)
	if p.Now() != fabric.Second+1000 || q.Now() != fabric.Second+1_000_000 {
		t.Errorf("clocks show %d and %d", p.Now(), q.Now())
	}
}

// A deadline far away that is set again and again leaves one timer, not many.
func TestTimersDoNotPileUp(t *testing.T) {
	c := New(Config{})
	defer c.Close()
	n := c.AddCN()
	most := 0
	c.Go(n, "receiver", func(p fabric.Port) {
		for range 1000 {
			if _, err := p.Recv(p.Now() + fabric.Second); err != nil {
				panic(err)
			}
			most = max(most, c.events.len())
		}
	})
	c.Go(n, "sender", func(p fabric.Port) {
		for range 1000 {
			p.Send(fabric.Client(1, 1), &fabric.Message{})
			p.Pause(p.Now() + 1000)
		}
	})
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	if most > 10 {
		t.Errorf("%d events at once", most)
	}
}

// Sparse memory: locks touched by Zipf cost what was touched; zeros cost nothing.
func TestMemoryIsSparse(t *testing.T) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	const locks, stride, clients, touches = 10_000_000, 264, 512, 400
	c := New(Config{Seed: 1})
	defer c.Close()
	mn := c.AddMN(locks * stride)
	z := newZipf(1_000_000, 0.99) // its table is not the cluster's: kept small
	var n *Node
	for i := range clients {
		if i%32 == 0 {
			n = c.AddCN()
		}
		c.Go(n, fmt.Sprint(i), func(p fabric.Port) {
			ops := make([]fabric.Op, 2)
			for range touches {
				lock := z.draw(p.Rand())*10 + p.Rand()%10
				a := fabric.At(0, lock*stride)
				ops[0], ops[1] = fabric.FAA(a, 1), fabric.Store(a+256, 0)
				if err := p.Do(ops); err != nil {
					panic(err)
				}
			}
		})
	}
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	used := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	t.Logf("%d locks of %d B, %d clients, %d acquisitions: %d MB in all, %d MB of them memory node",
		locks, stride, clients, clients*touches, used>>20, c.MemoryUsed(mn)>>20)
	if used > 400<<20 {
		t.Errorf("%d MB", used>>20)
	}
	runtime.KeepAlive(z)
}
