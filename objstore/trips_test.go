package objstore

import (
	"fmt"
	"testing"

	"github.com/declock/declock/fabric/sim"
)

// The table in doc.go: chains (round trips) and operations on memory nodes of
// each operation without contention, with lab/locks/cas as Plain (one operation to
// acquire, one to release).
func TestRoundTrips(t *testing.T) {
	for _, x := range []struct {
		name        string
		chains, ops uint64
		warm        bool // the location cache knows the key
		there       bool // the key is there
		f           func(c *Client) error
	}{
		{"get, cached", 1, 3, true, true, func(c *Client) error { _, err := c.Get(b("k")); return err }},
		{"get, not cached", 2, 6, false, true, func(c *Client) error { _, err := c.Get(b("k")); return err }},
		{"get, miss", 1, 1, false, false, func(c *Client) error { _, err := c.Get(b("k")); return ignore(err, ErrNotFound) }},
		{"get, locked, cached", 2, 4, true, true, lockedGet},
		{"get, locked, not cached", 3, 4, false, true, lockedGet},
		{"get, locked, miss", 2, 3, false, false, func(c *Client) error { return ignore(lockedGet(c), ErrNotFound) }},
		{"set, new", 2, 5, false, false, func(c *Client) error { return c.Set(b("k"), b("w"), Options{}) }},
		{"set, overwrite", 2, 6, true, true, func(c *Client) error { return c.Set(b("k"), b("w"), Options{}) }},
		{"set, overwrite, not cached", 3, 6, false, true, func(c *Client) error { return c.Set(b("k"), b("w"), Options{}) }},
		{"add, exists", 2, 4, true, true, func(c *Client) error { return ignore(c.Add(b("k"), b("w"), Options{}), ErrExists) }},
		{"replace", 2, 6, true, true, func(c *Client) error { return c.Replace(b("k"), b("w"), Options{}) }},
		{"cas, changed", 2, 4, true, true, func(c *Client) error {
			return ignore(c.CompareAndSwap(b("k"), b("w"), Options{}, 1), ErrExists)
		}},
		{"append", 2, 6, true, true, func(c *Client) error { return c.Append(b("k"), b("w")) }},
		{"prepend", 2, 6, true, true, func(c *Client) error { return c.Prepend(b("k"), b("w")) }},
		{"incr", 2, 6, true, true, func(c *Client) error { _, err := c.Incr(b("k"), 1); return err }},
		{"delete", 2, 5, true, true, func(c *Client) error { return c.Delete(b("k")) }},
		{"delete, not cached", 3, 6, false, true, func(c *Client) error { return c.Delete(b("k")) }},
		{"delete, miss", 1, 1, false, false, func(c *Client) error { return ignore(c.Delete(b("k")), ErrNotFound) }},
		{"touch", 2, 5, true, true, func(c *Client) error { return c.Touch(b("k"), 100) }},
		{"update, put", 2, 6, true, true, func(c *Client) error { return c.Update(b("k"), putW) }},
		{"update, put, new", 2, 5, false, false, func(c *Client) error { return c.Update(b("k"), putW) }},
		{"update, if found, miss", 1, 1, false, false, func(c *Client) error {
			return ignore(c.Update(b("k"), Update{IfFound: true, Apply: putW.Apply}), ErrNotFound)
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			wantTrips(t, 0, x.warm, x.there, x.f, x.chains, x.ops)
		})
	}
}

// wantTrips has an operation take so many chains and operations on memory nodes.
func wantTrips(t *testing.T, copies int, warm, there bool, f func(c *Client) error, chains, ops uint64) {
	t.Helper()
	w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 16<<20, 1, copies)
	s := w.open(0, w.plain())
	c := w.plainClient(0, s)
	c.SetNow(1)
	for i := range 20 { // so that chunks are there
		wantErr(t, "set", c.Set(fmt.Append(nil, i), b("v"), Options{}), nil)
	}
	if there {
		wantErr(t, "set", c.Set(b("k"), b("1"), Options{}), nil)
	}
	if !warm {
		s.places.put(c.s.locate(b("k")).hash, 0, 0)
	}
	before := *c.port.Stats()
	wantErr(t, "operation", f(c), nil)
	after := c.port.Stats()
	if c, o := after.Chains-before.Chains, after.Total()-before.Total(); c != chains || o != ops {
		t.Errorf("%d copies: %d chains of %d operations, want %d of %d", copies, c, o, chains, ops)
	}
}

// A change of replicated memory takes one chain more for each backup: reads, and what finds nothing to change, none.
func TestReplicatedRoundTrips(t *testing.T) {
	for _, x := range []struct {
		name        string
		chains, ops uint64 // with one copy
		more        uint64 // operations for each backup; 0: it changes nothing
		warm, there bool
		f           func(c *Client) error
	}{
		{"get, cached", 1, 3, 0, true, true, func(c *Client) error { _, err := c.Get(b("k")); return err }},
		{"get, miss", 1, 1, 0, false, false, func(c *Client) error { _, err := c.Get(b("k")); return ignore(err, ErrNotFound) }},
		{"set, new", 2, 5, 2, false, false, func(c *Client) error { return c.Set(b("k"), b("w"), Options{}) }},
		{"set, overwrite", 2, 6, 2, true, true, func(c *Client) error { return c.Set(b("k"), b("w"), Options{}) }},
		{"add, exists", 2, 4, 0, true, true, func(c *Client) error { return ignore(c.Add(b("k"), b("w"), Options{}), ErrExists) }},
		{"append", 2, 6, 2, true, true, func(c *Client) error { return c.Append(b("k"), b("w")) }},
		{"incr", 2, 6, 2, true, true, func(c *Client) error { _, err := c.Incr(b("k"), 1); return err }},
		{"delete", 2, 5, 1, true, true, func(c *Client) error { return c.Delete(b("k")) }},
		{"delete, miss", 1, 1, 0, false, false, func(c *Client) error { return ignore(c.Delete(b("k")), ErrNotFound) }},
		{"touch", 2, 5, 1, true, true, func(c *Client) error { return c.Touch(b("k"), 100) }},
		{"update, put", 2, 6, 2, true, true, func(c *Client) error { return c.Update(b("k"), putW) }},
	} {
		t.Run(x.name, func(t *testing.T) {
			for _, copies := range []uint64{0, 2, 3} {
				backups := max(copies, 1) - 1
				wantTrips(t, int(copies), x.warm, x.there, x.f, x.chains+backups*min(x.more, 1), x.ops+backups*x.more)
			}
		})
	}
}

// The memory that 100 deletions have freed stays with the compute node, for the 100 sets after them.
func TestChunksStayForABatch(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 64<<20, 1)
	c := w.plainClient(0, w.open(0, w.plain()))
	all := func(f func(key []byte) error) (chains uint64) {
		before := c.port.Stats().Chains
		for i := range 100 {
			wantErr(t, "operation", f(fmt.Append(nil, i)), nil)
		}
		return c.port.Stats().Chains - before
	}
	set := func(key []byte) error { return c.Set(key, b("value"), Options{}) }
	all(set)
	for range 40 { // until the chunks of the first runs are used
		all(c.Delete)
		if chains := all(set); chains > 204 {
			t.Fatalf("100 sets after 100 deletions took %d chains, want 200", chains)
		}
	}
}

var putW = Update{Read: 16, Apply: func(*Object) Change { return Change{Action: Put, Value: b("w")} }}

func lockedGet(c *Client) error {
	c.s.locked = true
	_, err := c.Get(b("k"))
	return err
}

// A get whose object has not been touched for long writes its access time, in
// the chain of the release.
func TestAccessRefresh(t *testing.T) {
	_, c := one(t, func(cfg *Config) { cfg.AccessRefreshS = 10 })
	c.SetNow(100)
	wantErr(t, "set", c.Set(b("k"), b("v"), Options{}), nil)
	access := func() uint32 {
		t.Helper()
		mn, i := c.s.Locate(b("k"))
		d, err := c.Inspect(mn, i)
		if err != nil || len(d.Slots) != 1 || d.Slots[0].Key != "k" {
			t.Fatal(d, err)
		}
		return d.Slots[0].Access
	}
	for _, x := range []struct{ now, want uint32 }{{100, 100}, {109, 100}, {110, 110}, {111, 110}, {105, 110}} {
		c.SetNow(x.now)
		wantValue(t, c, "k", "v")
		if got := access(); got != x.want {
			t.Errorf("at %d: access %d, want %d", x.now, got, x.want)
		}
	}
}

func TestNoAllocations(t *testing.T) {
	_, c := one(t, nil)
	key, value, number := b("some-key"), make([]byte, 414), b("10")
	n := testing.AllocsPerRun(20, func() {
		for range 20 {
			wantErr(t, "set", c.Set(key, value, Options{}), nil)
			if _, err := c.Get(key); err != nil {
				t.Fatal(err)
			}
			wantErr(t, "append", c.Append(key, value[:10]), nil)
			wantErr(t, "delete", c.Delete(key), nil)
			wantErr(t, "set", c.Set(key, number, Options{}), nil)
			if _, err := c.Incr(key, 3); err != nil {
				t.Fatal(err)
			}
			wantErr(t, "touch", c.Touch(key, 0), nil)
		}
	})
	if n > 0 {
		t.Errorf("%v allocations in 20 rounds", n)
	}
}
