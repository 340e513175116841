package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/declock/declock/btree"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/internal/stats"
	"github.com/declock/declock/lab/locks"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/traces"
)

// ErrIndex is wrapped by what [Index.Validate] returns.
var ErrIndex = errors.New("bench: bad index workload")

// A Mix is what the clients of an index do, in percent.
type Mix struct {
	Name                               string
	Read, Update, Insert, Scan, Modify int
	// Latest draws keys from those that were inserted last.
	Latest bool
}

// An Index is one run of clients on a B+tree that holds keys already, on a simulated
// cluster with one memory node. All compute nodes have its index cached at the beginning.
type Index struct {
	Lock         string // a name of locks.Names
	CNs, Clients int    // clients in all, dealt out evenly
	Mix          Mix
	Keys         int // 0 means 100,000
	KeySize      int // bytes, 8 or more; 0 means 8
	ValueSize    int // bytes; 0 means 8
	// Theta is the exponent of the Zipf distribution of keys, whose ranks are scattered over the tree; 0 is uniform.
	Theta              float64
	Seed               uint64
	WarmupNs, WindowNs fabric.Time // a fixed window; 0: see [Pace]
	NIC                string      // sim.Preset; "" is cx4
}

// Defaults of an Index.
const (
	DefaultKeys  = 100_000
	maxIndexKeys = 100_000_000
	maxScan      = 100 // keys of a scan: 1 to so many
)

// WithDefaults returns x with its zero values filled in.
func (x Index) WithDefaults() Index {
	if x.Keys == 0 {
		x.Keys = DefaultKeys
	}
	if x.KeySize == 0 {
		x.KeySize = 8
	}
	if x.ValueSize == 0 {
		x.ValueSize = 8
	}
	if x.NIC == "" {
		x.NIC = "cx4"
	}
	return x
}

// Validate says what is wrong with an Index that has its defaults.
func (x *Index) Validate() error {
	m := &x.Mix
	switch {
	case x.CNs < 1 || x.CNs > maxCNs || x.Clients < x.CNs || x.Clients > maxClients:
		return fmt.Errorf("%w: %d clients on %d compute nodes: want at least one on each of 1 to %d, and at most %d", ErrIndex, x.Clients, x.CNs, maxCNs, maxClients)
	case x.Keys < 1 || x.Keys > maxIndexKeys:
		return fmt.Errorf("%w: %d keys: want 1 to %d", ErrIndex, x.Keys, maxIndexKeys)
	case x.KeySize < 8 || x.KeySize > btree.MaxKeySize || x.ValueSize < 1 || x.ValueSize > btree.MaxValueSize:
		return fmt.Errorf("%w: keys of %d bytes, values of %d: want 8 to %d, and 1 to %d", ErrIndex, x.KeySize, x.ValueSize, btree.MaxKeySize, btree.MaxValueSize)
	case m.Read+m.Update+m.Insert+m.Scan+m.Modify != 100:
		return fmt.Errorf("%w: mix %+v: want 100 %% in all", ErrIndex, *m)
	}
	_, err := sim.Preset(x.NIC)
	return err
}

// An IndexResult is what a run gave within its window.
type IndexResult struct {
	Ops      uint64
	WindowNs fabric.Time
	counters

	op, read, write *hdrhistogram.Histogram
	part            *measured
}

// Metrics returns the figures by the names that rows use.
func (r *IndexResult) Metrics() Metrics {
	m := Metrics{
		"mops":                float64(r.Ops) * 1e3 / float64(r.WindowNs),
		"p50_us":              quantile(r.op, 50),
		"p99_us":              quantile(r.op, 99),
		"p999_us":             quantile(r.op, 99.9),
		"read_p50_us":         quantile(r.read, 50),
		"read_p99_us":         quantile(r.read, 99),
		"write_p50_us":        quantile(r.write, 50),
		"write_p99_us":        quantile(r.write, 99),
		"mn_ops_per_op":       per(r.Ports.Total(), r.Ops),
		"reads_per_op":        per(r.Ports.Ops[fabric.OpRead], r.Ops),
		"chains_per_op":       per(r.Ports.Chains, r.Ops),
		"retries_per_acquire": per(r.Locks.Retries, r.Locks.Acquires),
		"splits":              float64(r.Trees.Splits),
		"stale_per_op":        per(r.Trees.CacheStale, r.Ops),
	}
	return r.part.metrics(m)
}

// An indexRun is a run of an Index in virtual time.
type indexRun struct {
	simulation
	x       Index
	zipf    *traces.Zipf
	inserts uint64 // keys in the tree and on their way
	clients []*indexClient
	journal journal
}

// RunIndex runs an index workload on a simulated cluster. The same Index gives the same result. It may be
// called from several goroutines at once.
func RunIndex(ctx context.Context, x Index) (*IndexResult, error) {
	x = x.WithDefaults()
	if err := x.Validate(); err != nil {
		return nil, err
	}
	s := &indexRun{x: x, inserts: uint64(x.Keys)}
	var err error
	if s.zipf, err = traces.NewZipf(uint64(x.Keys), x.Theta); err != nil {
		return nil, err
	}
	nic, _ := sim.Preset(x.NIC)
	s.c = sim.New(sim.Config{Seed: x.Seed, NIC: nic})
	defer s.c.Close()
	if err := s.build(); err != nil {
		return nil, err
	}
	return s.measure(ctx)
}

// build makes the cluster, loads the tree and starts the clients.
func (s *indexRun) build() error {
	x := &s.x
	size := uint64(64<<20) + 3*uint64(x.Keys)*uint64(x.KeySize+x.ValueSize+64)
	mn := s.c.AddMN(size)
	mech, err := locks.Lookup(x.Lock)
	if err != nil {
		return err
	}
	sys, err := mech.New(locks.Config{CNs: x.CNs, Clients: (x.Clients + x.CNs - 1) / x.CNs, Counter: fabric.At(mn, memory.TimesyncOffset)})
	if err != nil {
		return err
	}
	var starts []func()
	cfg := btree.Config{Name: "bench", Nodes: []fabric.MemID{mn}, Lock: sys.Layout(), MaxKey: x.KeySize, MaxInline: max(16, min(x.ValueSize, 64))}
	for i := range x.CNs {
		node := s.c.AddCN()
		port, err := node.Open()
		if err != nil {
			return err
		}
		if i == 0 {
			if err := memory.Format(port, mn, memory.Params{Size: size, CapacityLog2: 8, VersionBits: 16}); err != nil {
				return err
			}
		}
		t, err := btree.Open(port, cfg)
		if err != nil {
			return err
		}
		ln, err := sys.Join(node)
		if err != nil {
			return err
		}
		if err := s.prepare(t, ln.Locker(port), i == 0); err != nil {
			return err
		}
		if err := port.Close(); err != nil {
			return err
		}
		starts = append(starts, func() { s.startAgent(ln, node) })
		for k := i; k < x.Clients; k += x.CNs {
			c, err := s.newClient(k, node, t, ln)
			if err != nil {
				return err
			}
			starts = append(starts, func() { s.c.GoOn(c.port, fmt.Sprintf("client %d", k), func(fabric.Port) { c.run() }) })
		}
	}
	// Only now: what prepares runs the cluster.
	for _, start := range starts {
		start()
	}
	return nil
}

// key returns the i-th key: a number that is scattered, and zeros.
func (s *indexRun) key(i uint64, buf []byte) []byte {
	clear(buf[:s.x.KeySize])
	binary.BigEndian.PutUint64(buf, scatter(i))
	return buf[:s.x.KeySize]
}

// scatter is a permutation of the 64-bit numbers (splitmix64).
func scatter(i uint64) uint64 {
	i += 0x9e3779b97f4a7c15
	i = (i ^ i>>30) * 0xbf58476d1ce4e5b9
	i = (i ^ i>>27) * 0x94d049bb133111eb
	return i ^ i>>31
}

// prepare loads the tree, if it is the first compute node, and fills the node's index cache.
func (s *indexRun) prepare(t *btree.Tree, l lock.Locker, load bool) error {
	c, err := t.Client(l)
	if err != nil {
		return err
	}
	defer c.Close()
	if load {
		numbers := make([]uint64, s.x.Keys)
		for i := range numbers {
			numbers[i] = scatter(uint64(i))
		}
		slices.Sort(numbers)
		key, value := make([]byte, s.x.KeySize), make([]byte, s.x.ValueSize)
		err := c.BulkLoad(func(yield func(k, v []byte) bool) {
			for _, n := range numbers {
				binary.BigEndian.PutUint64(key, n)
				if !yield(key, value) {
					return
				}
			}
		}, btree.BulkOptions{FillPercent: 75})
		if err != nil {
			return err
		}
	}
	// One key in each inner node above the leaves is enough.
	key := make([]byte, s.x.KeySize)
	steps := uint64(s.x.Keys/100 + 10)
	for i := range steps {
		binary.BigEndian.PutUint64(key, i*(1<<63/steps*2))
		if _, err := c.Get(key); err != nil && !errors.Is(err, btree.ErrNotFound) {
			return err
		}
	}
	return nil
}

// measure lets virtual time go by, and takes the figures.
func (s *indexRun) measure(ctx context.Context) (*IndexResult, error) {
	p := paceOf(s.x.Clients, limitNs)
	p.WarmupNs, p.WindowNs = s.x.WarmupNs, s.x.WindowNs
	part, err := s.settle(ctx, p, &s.journal, func(n *counters) {
		for _, c := range s.clients {
			n.add(c.lock)
			stats.Add(&n.Trees, c.tree.Stats())
		}
	})
	if err != nil {
		return nil, err
	}
	r := &IndexResult{Ops: uint64(part.last - part.first), WindowNs: part.window(), counters: part.counters, part: part,
		op: newHistogram(simDigits), read: newHistogram(simDigits), write: newHistogram(simDigits)}
	for _, e := range s.journal.list[part.first:part.last] {
		record(r.op, fabric.Time(e.op))
		if e.kind == writeOp {
			record(r.write, fabric.Time(e.op))
		} else {
			record(r.read, fabric.Time(e.op))
		}
	}
	return r, nil
}

// An indexClient is one client of a run.
type indexClient struct {
	s          *indexRun
	tree       *btree.Client
	it         *btree.Iterator
	lock       lock.Locker
	port       fabric.Port
	rand       *traces.Rand
	key, value []byte
}

// newClient makes the k-th client, on a compute node.
func (s *indexRun) newClient(k int, node fabric.Node, t *btree.Tree, ln *locks.Node) (*indexClient, error) {
	p, err := node.Open()
	if err != nil {
		return nil, err
	}
	l := ln.Locker(p)
	tc, err := t.Client(l)
	if err != nil {
		return nil, err
	}
	c := &indexClient{s: s, tree: tc, lock: l, port: p, rand: traces.NewRand(s.x.Seed, uint64(k)+1),
		key: make([]byte, s.x.KeySize), value: make([]byte, s.x.ValueSize)}
	s.clients = append(s.clients, c)
	return c, nil
}

// run is the code of a client.
func (c *indexClient) run() {
	s := c.s
	for s.err == nil {
		began := c.port.Now()
		write, err := c.step()
		if err != nil {
			s.fail(fmt.Errorf("client %v: %w", c.port.ID(), err))
			return
		}
		k := plainOp
		if write {
			k = writeOp
		}
		s.journal.list = append(s.journal.list, entry{op: clip(c.port.Now() - began), kind: k})
	}
}

// step does one operation. It reports whether that changed the tree.
func (c *indexClient) step() (write bool, err error) {
	m := &c.s.x.Mix
	d := int(c.rand.Below(100))
	switch {
	case d < m.Read:
		_, err = c.tree.Get(c.draw())
		if m.Latest {
			err = ignoreMissing(err) // its insert may be on its way
		}
		return false, err
	case d < m.Read+m.Update:
		c.value[0]++
		return true, c.tree.Put(c.draw(), c.value)
	case d < m.Read+m.Update+m.Insert:
		n := c.s.inserts
		c.s.inserts++
		return true, c.tree.Insert(c.s.key(n, c.key), c.value)
	case d < m.Read+m.Update+m.Insert+m.Scan:
		return false, c.scan()
	}
	v, err := c.tree.Get(c.draw())
	if err != nil {
		return true, err
	}
	c.value = append(c.value[:0], v...)
	next := bytes.Clone(c.value)
	next[0]++
	err = c.tree.CompareAndPut(c.key, c.value, next)
	if errors.Is(err, btree.ErrChanged) {
		err = nil // another client was faster: YCSB's read-modify-write does not ask
	}
	return true, err
}

func ignoreMissing(err error) error {
	if errors.Is(err, btree.ErrNotFound) {
		return nil
	}
	return err
}

// draw draws a key that is there.
func (c *indexClient) draw() []byte {
	rank := c.s.zipf.Rank(c.rand) - 1
	if c.s.x.Mix.Latest {
		return c.s.key(c.s.inserts-1-rank, c.key)
	}
	return c.s.key(rank, c.key)
}

func (c *indexClient) scan() error {
	r := btree.Range{From: c.draw(), Limit: 1 + int(c.rand.Below(maxScan))}
	if c.it == nil {
		c.it = c.tree.Scan(r)
	} else {
		c.it.Reset(r)
	}
	for c.it.Next() {
	}
	return c.it.Err()
}

// Point returns the measurement of an index workload.
func (x Index) Point() Point {
	x = x.WithDefaults()
	return Point{
		Cost: float64(15*fabric.Millisecond)*float64(min(x.Clients, 64)) + float64(x.Keys*100),
		Measure: func(ctx context.Context, seed uint64) ([]Sample, error) {
			x := x
			x.Seed = seed
			r, err := RunIndex(ctx, x)
			if err != nil {
				return nil, err
			}
			params := Params{{"lock", x.Lock}, {"workload", x.Mix.Name}, {"clients", x.Clients}, {"cns", x.CNs},
				{"keys", x.Keys}, {"key_bytes", x.KeySize}, {"value_bytes", x.ValueSize}, {"theta", x.Theta}}
			return []Sample{{Params: params, Metrics: r.Metrics()}}, nil
		},
	}
}

// tiny returns x made so small that it takes no time: for tests.
func (x Index) tiny() Index {
	x.Keys, x.WarmupNs, x.WindowNs = 2000, 50_000, 200_000
	x.Clients = min(x.Clients, 16)
	x.CNs = min(x.CNs, x.Clients, 2)
	return x
}
