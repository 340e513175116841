package tcp

import (
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peertest"
	"github.com/declock/declock/fabric/member"
)

// What Ports execute by their CPU is counted by kind, those among them that share a tally; both sides say the same, also when the memory is not lent any more.
func TestLocalTallies(t *testing.T) {
	const ports, rounds = ownTallies + 3*sharedTallies/2, 100
	c := newLocalCluster(t, 1)
	defer c.Close()
	n, s := c.Nodes[0], c.Servers[0]
	var all sync.WaitGroup
	before := n.LocalCounters()
	for range ports {
		p := peertest.Open(t, n)
		all.Go(func() {
			read, write := p.Alloc(40), p.Alloc(24)
			for range rounds {
				if err := p.Do([]fabric.Op{fabric.FAA(peertest.Word, 1), fabric.Read(fabric.At(0, 128), read), fabric.Write(fabric.At(0, 256), write), fabric.Load(peertest.Word)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	const k = ports * rounds
	got := n.LocalCounters()
	if got.Chains-before.Chains != k || got.Ops[fabric.OpFAA] != k || got.Ops[fabric.OpRead] != 2*k || got.Ops[fabric.OpWrite] != k || got.ReadBytes != 48*k || got.WriteBytes != 24*k {
		t.Errorf("%d times: %+v", k, got)
	}
	same := func(what string, x member.LocalCounters) {
		t.Helper()
		if x.Chains != got.Chains || !maps.Equal(x.Ops, got.Ops) || x.ReadBytes != got.ReadBytes || x.WriteBytes != got.WriteBytes {
			t.Errorf("%s: %+v, and %+v", what, x, got)
		}
	}
	same("the memory node", s.Stats().ByCPU)
	remoteOf(n, 0).End()
	same("afterwards", n.LocalCounters())
	peertest.Await(t, "the leave has ended", func() bool { return s.Stats().Local == 0 })
	same("the memory node, afterwards", s.Stats().ByCPU)
}

// A tally of a Port's own goes to another when the Port is closed.
func TestLocalTallyOfAnother(t *testing.T) {
	c := newLocalCluster(t, 1)
	defer c.Close()
	n := c.Nodes[0]
	of := map[int]*port{}
	for range 2 * ownTallies {
		p, err := n.Open()
		if err != nil {
			t.Fatal(err)
		}
		x := p.(*port)
		if x.tally >= ownTallies {
			if len(of) < ownTallies/2 {
				t.Fatalf("%d Ports have a tally of their own", len(of))
			}
			y := of[5]
			if y == nil {
				t.Fatal("nobody has tally 5")
			}
			if err := y.Close(); err != nil {
				t.Fatal(err)
			}
			if q := peertest.Open(t, n).(*port); q.tally != 5 {
				t.Errorf("the next Port has tally %d", q.tally)
			}
			return
		}
		if of[x.tally] != nil {
			t.Fatalf("two Ports have tally %d", x.tally)
		}
		of[x.tally] = x
	}
	t.Errorf("%d Ports have a tally of their own", len(of))
}

// A memory node of an earlier release shares no tallies: its memory is used all the same.
func TestLocalWithoutTallies(t *testing.T) {
	f, err := newShared("test", controlSize)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c, err := openControl(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	c.count(0, []fabric.Op{fabric.FAA(peertest.Word, 1)})
	if got := c.counted(); got != (tally{}) {
		t.Error(got)
	}
}

// A compute node says of each memory node whether it executes operations there itself, and if not, why.
func TestLocalWays(t *testing.T) {
	c := newTestCluster(t)
	defer c.Close()
	for i := range 2 {
		c.change = func(o *Options) { o.Local = i == 0 }
		c.Serve(fabric.MemID(i), 1<<20)
	}
	c.change = lends
	n := c.Join()
	peertest.Do(t, peertest.Open(t, n), fabric.FAA(fabric.At(0, 64), 1))
	want := func(n *node, whys ...string) {
		t.Helper()
		list := n.Ways()
		if len(list) != len(whys) {
			t.Fatalf("%+v", list)
		}
		for i, w := range list {
			if w.Memory != fabric.MemID(i) || w.Local != (whys[i] == "") || (w.Chains > 0) != w.Local || !strings.Contains(w.Why, whys[i]) {
				t.Errorf("%+v, want a reason like %q", w, whys[i])
			}
		}
	}
	want(n, "", "it does not lend")
	remoteOf(n, 0).short.lose(nil)
	want(n, "it has taken its memory back", "it does not lend")
	c.change = nil
	want(c.Join(), "without --local", "without --local")
}
