//go:build cgo && !shmonly

package verbs

import (
	"errors"
	"slices"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/fabrictest"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lab/locks"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/lock/locktest"
)

// clockWord is the word of clock synchronisation, below the locks of locktest.
var clockWord = fabric.At(0, 64)

// lease is for how long locks with leases may be held: a guest that waits for a processor stands still.
// drtm's is short: its writers wait until the leases of readers have ended.
const (
	lease      = 5 * fabric.Second
	shortLease = 100 * fabric.Millisecond
)

// never is the interval of clock synchronisation where operations are counted.
const never fabric.Time = -1

// setUp sets a registered lock up for a cluster.
func setUp(t testing.TB, name string, cns, clients int, sync fabric.Time) *locks.System {
	t.Helper()
	leaseNs := lease
	if name == "drtm" { // a reader of drtm:half has half of a lease at least
		name, leaseNs = "drtm:half", shortLease
	}
	m, err := locks.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	c := locks.Config{CNs: cns, Clients: clients, Counter: clockWord, SyncIntervalNs: sync, Tokens: true, LeaseNs: leaseNs}
	sys, err := m.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return sys
}

// A lockSession is a lock at work on a cluster: locktest.Session.
type lockSession struct {
	t      testing.TB
	nodes  []*locks.Node
	agents []fabric.Port
}

func startLocks(t testing.TB, sys *locks.System, cl fabrictest.Cluster, nodes int) *lockSession {
	s := &lockSession{t: t}
	for i := range nodes {
		n, err := sys.Join(cl.Node(i))
		if err != nil {
			t.Fatal(err)
		}
		s.nodes = append(s.nodes, n)
		if n.Run != nil {
			s.agents = append(s.agents, cl.Node(i).Agent())
			cl.Go(cl.Node(i).Agent(), func(fabric.Port) {
				if err := n.Run(func(err error) { t.Errorf("agent: %v", err) }); err != nil {
					t.Errorf("agent: %v", err)
				}
			})
		}
	}
	return s
}

func (s *lockSession) Locker(node int, p fabric.Port) lock.Locker {
	return s.nodes[node].Locker(p)
}

// Stop interrupts the agents: their Run ends.
func (s *lockSession) Stop() {
	for _, p := range s.agents {
		p.Interrupt()
	}
}

// runnable lists the registered locks that the device can run, and checks that what it cannot run
// says so.
func runnable(t *testing.T) (names []string) {
	c := cluster(t, 1<<20, 1)
	for _, m := range locks.All() {
		err := m.Needs.Check(c.Node(0).Caps())
		_, joining := setUp(t, m.Name, 1, 1, 0).Join(c.Node(0))
		switch {
		case err == nil && joining == nil:
			names = append(names, m.Name)
		case !errors.Is(joining, fabric.ErrUnsupported):
			t.Errorf("%s needs more than the device has, and says %v", m.Name, joining)
		}
	}
	return names
}

// alike are locks that differ from another one only in whom they choose, or for how long they pause: what a device does to them, it does to
// that one.
var alike = []string{"cas-backoff", "dslr", "dslr+-overflow", "sherman+notes", "rpc", "server-ro", "alock", "declock-tf", "declock-pf", "paper-tf", "paper-pf",
	"remote-prefer", "local-prefer", "local-bound"}

// tested lists what runnable does; with -short without what is like another one.
func tested(t *testing.T) []string {
	names := runnable(t)
	if testing.Short() {
		names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(alike, name) })
	}
	return names
}

// Every lock that the device can run does over RDMA what it does in the simulator and on shared memory.
func TestLocks(t *testing.T) {
	for _, name := range tested(t) {
		t.Run(name, func(t *testing.T) {
			sys := setUp(t, name, 3, 8, 0)
			m, err := locks.Lookup(name)
			if err != nil {
				t.Fatal(err)
			}
			locktest.Run(t, &reused{t: t}, locktest.Mechanism{Layout: sys.Layout(), ExclusiveOnly: m.Exclusive, Lasts: name == "drtm",
				Start: func(t testing.TB, cl fabrictest.Cluster, nodes int) locktest.Session {
					return startLocks(t, sys, cl, nodes)
				}})
		})
	}
}

// A cost is what a step of a client's work costs.
type cost struct {
	Chains uint64
	Ops    [fabric.OpFAA + 1]uint64 // by kind
}

// steps are the work of TestCounts, over and over.
var steps = []struct {
	name string
	do   func(k lock.Locker, h *lock.Hold, r *lock.Request) error
}{
	{"acquire exclusive", func(k lock.Locker, h *lock.Hold, r *lock.Request) error {
		r.Mode = lock.Exclusive
		return k.Acquire(h, r)
	}},
	{"release exclusive", func(k lock.Locker, h *lock.Hold, _ *lock.Request) error { return k.Release(h, nil) }},
	{"acquire shared", func(k lock.Locker, h *lock.Hold, r *lock.Request) error { r.Mode = lock.Shared; return k.Acquire(h, r) }},
	{"release shared", func(k lock.Locker, h *lock.Hold, _ *lock.Request) error { return k.Release(h, nil) }},
	{"acquire and read", func(k lock.Locker, h *lock.Hold, r *lock.Request) error {
		x := *r
		x.Mode, x.Reads = lock.Exclusive, []fabric.Op{fabric.Load(fabric.At(0, 1<<19))}
		return k.Acquire(h, &x)
	}},
	{"write and release", func(k lock.Locker, h *lock.Hold, _ *lock.Request) error {
		return k.Release(h, []fabric.Op{fabric.Store(fabric.At(0, 1<<19), 1)})
	}},
}

// countLocks lets one client do steps with several locks, one after the other, and returns the cost of each
// step. boundary returns what has gone to the device so far, by the same measure; nil if there is none.
func countLocks(t *testing.T, sys *locks.System, cl fabrictest.Cluster, boundary func() cost) (all []cost) {
	defer cl.Close()
	s := startLocks(t, sys, cl, 1)
	p, err := cl.Node(0).Open()
	if err != nil {
		t.Fatal(err)
	}
	step := (sys.Layout().Size + 63) &^ 63
	cl.Go(p, func(p fabric.Port) {
		defer s.Stop()
		k := s.Locker(0, p)
		var h lock.Hold
		for i := range uint64(8) {
			for _, x := range steps {
				r := lock.Request{Lock: fabric.At(0, 4096+i%4*step), Deadline: p.Now() + 10*fabric.Second}
				before, posted := costOf(p), cost{}
				if boundary != nil {
					posted = boundary()
				}
				if err := x.do(k, &h, &r); err != nil {
					t.Errorf("%s: %v", x.name, err)
					return
				}
				spent := costOf(p).since(before)
				all = append(all, spent)
				if boundary == nil {
					continue
				}
				if got := boundary().since(posted); got != spent {
					t.Errorf("%s: %+v have gone to the device, and the port has counted %+v", x.name, got, spent)
				}
			}
		}
	})
	cl.Wait()
	return all
}

func costOf(p fabric.Port) cost {
	s := p.Stats()
	return cost{s.Chains, [fabric.OpFAA + 1]uint64(s.Ops[:fabric.OpFAA+1])}
}

func (c cost) since(before cost) cost {
	c.Chains -= before.Chains
	for i := range c.Ops {
		c.Ops[i] -= before.Ops[i]
	}
	return c
}

// posted returns what a compute node has posted to memory nodes: doorbells, and work requests.
func posted(n *node) (c cost) {
	for r := range n.Remotes {
		for _, l := range lanesOf(r).lanes {
			l.mu.Lock()
			c.Chains += l.doorbells
			for kind, count := range l.posted {
				c.Ops[kind] += count
			}
			l.mu.Unlock()
		}
	}
	return c
}

// ownChains are locks of which a step is not always one chain, and why.
var ownChains = map[string]string{
	"ncosed":    "a shared release is a message to the home agent",
	"rpc":       "all is messages",
	"server":    "all is messages",
	"server-ro": "all is messages",
	"parlock":   "all is messages",
	"fiss":      "all is messages",
	"netlock":   "all is messages",
	"qplock":    "the swap of the tail is a CAS that is tried again, and Peterson's two words come after it",
	"alock":     "the swap of the tail is a CAS that is tried again, and Peterson's two words come after it",
}

// A lock costs the same over RDMA as in the simulator, operation for operation and chain for chain; what a client counts is
// what goes to the device, a chain with one doorbell, an operation as one work request; and
// where no other client is, all is done with one chain, and DecLock's acquire with one operation.
func TestCounts(t *testing.T) {
	for _, name := range runnable(t) {
		t.Run(name, func(t *testing.T) {
			if name == "drtm" {
				t.Skip("how often a writer tries until a reader's lease has ended depends on time")
			}
			sys := setUp(t, name, 1, 2, never)
			want := countLocks(t, sys, locktest.Sim(1).Start(t, fabrictest.Config{Mem: []uint64{1 << 20}, CNs: 1}), nil)
			c := harness{}.Start(t, fabrictest.Config{Mem: []uint64{1 << 20}, CNs: 1}).(*testCluster)
			got := countLocks(t, sys, c, func() cost { return posted(c.Nodes[0]) })
			_, flat := hier.ParsePolicy(name)
			for i := range got {
				x := steps[i%len(steps)].name
				if i >= len(want) || got[i] != want[i] {
					t.Errorf("%s: %+v, in the simulator %+v", x, got[i], want[i])
				}
				if _, own := ownChains[name]; !own && got[i].Chains != 1 {
					t.Errorf("%s: %d chains", x, got[i].Chains)
				}
				if flat == nil && i%len(steps) == 0 && got[i].Ops != [fabric.OpFAA + 1]uint64{fabric.OpFAA: 1} {
					t.Errorf("%s: %+v", x, got[i])
				}
			}
		})
	}
}
