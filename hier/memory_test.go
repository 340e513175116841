package hier

import (
	"errors"
	"testing"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/timesync"
)

// alone runs a client of a one-node cluster, with its agent.
func alone(t *testing.T, policy string, body func(k *Locker, l func(i int) fabric.Addr)) *Table {
	t.Helper()
	c := sim.New(sim.Config{Seed: 1})
	defer c.Close()
	mn := c.AddMN(1 << 32)
	n := c.AddCN()
	p, err := ParsePolicy(policy)
	if err != nil {
		t.Fatal(err)
	}
	table, clock := NewTable(p), new(timesync.Clock)
	cfg := Config{Layout: cql.Layout{CapacityBits: 3, VersionBits: 16}}
	a := NewAgent(table, n, clock, cfg, SyncConfig{})
	c.GoAgent(n, func(fabric.Port) { _ = a.Run(nil) })
	c.Go(n, "client", func(p fabric.Port) {
		body(New(table, p, n, clock, cfg), func(i int) fabric.Addr { return fabric.At(mn, 4096+uint64(i)*72) })
	})
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	return table
}

// footprint returns the number of hash buckets and spare local locks: what an idle table costs.
func (t *Table) footprint() (buckets, spare int) {
	for i := range t.shards {
		s := &t.shards[i]
		buckets += len(s.buckets)
		spare += s.spare
	}
	return buckets, spare
}

// A local lock exists while a client of the node holds or wants the lock; an idle
// lock costs the node nothing: after 30,000 locks were held at once, the table is
// as small as it was.
func TestIdleTableCostsNothing(t *testing.T) {
	const locks = 30_000
	table := alone(t, "declock-tf", func(k *Locker, l func(int) fabric.Addr) {
		fresh, _ := k.table.footprint()
		holds := make([]lock.Hold, locks)
		for i := range holds {
			if err := k.Acquire(&holds[i], &lock.Request{Lock: l(i), Mode: lock.Exclusive}); err != nil {
				t.Fatal(err)
			}
		}
		if n := k.table.Len(); n != locks {
			t.Errorf("%d local locks, want %d", n, locks)
		}
		full, _ := k.table.footprint()
		if full < locks/4 {
			t.Errorf("%d buckets for %d locks: long chains", full, locks)
		}
		for i := range holds {
			if err := k.Release(&holds[i], nil); err != nil {
				t.Fatal(err)
			}
		}
		buckets, spare := k.table.footprint()
		t.Logf("%d buckets fresh, %d full, %d after; %d spare local locks", fresh, full, buckets, spare)
		if buckets > 2*fresh || spare > maxFree<<shardBits {
			t.Errorf("idle table has %d buckets (%d when fresh) and %d spare local locks", buckets, fresh, spare)
		}
	})
	if table.Len() != 0 {
		t.Errorf("%d local locks left", table.Len())
	}
}

// The table finds every lock it has, while it grows and shrinks.
func TestTableResize(t *testing.T) {
	table := NewTable(Policy{Kind: ByTime})
	const n = 20_000
	at := func(i int) fabric.Addr { return fabric.At(fabric.MemID(i%3), uint64(i)*8) }
	insert := func(i int) {
		h := hash(at(i))
		table.shard(h).insert(at(i), h, lock.Shared, 1)
	}
	for i := range n {
		insert(i)
	}
	for gone := 0; gone < n; gone += n / 8 {
		for i := range n {
			h := hash(at(i))
			x := table.shard(h).find(at(i), h)
			if (x != nil) != (i >= gone) {
				t.Fatalf("after %d are gone: lock %d found: %v", gone, i, x != nil)
			}
			if i >= gone && i < gone+n/8 {
				table.shard(h).remove(x)
			}
		}
	}
	if table.Len() != 0 {
		t.Errorf("%d left", table.Len())
	}
	// Locks of one array spread over shards and buckets.
	for i := range n {
		insert(i)
	}
	for i := range table.shards {
		if c := table.shards[i].count; c < n>>shardBits/2 || c > n>>shardBits*2 {
			t.Errorf("shard %d has %d of %d locks", i, c, n)
		}
	}
}

// An uncontended acquire and release allocates nothing; nor does one with data.
func TestNoAllocations(t *testing.T) {
	for _, policy := range []string{"cql", "declock-tf", "declock-pf", "local-bound"} {
		alone(t, policy, func(k *Locker, l func(int) fabric.Addr) {
			buf := k.Port().Alloc(64)
			reads := []fabric.Op{fabric.Read(l(1000), buf)}
			writes := []fabric.Op{fabric.Write(l(1000), buf)}
			var h lock.Hold
			for name, f := range map[string]func() error{
				"exclusive": func() error {
					if err := k.Acquire(&h, &lock.Request{Lock: l(1), Mode: lock.Exclusive}); err != nil {
						return err
					}
					return k.Release(&h, nil)
				},
				"shared": func() error {
					if err := k.Acquire(&h, &lock.Request{Lock: l(2), Mode: lock.Shared}); err != nil {
						return err
					}
					return k.Release(&h, nil)
				},
				"with data": func() error {
					if err := k.Acquire(&h, &lock.Request{Lock: l(3), Mode: lock.Exclusive, Reads: reads}); err != nil {
						return err
					}
					return k.Release(&h, writes)
				},
				"try": func() error {
					if err := k.Acquire(&h, &lock.Request{Lock: l(4), Mode: lock.Exclusive, Try: true}); err != nil {
						return err
					}
					return k.Release(&h, nil)
				},
			} {
				for range 100 { // what the simulator keeps
					if err := f(); err != nil {
						t.Fatal(err)
					}
				}
				if n := testing.AllocsPerRun(500, func() {
					if err := f(); err != nil {
						t.Fatal(err)
					}
				}); n != 0 {
					t.Errorf("%s, %s: %v allocations", policy, name, n)
				}
			}
		})
	}
}

// At most two operations to acquire, one if no client contends (section 4, overview).
func TestOperationsPerAcquire(t *testing.T) {
	alone(t, "declock-tf", func(k *Locker, l func(int) fabric.Addr) {
		var h lock.Hold
		for i := range 100 {
			before := k.Port().Stats().Total()
			if err := k.Acquire(&h, &lock.Request{Lock: l(i), Mode: lock.Mode(i % 2)}); err != nil {
				t.Fatal(err)
			}
			if n := k.Port().Stats().Total() - before; n != 1 {
				t.Fatalf("%d operations to acquire a free lock", n)
			}
			if err := k.Release(&h, nil); err != nil {
				t.Fatal(err)
			}
		}
		if s := k.Stats(); s.AcquireOps != 100 || s.Acquires != 100 || s.Immediate != 100 || s.Waits != 0 {
			t.Errorf("%+v", *s)
		}
	})
}

// A compute node goes on with 255 memories after the first that it has known. The 256th would have the addresses of the first.
func TestAddressesOfTheFirstMemoryAreNeverBelieved(t *testing.T) {
	alone(t, "declock", func(k *Locker, _ func(int) fabric.Addr) {
		const mn, first = 7, 3
		k.table.Knows(fabric.Memory{ID: mn, Epoch: first + 1}, first, 0)
		for _, c := range []struct {
			generation uint32
			want       error
		}{{first + 255, nil}, {first + 256, lock.ErrMemoryLost}, {first + 257, lock.ErrMemoryLost}, {cql.MaxGeneration + 1, lock.ErrExhausted}} {
			k.cfg.Verify = func(fabric.MemID) (uint32, error) { return c.generation, nil }
			if err := k.verify(fabric.Memory{ID: mn, Epoch: c.generation + 1}, k.table.incarnationOf(mn, c.generation+1, 0)); !errors.Is(err, c.want) {
				t.Errorf("memory %d after %d: %v, want %v", c.generation, first, err, c.want)
			}
		}
	})
}
