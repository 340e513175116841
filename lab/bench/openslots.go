package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/objstore"
)

var expOpenSlots = &Experiment{
	Name: "openslots", Apart: true, Title: "Object store: sets without the lock, by lock",
	Paper: "Not in the paper. Keys of 64 bytes, gets without the lock, 8 compute nodes; a share of the operations are sets, and keys are drawn by Zipf's law. Each lock with and without open slots (objstore/open.go): " +
		"without, a set is two chains under the lock; with, one chain, unless the slot is not open any more.",
	Columns: []string{"sets_pct", "skew", "clients", "lock", "open", "mops", "set_p50_us", "set_p99_us", "mn_ops_per_op", "without_pct", "overtaken_pct"},
	Points: func(o Options) (points []Point) {
		for _, x := range pick(o, openMixes, openMixes[2], openMixes[3]) {
			for _, clients := range pick(o, []int{32, 128}, 32) {
				for _, name := range openLocks {
					for _, open := range []bool{false, true} {
						m := Default(name)
						m.NIC, m.Clients, m.CNs = o.NIC, clients, 8
						r := openRun{sets: x.sets, skew: x.skew, open: open, keys: 1024}
						if o.Tiny {
							r.keys = 50
						}
						points = append(points, r.point(m.sized(o)))
					}
				}
			}
		}
		return points
	},
}

var openLocks = []string{"cas", "dslr+", "shift", "declock"}

// openMixes are shares of sets, in percent, and exponents of Zipf's law.
var openMixes = []struct {
	sets int
	skew float64
}{{100, 0}, {50, 0.99}, {13, 1.3}, {100, 1.3}}

// An openRun is a store whose clients get and set keys that have been there for long.
type openRun struct {
	simulation
	m     Micro
	sets  int
	skew  float64
	open  bool
	keys  int
	upTo  []float64 // the weights of all keys up to one
	isSet []bool    // of the operations in the journal
	made  []*objstore.Client
}

func (r openRun) point(m Micro) Point {
	m = m.WithDefaults()
	guess := m.timed()
	open := map[bool]string{false: "no", true: "yes"}[r.open]
	return Point{
		Cost: float64(guess.WarmupNs+guess.WindowNs) * 4 * float64(m.Clients),
		Near: true,
		Measure: one(Params{{"sets_pct", r.sets}, {"skew", r.skew}, {"clients", m.Clients}, {"lock", m.Lock}, {"open", open}}, func(ctx context.Context, seed uint64) (Metrics, error) {
			r := r
			r.m = m
			r.m.Seed = seed
			metrics, err := r.run(ctx)
			if err != nil {
				err = fmt.Errorf("%d %% sets, skew %v, with %s: %w", r.sets, r.skew, m.Lock, err)
			}
			return metrics, err
		}),
	}
}

// run fills the store, has epochs pass, fills it again and again, so that slots open, and measures.
func (r *openRun) run(ctx context.Context) (Metrics, error) {
	sum := 0.0
	for k := range r.keys {
		sum += math.Pow(float64(k+1), -r.skew)
		r.upTo = append(r.upTo, sum)
	}
	sys, err := r.m.system(fabric.At(0, memory.TimesyncOffset), locks.ServerNs)
	if err != nil {
		return nil, err
	}
	r.c = sim.New(sim.Config{Seed: r.m.Seed, NIC: r.m.nic()})
	defer r.c.Close()
	r.c.AddMN(storeMemory)
	var fills, passes, starts []func()
	var store *objstore.Store
	cfg := objstore.Config{Name: "bench", Nodes: []fabric.MemID{0}, Lock: sys.Layout(), Objects: uint64(4 * r.keys), OpenSlots: r.open, EpochNs: 1}
	format := memory.Params{Size: storeMemory, CapacityLog2: 3, VersionBits: 16}
	if err := r.simulation.open(sys, r.m.CNs, r.m.Clients, format, func(node *sim.Node, n *locks.Node, p fabric.Port) (err error) {
		if store, err = objstore.Open(p, cfg); err != nil {
			return err
		}
		r.startAgent(n, node)
		own := store
		passes = append(passes, func() { r.c.Go(node, "epochs", func(p fabric.Port) { r.fail(r.pass(own, n.Locker(p), node)) }) })
		return nil
	}, func(k int, l lock.Locker) error {
		c, err := store.Client(l)
		r.made = append(r.made, c)
		if k == 0 {
			fills = append(fills, func() { r.c.GoOn(l.Port(), "fill", func(fabric.Port) { r.fail(r.fill(c)) }) })
		}
		starts = append(starts, func() { r.c.GoOn(l.Port(), "client", func(fabric.Port) { r.fail(r.work(l.Port(), c)) }) })
		return err
	}); err != nil {
		return nil, err
	}
	for range 8 { // epochs are known modulo 8: a slot opens three to six after its key has come
		for _, begin := range slices.Concat(fills, passes) {
			begin()
			if err := errors.Join(r.c.Run(), r.err); err != nil {
				return nil, fmt.Errorf("filling: %w", err)
			}
		}
	}
	for _, start := range starts {
		start()
		if err := errors.Join(r.c.RunUntil(r.c.Now()+stagger), r.err); err != nil {
			return nil, err
		}
	}
	return r.measure(ctx)
}

// pass does a compute node's part for the next epoch.
func (r *openRun) pass(store *objstore.Store, l lock.Locker, node *sim.Node) error {
	c, err := store.Client(l)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.ReclaimStep(node.View)
	return err
}

// fill stores all keys.
func (r *openRun) fill(c *objstore.Client) error {
	for k := range r.keys {
		if err := c.Set(fmt.Appendf(nil, "key%d", k), values[:64], objstore.Options{}); err != nil {
			return err
		}
	}
	return nil
}

// work does operations until the run ends.
func (r *openRun) work(p fabric.Port, c *objstore.Client) (err error) {
	var key []byte
	for r.err == nil && err == nil {
		key = fmt.Appendf(key[:0], "key%d", sort.SearchFloat64s(r.upTo, float64(p.Rand()>>11)/(1<<53)*r.upTo[r.keys-1]))
		began, set := p.Now(), int(p.Rand()%100) < r.sets
		if set {
			err = c.Set(key, values[:64], objstore.Options{})
		} else {
			_, err = c.Get(key)
		}
		r.journal.add(p.Now()-began, 0, 0, false)
		r.isSet = append(r.isSet, set)
	}
	return err
}

func (r *openRun) measure(ctx context.Context) (Metrics, error) {
	var before objstore.Stats
	for _, c := range r.made {
		before.Add(c.Stats())
	}
	part, err := r.settle(ctx, r.m.pace(), func(*counters) {})
	if err != nil {
		return nil, err
	}
	t := r.journal.tally(part.first, part.last)
	m := part.metrics(part.figures(t.op, part.window()))
	m["mn_ops_per_op"] = per(part.Ports.Total(), t.ops)
	var sets []float64
	for i := part.first; i < part.last; i++ {
		if r.isSet[i] {
			sets = append(sets, float64(r.journal.list[i].op)/1e3)
		}
	}
	slices.Sort(sets)
	m["set_p50_us"], m["set_p99_us"] = sets[len(sets)/2], sets[len(sets)*99/100]
	var after objstore.Stats
	for _, c := range r.made {
		after.Add(c.Stats())
	}
	stores := after.Stores - before.Stores
	m["without_pct"], m["overtaken_pct"] = 100*per(after.Open-before.Open, stores), 100*per(after.Overtaken-before.Overtaken, stores)
	return m, nil
}
