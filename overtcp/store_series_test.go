package overtcp_test

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

var (
	storeFaults    = flag.Int("store-faults", 3, "how many faults TestStoreSeries draws")
	storePause     = flag.Duration("store-pause", 6*time.Millisecond, "the most that a client of a store or tree waits between operations: with less it is at work more often when a fault happens, and takes more of the processors")
	storeFaultSeed = flag.Uint64("store-fault-seed", 1, "the seed from which TestStoreSeries draws them")
	storeFaultOnly = flag.String("store-fault-only", "", "TestStoreSeries has faults only whose name contains this")
)

// A storeFault is something that happens to a cluster under load.
type storeFault struct {
	name    string
	do      func(s *storeSeries, mn, client int)
	mayFail bool // operations: no other copy can be used instead, or their compute node is given up
	cuts    bool // links between hosts
	weight  int
}

// A storeSeries is a cluster to which faults happen.
type storeSeries struct {
	*storeLoad
	rng *rand.Rand
}

func (s *storeSeries) between(from, to time.Duration) time.Duration {
	return from + time.Duration(s.rng.Int64N(int64(to-from)))
}

func (s *storeSeries) signal(mn int, sig syscall.Signal) {
	s.t.Helper()
	if err := s.mns[mn].Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// awaitServed waits until all numbers are served, by other memory nodes than one.
func (s *storeSeries) awaitServed(but int) {
	s.t.Helper()
	s.await("all numbers are served", func(st *member.State) bool {
		return len(st.Groups) == len(s.mns) && !slices.ContainsFunc(st.Groups, func(g *member.Group) bool {
			return !g.Serving || !st.Has(g.Primary()) || int(g.Replicas[0].ID) == but
		})
	})
}

// cutOff keeps a memory node or a compute node from etcd, one way or both, for longer than its lease lasts.
func (s *storeSeries) cutOff(way *heldProxy) {
	both := s.rng.IntN(2) == 0
	way.set(func() { way.held = [2]bool{true, both} })
	time.Sleep(deadAfter + s.between(deadAfter/2, deadAfter))
	way.set(func() { way.held = [2]bool{} })
}

// cut cuts the link between two hosts for some time, one way or both.
func (s *storeSeries) cut(a, b int, for_ time.Duration) {
	switch s.rng.IntN(3) {
	case 0:
		s.hosts.cut(a, b)
	case 1:
		s.hosts.cut(b, a)
	default:
		s.hosts.cut(a, b)
		s.hosts.cut(b, a)
	}
	time.Sleep(for_)
	s.hosts.heal()
}

// storeFaultKinds are what happens. Each round begins with a cluster that is whole: there is one fault at a time.
var storeFaultKinds = []storeFault{
	{name: "killed", weight: 8, do: func(s *storeSeries, mn, _ int) {
		kill(s.t, s.mns[mn])
		s.awaitServed(mn)
	}},
	{name: "killed, and started again under load", weight: 4, do: func(s *storeSeries, mn, _ int) {
		kill(s.t, s.mns[mn])
		time.Sleep(s.between(0, 100*time.Millisecond))
		s.start(fabric.MemID(mn))
		s.awaitServed(-1)
	}},
	{name: "killed after a pause", weight: 2, do: func(s *storeSeries, mn, _ int) {
		s.signal(mn, syscall.SIGSTOP)
		time.Sleep(s.between(time.Millisecond, 200*time.Millisecond))
		kill(s.t, s.mns[mn])
		s.awaitServed(mn)
	}},
	{name: "paused", weight: 2, do: func(s *storeSeries, mn, _ int) {
		for range 3 {
			s.signal(mn, syscall.SIGSTOP)
			time.Sleep(s.between(time.Millisecond, deadAfter/4))
			s.signal(mn, syscall.SIGCONT)
			time.Sleep(s.between(time.Millisecond, 50*time.Millisecond))
		}
	}},
	{name: "stopped for longer than its lease", weight: 1, do: func(s *storeSeries, mn, _ int) {
		s.signal(mn, syscall.SIGSTOP)
		s.awaitServed(mn)
		time.Sleep(s.between(0, 300*time.Millisecond))
		s.signal(mn, syscall.SIGCONT)
		s.awaitServed(-1)
	}},
	{name: "cut off from etcd", weight: 1, do: func(s *storeSeries, mn, _ int) {
		s.cutOff(s.ways[mn])
		s.awaitServed(-1)
	}},
	{name: "a compute node is cut off from etcd", weight: 1, mayFail: true, do: func(s *storeSeries, _, client int) { s.cutOff(s.clientWays[client]) }},
	{name: "link to a compute node cut for a moment", weight: 2, cuts: true, do: func(s *storeSeries, mn, client int) {
		s.cut(mn, len(s.mns)+client, s.between(10*time.Millisecond, deadAfter/2))
	}},
	{name: "link to a compute node cut", weight: 1, cuts: true, mayFail: true, do: func(s *storeSeries, mn, client int) {
		s.cut(mn, len(s.mns)+client, 2*deadAfter)
	}},
	{name: "link between compute nodes cut", weight: 1, cuts: true, do: func(s *storeSeries, _, _ int) {
		s.cut(len(s.mns), len(s.mns)+1, s.between(10*time.Millisecond, 2*deadAfter))
	}},
}

// drawFault draws a fault.
func (s *storeSeries) drawFault() *storeFault {
	var list []*storeFault
	for i := range storeFaultKinds {
		f := &storeFaultKinds[i]
		if strings.Contains(f.name, *storeFaultOnly) && (s.hosts != nil || !f.cuts) {
			list = append(list, slices.Repeat([]*storeFault{f}, f.weight)...)
		}
	}
	return list[s.rng.IntN(len(list))]
}

// A storeTally is what faults of a kind have done.
type storeTally struct {
	rounds, done, failed int
	took                 []time.Duration // the operation that took longest, of each round
}

// Faults happen to a cluster under load, one in each round: memory nodes are killed, each of which is a primary and has backups of others, stopped and continued, cut off from etcd and from
// compute nodes, one way or both. No acknowledged write is lost, none comes twice or in another order, no operation is stuck; and none fails, but where it has to.
func TestStoreSeries(t *testing.T) {
	t.Parallel()
	series(t, false)
}

// The same for trees.
func TestTreeSeries(t *testing.T) {
	t.Parallel()
	series(t, true)
}

func series(t *testing.T, trees bool) {
	silence := ""
	if *storeFaultSeed%2 == 1 {
		silence = "&silent-after=300ms"
	}
	x := newReplicasOn(t, newHosts(t, 3+2), true, silence)
	s := &storeSeries{newStoreLoad(x), rand.New(rand.NewPCG(*storeFaultSeed, 0))}
	s.trees = trees
	tallies := map[string]*storeTally{}
	for round := range *storeFaults {
		f, mn, client := s.drawFault(), s.rng.IntN(len(s.mns)), s.rng.IntN(len(s.workers))
		if st := x.whole(); s.rng.IntN(2) == 0 {
			mn = int(st.Groups[round%len(st.Groups)].Replicas[0].ID) // the primary of a number; others may have none
		}
		s.begin()
		time.Sleep(s.between(0, 100*time.Millisecond))
		f.do(s, mn, client)
		time.Sleep(300 * time.Millisecond)
		before := s.failed
		ops := s.end()
		c := tallies[f.name]
		if c == nil {
			c = &storeTally{}
			tallies[f.name] = c
		}
		longest := slices.MaxFunc(ops, func(a, b storeOp) int { return cmp.Compare(a.Ended-a.Began, b.Ended-b.Began) })
		c.rounds, c.done, c.failed, c.took = c.rounds+1, c.done+len(ops), c.failed+s.failed-before, append(c.took, longest.Ended-longest.Began)
		if s.failed > before && !f.mayFail {
			t.Errorf("round %d, memory node %d, client %d: %s: %d operations have failed", round, mn, client, f.name, s.failed-before)
		}
		if s.mns[mn].ProcessState != nil {
			s.start(fabric.MemID(mn))
		}
	}
	for name, c := range tallies {
		t.Logf("%-40s %4d rounds, %7d operations, %4d failed; the operation that took longest: p50 %v, p99 %v", name, c.rounds, c.done, c.failed, percentile(c.took, 50), percentile(c.took, 99))
	}
}

// clientWay makes the way of a client to etcd, if memory nodes have one, and returns its address.
func (l *storeLoad) clientWay(i int, address string) string {
	if l.ways[0] == nil {
		return address
	}
	w := newHeldProxy(l.t, filepath.Join(l.dir, fmt.Sprintf("clientway%d.sock", i)), l.options.Etcd[0])
	l.clientWays = append(l.clientWays, w)
	return strings.Replace(address, l.options.Etcd[0], w.l.Addr().String(), 1)
}
