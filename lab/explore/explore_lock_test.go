package explore_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lab/explore"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/timesync"
)

// A locking is a program: clients on compute nodes acquire and release one lock, some times each.
type locking struct {
	policy  string
	layout  cql.Layout
	clients string // "1x 1s 2x": client of cn1, exclusive; of cn1, shared; of cn2, exclusive
	rounds  int
	wait    cql.Config
	// Resets may happen (tiny layouts, crashes); otherwise each is a failure.
	resets bool
	crash  bool // one node may be killed, anywhere
	cancel bool // one client may be interrupted, anywhere
	led    *int // counts resets, over all schedules
	cheat  bool // shared grants are taken for exclusive ones
}

// holders is the oracle of exclusion and of tokens.
type holders struct {
	c       *explore.Cluster
	of      [10][2]int // by node and mode
	readers int
	writers int
	token   lock.Token
}

func (o *holders) enter(cn int, h *lock.Hold) {
	o.of[cn][h.Mode]++
	if o.writers > 0 || h.Mode == lock.Exclusive && o.readers > 0 {
		o.c.Fail(fmt.Errorf("%v beside %d readers and %d writers", h.Mode, o.readers, o.writers))
	}
	if h.Token < o.token || h.Mode == lock.Exclusive && h.Token == o.token {
		o.c.Fail(fmt.Errorf("token %#x after %#x", h.Token, o.token))
	}
	if h.Mode == lock.Exclusive {
		o.writers++
		o.token = h.Token
	} else {
		o.readers++
	}
}

func (o *holders) leave(cn int, h *lock.Hold) {
	o.of[cn][h.Mode]--
	if h.Mode == lock.Exclusive {
		o.writers--
	} else {
		o.readers--
	}
}

func (o *holders) hash() uint64 {
	return uint64(o.readers)<<8 | uint64(o.writers) | uint64(o.token)<<24 | uint64(o.of[1][0]<<16|o.of[1][1]<<20)
}

func (l locking) build(c *explore.Cluster) {
	policy, err := hier.ParsePolicy(l.policy)
	if err != nil {
		panic(err)
	}
	if l.wait.RecheckNs == 0 {
		l.wait = cql.Config{RecheckNs: fabric.Forever / 2, ResetAfterNs: fabric.Forever / 2}
	}
	cfg := hier.Config{Layout: l.layout, CQL: l.wait}
	mn := c.AddMN(4096)
	at, data := fabric.At(mn, 1024), fabric.At(mn, 64)
	var nodes []*sim.Node
	var tables []*hier.Table
	var clocks []*timesync.Clock
	var agents []*hier.Agent
	o := &holders{c: c}
	c.HashWith(o.hash)
	crashed := make([]bool, 10)
	for i, f := range splitClients(l.clients) {
		for len(nodes) < f.cn {
			n, t, k := c.AddCN(), hier.NewTable(policy), new(timesync.Clock)
			a := hier.NewAgent(t, n, k, cfg, hier.SyncConfig{})
			c.GoAgent(n, func(fabric.Port) { a.Run(func(err error) { c.Fail(err) }) })
			nodes, tables, clocks, agents = append(nodes, n), append(tables, t), append(clocks, k), append(agents, a)
		}
		n := nodes[f.cn-1]
		c.Go(n, fmt.Sprintf("%d.%d %v", f.cn, i+1, f.mode), func(p fabric.Port) {
			if l.cancel && i == 0 {
				c.Sometime("interrupt "+p.ID().String(), n, p.Interrupt)
			}
			k := hier.New(tables[f.cn-1], p, n, clocks[f.cn-1], cfg)
			l.client(o, f.cn, k, at, data, f.mode, func(v uint64) {
				if tables[f.cn-1].Len() == 0 {
					c.Forget(v)
				}
			})
		})
	}
	if l.crash {
		n := nodes[0]
		c.Sometime("kill "+n.String(), nil, func() {
			crashed[0] = true
			c.Kill(n)
			o.readers -= o.of[1][lock.Shared]
			o.writers -= o.of[1][lock.Exclusive]
		})
	}
	c.HashWith(func() (sum uint64) {
		for i, t := range tables {
			sum = sum*1000 + agents[i].Resets().Led*10 + uint64(t.Len())
		}
		return sum
	})
	c.AtEnd(func() error {
		h := cql.Header(c.PeekWord(at))
		if !crashed[0] && (l.layout.Size(h) != 0 || l.layout.Writers(h) != 0 || h.ResetID() != 0) {
			return fmt.Errorf("the lock is not free: %s", l.layout.FormatHeader(h))
		}
		for i, t := range tables {
			if t.Len() != 0 && !crashed[i] {
				return fmt.Errorf("cn%d has %d local locks left", i+1, t.Len())
			}
			led := agents[i].Resets().Led
			if led > 0 && !l.resets {
				return fmt.Errorf("cn%d has led %d resets", i+1, led)
			}
			if l.led != nil {
				*l.led += int(led)
			}
		}
		return nil
	})
}

func (l locking) client(o *holders, cn int, k *hier.Locker, at, data fabric.Addr, m lock.Mode, forget func(uint64)) {
	var h lock.Hold
	op := make([]fabric.Op, 1)
	for i := range l.rounds {
		forget(uint64(i))
		mode := m
		if l.cheat {
			mode = lock.Shared
		}
		err := k.Acquire(&h, &lock.Request{Lock: at, Mode: mode})
		if l.cancel && errors.Is(err, lock.ErrCanceled) {
			k.Port().ClearInterrupt()
			continue
		}
		if err != nil {
			panic(err)
		}
		held := h
		held.Mode = m
		o.enter(cn, &held)
		if op[0] = fabric.Load(data); m == lock.Exclusive {
			op[0] = fabric.Store(data, uint64(h.Token))
		}
		if err := k.Port().Do(op); err != nil {
			panic(err)
		}
		o.leave(cn, &held)
		if err := k.Release(&h, nil); err != nil {
			panic(err)
		}
	}
	forget(uint64(l.rounds))
}

type clientSpec struct {
	cn   int
	mode lock.Mode
}

func splitClients(text string) (list []clientSpec) {
	for i := 0; i+1 < len(text); i += 3 {
		m := lock.Shared
		if text[i+1] == 'x' {
			m = lock.Exclusive
		}
		list = append(list, clientSpec{int(text[i] - '0'), m})
	}
	return list
}

// explored explores a program, logs what was covered, and fails the test unless that was all and nothing failed.
func explored(t *testing.T, l locking, cfg explore.Config) {
	t.Helper()
	cfg.FairPolls = true
	cfg.MaxWall = 30 * time.Second
	r := explore.Explore(cfg, l.build)
	t.Logf("%s %s: %v", l.policy, l.clients, r)
	if !r.Exhaustive {
		t.Fail()
	}
}

var (
	wide = cql.Layout{CapacityBits: 3, VersionBits: 16}
	tiny = cql.Layout{CapacityBits: 1, VersionBits: 2} // versions wear out after 4 acquisitions
	over = cql.Layout{CapacityBits: 1, VersionBits: 3} // three clients are too many
)

// Two and three clients in all mode mixes, on as many nodes, and on fewer.
func TestExploreLocks(t *testing.T) {
	for _, policy := range []string{"cql", "declock-tf"} {
		for _, clients := range []string{"1s 2s", "1s 2x", "1x 2x", "1s 2s 3s", "1s 2s 3x", "1s 2x 3x", "1x 2x 3x", "1s 1x", "1x 1x"} {
			explored(t, locking{policy: policy, layout: wide, clients: clients, rounds: 1}, explore.Config{Private: policy == "cql"})
		}
	}
	explored(t, locking{policy: "declock-pf", layout: wide, clients: "1x 1s 2x", rounds: 1}, explore.Config{})
}

// Versions that wear out and queues that overflow: locks are reset, and go on.
func TestExploreResets(t *testing.T) {
	for _, l := range []locking{
		{policy: "cql", layout: tiny, clients: "1x 2x", rounds: 3},
		{policy: "declock-tf", layout: tiny, clients: "1s 2x", rounds: 3},
		{policy: "declock-tf", layout: over, clients: "1x 2s 3x", rounds: 1},
	} {
		led := 0
		l.resets, l.led = true, &led
		// With agents at work the schedules are many: few switches, and as far as it goes.
		r := explore.Explore(explore.Config{FairPolls: true, MaxSwitches: 3, MaxSchedules: 3000}, l.build)
		if t.Logf("%s %s: %d resets, %v", l.policy, l.clients, led, r); r.Failure != nil || led == 0 {
			t.Fail()
		}
	}
}

// One cancellation at every wait point.
func TestExploreCancellations(t *testing.T) {
	for _, clients := range []string{"1x 2x", "1s 2x", "1x 2s"} {
		explored(t, locking{policy: "declock-tf", layout: wide, clients: clients, rounds: 2, cancel: true}, explore.Config{Actions: 1})
	}
}

// One crash at every boundary.
func TestExploreCrashes(t *testing.T) {
	fast := cql.Config{RecheckNs: 100 * fabric.Microsecond, ResetAfterNs: fabric.Millisecond}
	for _, clients := range []string{"1x 2x", "1s 2x", "1x 2s"} {
		explored(t, locking{policy: "declock-tf", layout: wide, clients: clients, rounds: 1, crash: true, resets: true, wait: fast}, explore.Config{Actions: 1})
	}
}

// WRITEs and READs that tear into words.
func TestExploreTearing(t *testing.T) {
	explored(t, locking{policy: "cql", layout: wide, clients: "1x 2x", rounds: 1}, explore.Config{Sim: sim.Config{Tear: sim.Tear{Prob: 1, Grain: 8}}})
}

// What exploration finds when something is wrong: clients that enter without the lock.
func TestExploreCatchesAClientWithoutLock(t *testing.T) {
	l := locking{policy: "declock-tf", layout: wide, clients: "1x 2x", rounds: 1, cheat: true}
	cfg := explore.Config{FairPolls: true}
	r := explore.Explore(cfg, l.build)
	if r.Failure == nil {
		t.Fatal(r)
	}
	if o := explore.Replay(cfg, r.Failure.Schedule, l.build); o.Err == nil || o.Err.Error() != r.Failure.Err.Error() {
		t.Errorf("replayed: %v; found: %v", o.Err, r.Failure.Err)
	}
}
