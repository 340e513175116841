package sherman_test

import (
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/cas"
	"github.com/declock/declock/lab/locks/sherman"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/lock/locktest"
)

// join returns how a node gets locks over cas with a bound of handovers.
func join(t testing.TB, cfg cas.Config, bound uint32) locktest.Join[*sherman.Locker] {
	return func(fabric.Node) (func(fabric.Port) *sherman.Locker, locktest.Agent) {
		table := newTable(t, bound)
		return func(p fabric.Port) *sherman.Locker { return sherman.New(table, cas.New(p, cfg)) }, nil
	}
}

func newTable(t testing.TB, bound uint32) *sherman.Table {
	t.Helper()
	table := sherman.NewTable(bound)
	table.Handoffs = true
	return table
}

func TestConformance(t *testing.T) {
	for name, v := range map[string]struct {
		cfg   cas.Config
		bound uint32
	}{
		"default":      {cas.Config{}, sherman.DefaultBound},
		"plain":        {cas.Config{Plain: true}, sherman.DefaultBound},
		"no handover":  {cas.Config{}, 0},
		"one handover": {cas.Config{}, 1},
		"backoff":      {cas.Config{BackoffMinNs: 500, BackoffMaxNs: 20_000}, 100},
	} {
		m := locktest.Mechanism{Layout: v.cfg.Layout(), NoTokens: v.cfg.Plain, Handoffs: v.bound > 1, Start: join(t, v.cfg, v.bound).Start, FreeOps: [2]uint64{2, 1},
			Corrupt: []byte{7: 0xff}}
		if v.cfg.Plain {
			m.FreeOps[0] = 1
		}
		t.Run(name, func(t *testing.T) { locktest.Form(t, 2, m, name == "default") })
	}
}

// A node hands the lock over within itself as often as the bound says, while another
// node waits, and not more often; one client spins for all of a node.
func TestBoundOfHandovers(t *testing.T) {
	for _, bound := range []uint32{0, 1, 4} {
		c := sim.New(sim.Config{Seed: 1})
		a := fabric.At(c.AddMN(1<<20), 4096)
		longest, streak, last, total := 0, 0, fabric.CNID(0), 0
		var tables []*sherman.Table
		for range 2 {
			n, table := c.AddCN(), newTable(t, bound)
			for i := range 6 {
				c.Go(n, fmt.Sprint(n, i), func(p fabric.Port) {
					k := sherman.New(table, cas.New(p, cas.Config{}))
					var h lock.Hold
					for range 30 {
						if err := k.Acquire(&h, &lock.Request{Lock: a, Mode: lock.Exclusive}); err != nil {
							t.Error(err)
							return
						}
						if streak++; n.ID() != last {
							streak, last = 1, n.ID()
						}
						longest = max(longest, streak)
						total++
						_ = p.Pause(p.Now() + 2*fabric.Microsecond)
						if err := k.Release(&h, nil); err != nil {
							t.Error(err)
						}
					}
				})
			}
			tables = append(tables, table)
		}
		if err := c.Run(); err != nil {
			t.Fatal(err)
		}
		for _, table := range tables {
			if n := table.Len(); n != 0 {
				t.Errorf("%d local locks are left", n)
			}
		}
		if total != 360 || c.PeekWord(a) != 0 {
			t.Errorf("bound %d: %d grants, word %#x", bound, total, c.PeekWord(a))
		}
		// A node that has just given the lock up may win it again, so its streak may be longer by luck;
		// but not for ever.
		if longest < int(bound)+1 {
			t.Errorf("bound %d: at most %d grants in a row within a node", bound, longest)
		}
		c.Close()
	}
}

// Writers of one tenure have growing tokens, and readers after them none that is smaller.
func TestTokensWithinANode(t *testing.T) {
	c := sim.New(sim.Config{NIC: sim.Ideal()})
	defer c.Close()
	a := fabric.At(c.AddMN(1<<20), 4096)
	n, table := c.AddCN(), newTable(t, sherman.DefaultBound)
	var tokens []lock.Token
	for i := range 8 {
		mode := lock.Exclusive
		if i == 7 {
			mode = lock.Shared
		}
		c.Go(n, fmt.Sprint(i), func(p fabric.Port) {
			k := sherman.New(table, cas.New(p, cas.Config{}))
			_ = p.Pause(fabric.Time(i) * 100)
			var h lock.Hold
			if err := k.Acquire(&h, &lock.Request{Lock: a, Mode: mode}); err != nil {
				t.Error(err)
			}
			tokens = append(tokens, h.Token)
			if err := k.Release(&h, nil); err != nil {
				t.Error(err)
			}
		})
	}
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	for i := 1; i < len(tokens); i++ {
		if tokens[i] <= tokens[i-1] {
			t.Errorf("tokens %#x", tokens)
		}
	}
	if len(tokens) != 8 || tokens[0] != 1<<16 || tokens[4] != 1<<16+4 || tokens[5] != 2<<16 {
		t.Errorf("tokens %#x: want 5 of the first tenure", tokens)
	}
}
