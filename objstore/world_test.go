package objstore

import (
	"errors"
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/fabrictest"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/cas"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
)

// A world is a simulated cluster with formatted memory nodes.
type world struct {
	t      testing.TB
	c      *sim.Cluster
	mns    []fabric.MemID
	cns    []*sim.Node
	copies int // of each memory node's memory; 0: it is not replicated
}

func newWorld(t testing.TB, cfg sim.Config, mns int, size uint64, cns int) *world {
	t.Helper()
	return newReplicated(t, cfg, mns, size, cns, 0)
}

// newReplicated is newWorld with so many copies of each memory node's memory.
func newReplicated(t testing.TB, cfg sim.Config, mns int, size uint64, cns, copies int) *world {
	t.Helper()
	fabrictest.SkipInVirtualTime(t)
	w := &world{t: t, c: sim.New(cfg), copies: copies}
	t.Cleanup(func() { w.c.Close() })
	for range mns {
		if copies == 0 {
			w.mns = append(w.mns, w.c.AddMN(size))
			continue
		}
		mn := w.c.AddReplicatedMN(size, copies)
		for range copies - 1 {
			w.c.AddBackup(mn, w.c.AddMN(4096))
		}
		w.mns = append(w.mns, mn)
	}
	for range cns {
		w.cns = append(w.cns, w.c.AddCN())
	}
	p := w.port(0)
	for _, mn := range w.mns {
		if err := memory.Format(p, mn, memory.Params{Size: size, CapacityLog2: 3, VersionBits: 16, Factor: uint8(copies)}); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func (w *world) port(cn int) fabric.Port {
	w.t.Helper()
	p, err := w.cns[cn].Open()
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// config returns a small store on all nodes with CAS locks.
func (w *world) config() Config {
	return Config{Name: "test", Nodes: w.mns, Lock: cas.Config{}.Layout(), Objects: 1000}
}

func (w *world) open(cn int, cfg Config) *Store {
	w.t.Helper()
	s, err := Open(w.port(cn), cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) client(cn int, s *Store) *Client {
	w.t.Helper()
	c, err := s.Client(cas.New(w.port(cn), cas.Config{}))
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// one returns a single client of a store on one memory node.
func one(t testing.TB, cfg func(*Config)) (*world, *Client) {
	t.Helper()
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 64<<20, 1)
	c := w.config()
	if cfg != nil {
		cfg(&c)
	}
	return w, w.client(0, w.open(0, c))
}

func mustBeSound(t testing.TB, c *Client) *Report {
	t.Helper()
	r, err := c.Check(CheckOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Sound() {
		t.Fatalf("store is not sound:\n%v", r)
	}
	return r
}

func wantErr(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) || (want == nil) != (err == nil) {
		t.Fatalf("%s: error %v, want %v", what, err, want)
	}
}

func wantValue(t testing.TB, c *Client, key, want string) Item {
	t.Helper()
	it, err := c.Get([]byte(key))
	if err != nil || string(it.Value) != want {
		t.Fatalf("get %q: %q, %v; want %q", key, it.Value, err, want)
	}
	return it
}

func wantMiss(t testing.TB, c *Client, key string) {
	t.Helper()
	if it, err := c.Get([]byte(key)); !errors.Is(err, ErrNotFound) {
		t.Fatalf("get %q: %q, %v; want a miss", key, it.Value, err)
	}
}

func keyOf(i int) []byte { return fmt.Appendf(nil, "key-%06d", i) }

var _ lock.Locker = (*cas.Locker)(nil)

// plain and plainClient are a store with the locks of the literature: one
// operation to acquire and one to release.
func (w *world) plain() Config {
	cfg := w.config()
	cfg.Lock = cas.Config{Plain: true}.Layout()
	return cfg
}

func (w *world) plainClient(cn int, s *Store) *Client {
	w.t.Helper()
	c, err := s.Client(cas.New(w.port(cn), cas.Config{Plain: true}))
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

func ignore(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

// tend tends a store until there is nothing to do, and reports whether there was a round.
func tend(t testing.TB, c *Client, view func() fabric.View) bool {
	t.Helper()
	before := c.Found().Rounds
	for range 10000 {
		busy, err := c.ReclaimStep(view)
		if err != nil {
			t.Fatal(err)
		}
		if !busy {
			return c.Found().Rounds > before
		}
	}
	t.Fatal("a round does not end")
	return false
}
