package sim

import (
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/declock/declock/fabric"
)

// cutPair is a cluster of two compute nodes and a memory node.
func cutPair(cfg Config) (c *Cluster, a, b *Node, word fabric.Addr) {
	c = New(cfg)
	mn := c.AddMN(4096)
	return c, c.AddCN(), c.AddCN(), fabric.At(mn, 64)
}

// What is held up by a cut arrives after it, in order; the other direction is open.
func TestCutDelaysAndHeals(t *testing.T) {
	for _, dir := range []string{"request", "answer"} {
		c, a, _, word := cutPair(Config{})
		from, to := OfCN(a.ID()), OfMN(0)
		if dir == "answer" {
			from, to = to, from
		}
		c.At(0, func() { c.Cut(from, to, 100_000) })
		c.Go(a, "client", func(p fabric.Port) {
			p.Pause(1000)
			pend, err := p.Post([]fabric.Op{fabric.FAA(word, 1), fabric.FAA(word, 1)})
			if err != nil {
				t.Error(err)
			}
			op := []fabric.Op{fabric.FAA(word, 1)}
			if err := p.Do(op); err != nil || op[0].Old != 2 {
				t.Errorf("%s: second chain: %v, %d", dir, err, op[0].Old)
			}
			if err := p.Wait(pend); err != nil {
				t.Error(err)
			}
			if now := p.Now(); now < 100_000 || now > 110_000 {
				t.Errorf("%s: done at %d", dir, now)
			}
		})
		c.RunUntil(50_000)
		if v := c.PeekWord(word); dir == "request" && v != 0 || dir == "answer" && v != 1 {
			t.Errorf("%s: the word is %d during the cut", dir, v)
		}
		if err := c.Run(); err != nil {
			t.Error(err)
		}
		c.Close()
	}
}

// A connection that is held up for too long breaks. Whether the operation took place depends on the direction.
func TestCutBreaksConnections(t *testing.T) {
	for _, dir := range []string{"request", "answer"} {
		c, a, b, word := cutPair(Config{BreakAfter: 20_000})
		from, to := OfCN(a.ID()), OfMN(0)
		if dir == "answer" {
			from, to = to, from
		}
		c.At(0, func() { c.Cut(from, to, 100_000) })
		c.Go(a, "client", func(p fabric.Port) {
			p.Pause(1000)
			err := p.Do([]fabric.Op{fabric.FAA(word, 1), fabric.Store(word+8, 1), fabric.FAA(word, 1)})
			var ce *fabric.ChainError
			if !errors.Is(err, fabric.ErrUnknownOutcome) || !errors.As(err, &ce) || ce.Index != 0 {
				t.Errorf("%s: %v", dir, err)
			}
			if now := p.Now(); now < 20_000 || now > 30_000 {
				t.Errorf("%s: broke at %d", dir, now)
			}
			p.Pause(100_000)
			if err := p.Do([]fabric.Op{fabric.FAA(word, 10)}); err != nil {
				t.Errorf("%s: after the cut: %v", dir, err)
			}
		})
		c.Go(b, "other", func(p fabric.Port) {
			p.Pause(50_000)
			if err := p.Do([]fabric.Op{fabric.FAA(word, 100)}); err != nil {
				t.Errorf("%s: another node: %v", dir, err)
			}
		})
		if err := c.Run(); err != nil {
			t.Error(err)
		}
		want := uint64(110)
		if dir == "answer" {
			want = 111 // the first FAA; what follows a fence was not sent
		}
		if v := c.PeekWord(word); v != want {
			t.Errorf("%s: the word is %d, want %d", dir, v, want)
		}
		c.Close()
	}
}

// Messages are never lost by a cut, nor do they overtake each other when a delay ends.
func TestMessagesThroughFaultsAreFIFO(t *testing.T) {
	c, a, b, _ := cutPair(Config{})
	Plan{
		{At: 10_000, Kind: FaultCut, Node: OfCN(a.ID()), Peer: OfCN(b.ID()), Until: 40_000},
		{At: 60_000, Kind: FaultDelay, Node: OfCN(a.ID()), Peer: OfCN(b.ID()), Delay: 50_000, Until: 70_000},
	}.Apply(c)
	const n = 100
	c.Go(a, "sender", func(p fabric.Port) {
		for i := range uint64(n) {
			p.Send(fabric.Client(b.ID(), 1), &fabric.Message{Body: [7]uint64{i}})
			p.Pause(p.Now() + 1000)
		}
	})
	most := fabric.Time(0)
	c.Go(b, "receiver", func(p fabric.Port) {
		for i := range uint64(n) {
			m, err := p.Recv(fabric.Forever)
			if err != nil || m.Body[0] != i {
				t.Errorf("message %d: %d, %v", i, m.Body[0], err)
			}
			most = max(most, p.Now()-fabric.Time(i)*1000)
		}
	})
	if err := c.Run(); err != nil {
		t.Error(err)
	}
	if most < 50_000 || most > 60_000 {
		t.Errorf("the slowest message took %d ns", most)
	}
	c.Close()
}

func TestPlansRoundTrip(t *testing.T) {
	const text = "120000 kill cn2; 50000 pause cn1 until 300000; 60000 fence cn1; 9000 restart mn0 until 15000; 9000 reboot mn1 until 15000; " +
		"10000 cut cn1 mn0 until 200000; 10000 cut mn0 cn255 until 200000; 5000 delay cn1 cn2 by 30000 until 100000"
	p, err := ParsePlan(text)
	if err != nil || p.String() != text {
		t.Fatalf("%v, %v", p, err)
	}
	if p.End() != 300_000 {
		t.Errorf("ends at %d", p.End())
	}
	if q, err := ParsePlan("# a comment\n\n 1 kill cn1 ;\n2 kill cn2\n"); err != nil || q.String() != "1 kill cn1; 2 kill cn2" {
		t.Errorf("%v, %v", q, err)
	}
	for _, bad := range []string{"x", "1", "1 kill", "1 kill cn0", "1 pause mn0 until 9", "1 promote cn1", "1 backup mn0 cn1 until 9", "1 kill cn256", "1 burn cn1", "1 kill cn1 cn2",
		"5 pause cn1", "5 pause cn1 until 5", "5 restart cn1 until 9", "5 reboot cn1 until 9", "5 reboot mn0", "5 cut mn0 mn1 until 9", "5 cut cn1 cn1 until 9",
		"5 delay cn1 cn2 until 9", "5 delay cn1 cn2 by -1 until 9", "-5 kill cn1", "5 pause cn1 until 9 or later"} {
		if _, err := ParsePlan(bad); !errors.Is(err, ErrPlan) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// Every other message comes twice, the second time later than what was sent after it; memory
// nodes and other directions are not concerned.
func TestMessagesComeTwice(t *testing.T) {
	c, a, b, _ := cutPair(Config{})
	defer c.Close()
	Plan{{At: 0, Kind: FaultDuplicate, Node: OfCN(a.ID()), Peer: OfCN(b.ID()), Delay: 20_000, Until: 1_000_000}}.Apply(c)
	const n = 100
	send := func(to *Node) func(p fabric.Port) {
		return func(p fabric.Port) {
			for i := range uint64(n) {
				p.Pause(p.Now() + 1000)
				p.Send(fabric.AgentOf(to.ID()), &fabric.Message{Body: [7]uint64{i}})
			}
		}
	}
	count := func(n *Node) (first []uint64, twice, late int) {
		seen := map[uint64]int{}
		for {
			m, err := n.agent.Recv(0)
			if err != nil {
				return first, twice, late
			}
			i := m.Body[0]
			if seen[i]++; seen[i] == 1 {
				first = append(first, i)
				continue
			}
			twice++
			if first[len(first)-1] > i {
				late++
			}
		}
	}
	c.Go(a, "to b", send(b))
	c.Go(b, "to a", send(a))
	if err := c.RunUntil(2_000_000); err != nil {
		t.Fatal(err)
	}
	first, twice, late := count(b)
	if len(first) != n || twice < n/4 || twice > 3*n/4 || late == 0 || uint64(twice) != c.FaultStats()[Duplicated] {
		t.Errorf("%d messages, %d twice, %d late, %d counted", len(first), twice, late, c.FaultStats()[Duplicated])
	}
	for i, v := range first {
		if v != uint64(i) {
			t.Fatalf("the first copies come in the order %v", first)
		}
	}
	if first, twice, _ := count(a); len(first) != n || twice != 0 {
		t.Errorf("the other direction: %d messages, %d twice", len(first), twice)
	}
}

var allFaults = []FaultKind{FaultKill, FaultPause, FaultFence, FaultRestart, FaultCut, FaultDelay, FaultDuplicate, FaultReboot, FaultDetach, FaultPromote, FaultBackup, FaultDrop}

// What is drawn is valid, ends before the horizon, round-trips, and leaves the spared nodes alone.
func TestDrawnPlansAreValid(t *testing.T) {
	seen := map[FaultKind]bool{}
	rapid.Check(t, func(t *rapid.T) {
		r := NewRand(rapid.Uint64().Draw(t, "seed"), 0)
		q := PlanParams{CNs: rapid.IntRange(1, 5).Draw(t, "cns"), MNs: rapid.IntRange(0, 3).Draw(t, "mns"), Faults: 10,
			Horizon: fabric.Time(rapid.Int64Range(2, 1e9).Draw(t, "horizon")), Kinds: allFaults, Spare: 1}
		p := DrawPlan(&r, q)
		again, err := ParsePlan(p.String())
		if err != nil || again.String() != p.String() || p.End() > q.Horizon || len(p) > 10 {
			t.Fatalf("%v: %v, %v", p, again, err)
		}
		gone := 0
		for _, f := range p {
			seen[f.Kind] = true
			if f.Kind == FaultKill || f.Kind == FaultFence {
				gone++
				if f.Node == OfCN(1) {
					t.Fatalf("%v: cn1 was to be spared", p)
				}
			}
		}
		if gone > q.CNs-1 {
			t.Fatalf("%v: %d of %d nodes gone", p, gone, q.CNs)
		}
	})
	if len(seen) != int(numFaultKinds) {
		t.Errorf("only %v were drawn", seen)
	}
}

// A run under drawn plans ends, ends the same, and leaves nothing in the queue pairs.
func TestPlansAreDeterministic(t *testing.T) {
	run := func(seed uint64) (uint64, error) {
		c := New(Config{Seed: seed, BreakAfter: fabric.Time(seed%3) * 5000, DetectDelay: 10_000})
		defer c.Close()
		c.AddMN(4096)
		c.AddMN(4096)
		for i := range 3 {
			n := c.AddCN()
			for k := range 2 {
				c.Go(n, fmt.Sprint(i, ".", k), func(p fabric.Port) {
					for range 50 {
						a := fabric.At(fabric.MemID(p.Rand()%2), p.Rand()%8*8)
						p.Do([]fabric.Op{fabric.FAA(a, 1), fabric.Store(a, 2), fabric.FAA(a, 3)})
						p.Send(fabric.AgentOf(fabric.CNID(1+p.Rand()%3)), &fabric.Message{})
					}
				})
			}
		}
		r := NewRand(seed, 9)
		DrawPlan(&r, PlanParams{CNs: 3, MNs: 2, Faults: 6, Horizon: 200_000, Kinds: allFaults, Spare: 1}).Apply(c)
		err := c.Run()
		c.RunUntil(c.Now() + fabric.Millisecond)
		for _, q := range c.qps {
			if q.pending != 0 || q.head != none {
				t.Errorf("seed %d: queue pair %d of %v has %d operations pending", seed, q.index, q.node, q.pending)
			}
		}
		return c.Hash(), err
	}
	for seed := range uint64(200) {
		h1, err1 := run(seed)
		h2, err2 := run(seed)
		if h1 != h2 || err1 != nil || err2 != nil {
			t.Errorf("seed %d: %#x, %v and %#x, %v", seed, h1, err1, h2, err2)
		}
	}
}
