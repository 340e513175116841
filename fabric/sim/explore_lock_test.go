package sim_test

import (
	"fmt"
	"testing"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/hier"
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
}

// holders is the oracle of exclusion and of tokens.
type holders struct {
	c       *sim.Cluster
	in      map[string]lock.Mode
	readers int
	writers int
	token   lock.Token
}

func (o *holders) enter(h *lock.Hold) {
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

func (o *holders) leave(h *lock.Hold) {
	if h.Mode == lock.Exclusive {
		o.writers--
	} else {
		o.readers--
	}
}

func (o *holders) hash() uint64 {
	return uint64(o.readers)<<8 | uint64(o.writers) | uint64(o.token)<<16
}

func (l locking) build(c *sim.Cluster) {
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
	for i, f := range splitClients(l.clients) {
		for len(nodes) < f.cn {
			n, t, k := c.AddCN(), hier.NewTable(policy), new(timesync.Clock)
			a := hier.NewAgent(t, n, k, cfg, hier.SyncConfig{})
			c.GoAgent(n, func(fabric.Port) { a.Run(func(err error) { c.Fail(err) }) })
			nodes, tables, clocks, agents = append(nodes, n), append(tables, t), append(clocks, k), append(agents, a)
		}
		n := nodes[f.cn-1]
		c.Go(n, fmt.Sprintf("%d.%d %v", f.cn, i+1, f.mode), func(p fabric.Port) {
			k := hier.New(tables[f.cn-1], p, n, clocks[f.cn-1], cfg)
			l.client(o, k, at, data, f.mode)
		})
	}
	c.AtEnd(func() error {
		h := cql.Header(c.PeekWord(at))
		if l.layout.Size(h) != 0 || l.layout.Writers(h) != 0 || h.ResetID() != 0 {
			return fmt.Errorf("the lock is not free: %s", l.layout.FormatHeader(h))
		}
		for i, t := range tables {
			if t.Len() != 0 {
				return fmt.Errorf("cn%d has %d local locks left", i+1, t.Len())
			}
			if led := agents[i].Resets().Led; led > 0 && !l.resets {
				return fmt.Errorf("cn%d has led %d resets", i+1, led)
			}
		}
		return nil
	})
}

func (l locking) client(o *holders, k *hier.Locker, at, data fabric.Addr, m lock.Mode) {
	var h lock.Hold
	op := make([]fabric.Op, 1)
	for range l.rounds {
		if err := k.Acquire(&h, &lock.Request{Lock: at, Mode: m}); err != nil {
			panic(err)
		}
		o.enter(&h)
		if op[0] = fabric.Load(data); m == lock.Exclusive {
			op[0] = fabric.Store(data, uint64(h.Token))
		}
		if err := k.Port().Do(op); err != nil {
			panic(err)
		}
		o.leave(&h)
		if err := k.Release(&h, nil); err != nil {
			panic(err)
		}
	}
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

func TestExploreLocks(t *testing.T) {
	for _, policy := range []string{"cql", "declock-tf"} {
		for _, clients := range []string{"1s 2s", "1s 2x", "1x 2x", "1s 2s 3s", "1s 2s 3x", "1s 2x 3x", "1x 2x 3x"} {
			l := locking{policy: policy, layout: cql.Layout{CapacityBits: 3, VersionBits: 16}, clients: clients, rounds: 1}
			r := sim.Explore(sim.ExploreConfig{FairPolls: true}, l.build)
			t.Logf("%s %s: %v", policy, clients, r)
			if r.Failure != nil {
				t.Fail()
			}
		}
	}
}
