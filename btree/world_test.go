package btree

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/fabrictest"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/cas"
	"github.com/declock/declock/memory"
)

// A world is a simulated cluster with formatted memory nodes.
type world struct {
	t   testing.TB
	c   *sim.Cluster
	mns []fabric.MemID
	cns []*sim.Node
}

func newWorld(t testing.TB, cfg sim.Config, mns int, size uint64, cns int) *world {
	t.Helper()
	fabrictest.SkipInVirtualTime(t)
	w := &world{t: t, c: sim.New(cfg)}
	t.Cleanup(func() { w.c.Close() })
	w.populate(mns, size, cns, 0)
	return w
}

// newReplicated makes a world in which each memory-node number has some copies.
func newReplicated(t testing.TB, cfg sim.Config, mns int, size uint64, cns, copies int) *world {
	t.Helper()
	fabrictest.SkipInVirtualTime(t)
	w := &world{t: t, c: sim.New(cfg)}
	t.Cleanup(func() { w.c.Close() })
	w.populate(mns, size, cns, copies)
	return w
}

func (w *world) populate(mns int, size uint64, cns, copies int) {
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
		wantErr(w.t, "format", memory.Format(p, mn, memory.Params{Size: size, CapacityLog2: 3, VersionBits: 16, Factor: uint8(copies)}), nil)
	}
}

func (w *world) port(cn int) fabric.Port {
	w.t.Helper()
	p, err := w.cns[cn].Open()
	wantErr(w.t, "port", err, nil)
	return p
}

// config returns a tree of small nodes on all memory nodes with CAS locks of one word.
func (w *world) config() Config {
	return Config{Name: "test", Nodes: w.mns, Lock: cas.Config{Plain: true}.Layout(), MaxKey: 16, NodeSize: 256, MaxInline: 16}
}

// tiny returns a configuration with leaves of three records: keys of 2 bytes, values of 16.
func (w *world) tiny() Config {
	cfg := w.config()
	cfg.MaxKey, cfg.MaxInline = 2, 16
	cfg.NodeSize = minNodeSize(2, 16)
	return cfg
}

func (w *world) open(cn int, cfg Config) *Tree {
	w.t.Helper()
	t, err := Open(w.port(cn), cfg)
	wantErr(w.t, "open", err, nil)
	return t
}

func (w *world) client(cn int, t *Tree) *Client {
	w.t.Helper()
	return clientOn(w.t, t, w.port(cn))
}

func clientOn(tb testing.TB, t *Tree, p fabric.Port) *Client {
	tb.Helper()
	c, err := t.Client(cas.New(p, cas.Config{Plain: t.geo.lockSize == 8}))
	wantErr(tb, "client", err, nil)
	return c
}

// one returns a single client of a tree.
func one(t testing.TB, mns int, cfg func(*Config)) (*world, *Client) {
	t.Helper()
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, mns, 64<<20, 1)
	c := w.config()
	if cfg != nil {
		cfg(&c)
	}
	return w, w.client(0, w.open(0, c))
}

func wantErr(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) || (want == nil) != (err == nil) {
		t.Fatalf("%s: error %v, want %v", what, err, want)
	}
}

func wantValue(t testing.TB, c *Client, key, want string) {
	t.Helper()
	v, err := c.Get([]byte(key))
	if err != nil || string(v) != want {
		t.Fatalf("get %q: %.60q, %v; want %.60q", key, v, err, want)
	}
}

func wantMiss(t testing.TB, c *Client, key string) {
	t.Helper()
	if v, err := c.Get([]byte(key)); !errors.Is(err, ErrNotFound) {
		t.Fatalf("get %q: %.60q, %v; want a miss", key, v, err)
	}
}

func mustBeSound(t testing.TB, c *Client) *Report {
	t.Helper()
	r, err := c.Check(CheckOptions{})
	wantErr(t, "check", err, nil)
	if !r.Sound() {
		t.Fatalf("tree is not sound:\n%v", r)
	}
	return r
}

// all returns the pairs of a range.
func all(t testing.TB, c *Client, r Range) (pairs []string) {
	t.Helper()
	err := c.Each(r, func(k, v []byte) bool {
		pairs = append(pairs, fmt.Sprintf("%s=%s", k, v))
		return true
	})
	wantErr(t, "scan", err, nil)
	return pairs
}

func keyOf(i int) []byte { return fmt.Appendf(nil, "k%06d", i) }

func valueOf(key, version int) []byte {
	v := fmt.Appendf(nil, "%d.%d.", key, version)
	return append(v, bytes.Repeat([]byte{'x'}, (key*7+version*3)%6)...)
}
