package bench

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/declock/declock/btree"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/internal/stats"
	"github.com/declock/declock/lab/locks"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/traces"
)

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
	Keys         int
	KeySize      int // bytes, 8 or more
	ValueSize    int // bytes
	// Theta is the exponent of the Zipf distribution of keys, whose ranks are scattered over the tree; 0 is uniform.
	Theta              float64
	Seed               uint64
	WarmupNs, WindowNs fabric.Time // a fixed window; 0: see [Pace]
	NIC                string      // sim.Preset
	Tune               string      // changes constants of it: see Micro.Tune
	Quick              bool        // such a run is shorter
}

// maxScan bounds the keys of a scan: 1 to so many.
const maxScan = 100

// An indexRun is a run of an Index in virtual time.
type indexRun struct {
	simulation
	x       Index
	zipf    *traces.Zipf
	inserts uint64 // keys in the tree and on their way
	clients []*indexClient
}

// runIndex runs an index workload on a simulated cluster. The same Index gives the same figures. It may be
// called from several goroutines at once.
func runIndex(ctx context.Context, x Index) (Metrics, error) {
	s := &indexRun{x: x, inserts: uint64(x.Keys)}
	var err error
	if s.zipf, err = traces.NewZipf(uint64(x.Keys), x.Theta); err != nil {
		return nil, err
	}
	nic, err := x.model()
	if err != nil {
		return nil, err
	}
	s.c = sim.New(sim.Config{Seed: x.Seed, NIC: nic})
	defer s.c.Close()
	if err := s.build(); err != nil {
		return nil, err
	}
	return s.measure(ctx)
}

// model returns the model of the network.
func (x *Index) model() (sim.NIC, error) {
	n, err := sim.Preset(x.NIC)
	if err == nil {
		err = tune(&n, x.Tune)
	}
	return n, err
}

// build makes the cluster, loads the tree and starts the clients.
func (s *indexRun) build() error {
	x := &s.x
	size := uint64(64<<20) + 3*uint64(x.Keys)*uint64(x.KeySize+x.ValueSize+64)
	mn := s.c.AddMN(size)
	sys, err := (&Micro{Lock: x.Lock, CNs: x.CNs, Clients: x.Clients}).system(fabric.At(mn, memory.TimesyncOffset), locks.ServerNs)
	if err != nil {
		return err
	}
	var t *btree.Tree
	var starts []func()
	cfg := btree.Config{Name: "bench", Nodes: []fabric.MemID{mn}, Lock: sys.Layout(), MaxKey: x.KeySize, MaxInline: max(16, min(x.ValueSize, 64))}
	err = s.open(sys, x.CNs, x.Clients, memory.Params{Size: size, CapacityLog2: 8, VersionBits: 16}, func(node *sim.Node, ln *locks.Node, p fabric.Port) (err error) {
		first := t == nil
		if t, err = btree.Open(p, cfg); err != nil {
			return err
		}
		if err := s.prepare(t, ln.Locker(p), first); err != nil {
			return err
		}
		starts = append(starts, func() { s.startAgent(ln, node) })
		return p.Close()
	}, func(k int, l lock.Locker) error {
		tc, err := t.Client(l)
		if err != nil {
			return err
		}
		c := &indexClient{s: s, tree: tc, port: l.Port(), rand: traces.NewRand(x.Seed, uint64(k)+1),
			key: make([]byte, x.KeySize), value: make([]byte, x.ValueSize)}
		s.clients = append(s.clients, c)
		starts = append(starts, func() { s.c.GoOn(c.port, fmt.Sprintf("client %d", k), func(fabric.Port) { c.run() }) })
		return nil
	})
	// Only now: what prepares runs the cluster.
	for _, start := range starts {
		start()
	}
	return err
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
		if _, err := c.Get(key); besides(err, btree.ErrNotFound) != nil {
			return err
		}
	}
	return nil
}

// measure lets virtual time go by, and takes the figures.
func (s *indexRun) measure(ctx context.Context) (Metrics, error) {
	p := paceOf(s.x.Clients, 0, limitNs)
	if s.x.Quick && s.x.WindowNs == 0 {
		p = p.quick(s.x.Clients)
	}
	p.WarmupNs, p.WindowNs = s.x.WarmupNs, s.x.WindowNs
	part, err := s.settle(ctx, p, func(n *counters) {
		for _, c := range s.clients {
			stats.Add(&n.Trees, c.tree.Stats())
		}
	})
	if err != nil {
		return nil, err
	}
	op, read, write := newHistogram(simDigits), newHistogram(simDigits), newHistogram(simDigits)
	for _, e := range s.journal.list[part.first:part.last] {
		record(op, fabric.Time(e.op))
		if e.kind == writeOp {
			record(write, fabric.Time(e.op))
		} else {
			record(read, fabric.Time(e.op))
		}
	}
	ops := uint64(op.TotalCount())
	m := part.metrics(part.figures(op, part.window()))
	m["read_p50_us"], m["read_p99_us"] = quantile(read, 50), quantile(read, 99)
	m["write_p50_us"], m["write_p99_us"] = quantile(write, 50), quantile(write, 99)
	m["reads_per_op"], m["chains_per_op"] = per(part.Ports.Ops[fabric.OpRead], ops), per(part.Ports.Chains, ops)
	m["splits"], m["stale_per_op"] = float64(part.Trees.Splits), per(part.Trees.CacheStale, ops)
	return m, nil
}

// An indexClient is one client of a run.
type indexClient struct {
	s          *indexRun
	tree       *btree.Client
	it         *btree.Iterator
	port       fabric.Port
	rand       *traces.Rand
	key, value []byte
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
			err = besides(err, btree.ErrNotFound) // its insert may be on its way
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
	return true, besides(err, btree.ErrChanged) // another client was faster: YCSB's read-modify-write does not ask
}

// besides returns an error, unless it is one that is to be expected.
func besides(err, expected error) error {
	if errors.Is(err, expected) {
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

// index returns x with what most have in common, and as large as the run: tiny for tests.
func (o Options) index(x Index) Index {
	x.Keys, x.KeySize, x.ValueSize = cmp.Or(x.Keys, 100_000), cmp.Or(x.KeySize, 8), cmp.Or(x.ValueSize, 8)
	x.Theta, x.NIC, x.Quick = DefaultTheta, o.NIC, o.Quick
	if o.Tiny {
		x.Keys, x.WarmupNs, x.WindowNs = 2000, 50_000, 200_000
		x.Clients = min(x.Clients, 16)
		x.CNs = min(x.CNs, x.Clients, 2)
	}
	return x
}

// params returns the parameters that rows of an index workload have.
func (x Index) params() Params {
	return Params{{"lock", x.Lock}, {"workload", x.Mix.Name}, {"clients", x.Clients}, {"cns", x.CNs},
		{"keys", x.Keys}, {"key_bytes", x.KeySize}, {"value_bytes", x.ValueSize}, {"theta", x.Theta}}
}

// point returns the measurement of an index workload.
func (x Index) point(params Params) Point {
	return Point{
		Cost: float64(15*fabric.Millisecond)*float64(min(x.Clients, 64)) + float64(x.Keys*100),
		Same: x.measurand(),
		Measure: one(params, func(ctx context.Context, seed uint64) (Metrics, error) {
			x := x
			x.Seed = seed
			return x.measurand().take(func() (Metrics, error) { return runIndex(ctx, x) })
		}),
	}
}
