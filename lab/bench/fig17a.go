package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/objstore"
	"github.com/declock/declock/traces"
)

var expFig17a = &Experiment{
	Name: "fig17a", Title: "Object store on two Twitter traces",
	Paper: "Section 6.5, Fig. 17 (left), traces with 414 B objects and 65 % gets (cluster14), and 9213 B and 89 % (cluster53): DecLock-PF gives up to 35.60x the throughput of CASLock, " +
		"3.33x of DSLR+, 1.48x of ShiftLock, and cuts p99 by up to 98.8, 30.3 and 79.7 %.",
	Columns: []string{"trace", "lock", "clients", "mops", "p50_us", "p99_us", "retries_per_acquire", "gbit_s"},
	Points:  pointsStore,
	Judge:   judgeStore,
	Plots: func(rows Rows) []Plot {
		var plots []Plot
		for _, t := range storeTraces {
			part := rows.Where("trace", t.name)
			plots = append(plots, throughputPlot("fig17a-"+t.name, "Object store, "+t.about, "clients", part, clientAxis)...)
			plots = append(plots, Plot{Name: "fig17a-" + t.name + "-p99", Title: "Object store, " + t.about + ": tail", X: clientAxis,
				Y: Axis{Label: "p99 latency (us)", Log: true}, Series: part.LinesByLock("clients", "p99_us")})
		}
		return plots
	},
}

// storeTraces are the paper's two: limited by operations, and by bandwidth.
var storeTraces = []struct {
	name, about string
	keys        uint64
}{{traces.IOPSBound, "414 B objects, 65 % gets", 40_000}, {traces.BandwidthBound, "9213 B objects, 89 % gets", 4_000}}

func pointsStore(o Options) []Point {
	var points []Point
	for _, t := range storeTraces {
		for _, clients := range pick(o, []int{8, 16, 32, 64, 128, 192, 256}, 16, 128) {
			for _, name := range figureLocks {
				m := Default(name)
				m.NIC, m.Clients = o.NIC, clients
				r := storeRun{trace: t.name, keys: t.keys}
				if o.Tiny {
					r.keys = 50
				}
				points = append(points, r.point(m.sized(o)))
			}
		}
	}
	return points
}

// A storeRun is a run of the object store: gets as in the trace, and a set for each other operation.
// That is the paper's store.
type storeRun struct {
	simulation
	trace string
	keys  uint64

	m   Micro
	gen *traces.Generator
}

func (r storeRun) point(m Micro) Point {
	m = m.WithDefaults()
	guess := m.timed()
	return Point{
		Cost: float64(guess.WarmupNs+guess.WindowNs) * 4 * float64(min(m.Clients, 64)),
		Measure: one(Params{{"trace", r.trace}, {"lock", m.Lock}, {"clients", m.Clients}, {"keys", int(r.keys)}}, func(ctx context.Context, seed uint64) (Metrics, error) {
			r := r
			r.m = m
			r.m.Seed = seed
			metrics, err := r.run(ctx)
			if err != nil {
				err = fmt.Errorf("%s with %s: %w", r.trace, m.Lock, err)
			}
			return metrics, err
		}),
	}
}

const (
	// storeMemory is the memory of the memory node, several times what the objects take. When the store takes more of it, a
	// client reads the table of all pages, 8 bytes for each of at least 2048: the larger the memory, the longer that takes.
	storeMemory = 256 << 20
	// stagger is the time between the begins of two clients. A compute node has no free chunks at first, and takes memory for
	// each size. All changes of what is taken go through one word, one after another: a start of all clients at once would be measured with them.
	stagger = 100 * fabric.Microsecond
)

// run fills a store, and measures it.
func (r *storeRun) run(ctx context.Context) (Metrics, error) {
	preset, err := traces.FindPreset(r.trace)
	if err != nil {
		return nil, err
	}
	if r.gen, err = traces.NewGenerator(traces.GenConfig{Preset: preset, Seed: r.m.Seed, Keys: r.keys, Clients: r.m.Clients}); err != nil {
		return nil, err
	}
	sys, err := r.m.system(fabric.At(0, memory.TimesyncOffset), locks.ServerNs)
	if err != nil {
		return nil, err
	}
	r.c = sim.New(sim.Config{Seed: r.m.Seed, NIC: r.m.nic()})
	defer r.c.Close()
	mn := r.c.AddMN(storeMemory)
	starts, err := r.build(sys, mn)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(r.c.Run(), r.err); err != nil {
		return nil, fmt.Errorf("filling: %w", err)
	}
	for _, start := range starts {
		start()
		if err := errors.Join(r.c.RunUntil(r.c.Now()+stagger), r.err); err != nil {
			return nil, err
		}
	}
	return r.measure(ctx)
}

// build opens the store on all compute nodes and begins to fill it. It returns what starts the clients that
// are measured.
func (r *storeRun) build(sys *locks.System, mn fabric.MemID) (clients []func(), err error) {
	var store *objstore.Store
	cfg := objstore.Config{Name: "bench", Nodes: []fabric.MemID{mn}, Lock: sys.Layout(), Objects: r.keys, Paper: true} // the paper's, whatever the lock
	format := memory.Params{Size: storeMemory, CapacityLog2: 3, VersionBits: 16}
	return clients, r.open(sys, r.m.CNs, r.m.Clients, format, func(node *sim.Node, n *locks.Node, p fabric.Port) (err error) {
		store, err = objstore.Open(p, cfg)
		r.startAgent(n, node)
		return err
	}, func(k int, l lock.Locker) error {
		client, err := store.Client(l)
		if err != nil {
			return err
		}
		if k == 0 {
			r.c.GoOn(l.Port(), "fill", func(fabric.Port) { r.fail(r.fill(client)) })
		}
		clients = append(clients, func() { r.c.GoOn(l.Port(), "client", func(fabric.Port) { r.fail(r.work(l.Port(), client, k)) }) })
		return nil
	})
}

// values are what sets write: the longest that there is.
var values [1 << 20]byte

// fill stores all keys.
func (r *storeRun) fill(c *objstore.Client) error {
	src := r.gen.Keys(0, 1)
	var rec traces.Record
	for r.err == nil && src.Next(&rec) {
		if err := c.Set(rec.Key, values[:rec.ValueSize], objstore.Options{}); err != nil {
			return err
		}
	}
	return src.Err()
}

// work does operations of the trace until the run ends.
func (r *storeRun) work(port fabric.Port, c *objstore.Client, k int) error {
	src := r.gen.Stream(k)
	var rec traces.Record
	for r.err == nil && src.Next(&rec) {
		began := port.Now()
		var err error
		if rec.Op == traces.OpGet || rec.Op == traces.OpGets {
			_, err = c.Get(rec.Key)
			err = besides(err, objstore.ErrNotFound)
		} else {
			err = c.Set(rec.Key, values[:max(rec.ValueSize, 1)], objstore.Options{})
		}
		if err != nil {
			return err
		}
		r.journal.add(port.Now()-began, 0, 0, false)
	}
	return src.Err()
}

// measure lets virtual time go by, and takes the figures.
func (r *storeRun) measure(ctx context.Context) (Metrics, error) {
	part, err := r.settle(ctx, r.m.pace(), func(*counters) {})
	if err != nil {
		return nil, err
	}
	m := part.metrics(part.figures(r.journal.tally(part.first, part.last).op, part.window()))
	m["mn_ops_per_acquire"] = per(part.Locks.AcquireOps, part.Locks.Acquires)
	m["gbit_s"] = float64(part.Ports.ReadBytes+part.Ports.WriteBytes) * 8 / float64(part.window())
	return m, nil
}

func judgeStore(rows Rows) []Claim {
	// faster and sooner compare DecLock-PF with another lock on both traces.
	faster := func(other string) Along {
		return rows.Each("trace", func(rs Rows) Along { return rs.Along("declock-pf", other, "clients", "mops") })
	}
	sooner := func(other string) Along {
		return rows.Each("trace", func(rs Rows) Along { return rs.Cuts("declock-pf", other, "clients", "p99_us") })
	}
	var claims []Claim
	for _, c := range []struct {
		lock, name  string
		faster, cut float64
	}{{"cas", "CASLock", 35.60, 98.8}, {"dslr+", "DSLR+", 3.33, 30.3}, {"dslr+-overflow", "DSLR+ with the overflowing backoff", 3.33, 30.3},
		{"shift", "ShiftLock (letter)", 1.48, 79.7}, {"shift-artifact", "ShiftLock (as published, no pauses)", 1.48, 79.7}} {
		claims = append(claims,
			Claim{Text: "throughput of DecLock-PF over " + c.name + ", up to", Unit: "x", Paper: c.faster, Note: storeFigures(rows, c.lock, "mops")}.UpTo(faster(c.lock), Claim.Near, 1.5),
			Claim{Text: "p99 cut against " + c.name + ", up to", Unit: "%", Paper: c.cut, Note: storeFigures(rows, c.lock, "p99_us")}.UpTo(sooner(c.lock), Claim.Near, 1.5))
	}
	return claims
}

// storeFigures are the absolute figures of a lock and of DecLock with most clients. That DecLock-PF lets readers pass writers is what its tail costs.
func storeFigures(rows Rows, lock, metric string) string {
	text := "with 256 clients"
	for _, t := range storeTraces {
		of := rows.Where("trace", t.name, "clients", 256)
		a, b := of.Find("lock", lock), of.Find("lock", "declock-pf")
		text += fmt.Sprintf(", %s: %s %s %s (%s retries), declock-pf %s, declock-tf %s", t.name, metric, lock, Figure(a.Value(metric)), Figure(a.Value("retries_per_acquire")),
			Figure(b.Value(metric)), Figure(of.Find("lock", "declock-tf").Value(metric)))
		if metric == "p99_us" {
			text += fmt.Sprintf(" (a cut of %.3g %%)", Cut(of.Find("lock", "declock-tf"), a, metric))
		}
	}
	if metric == "p99_us" {
		text += ". DecLock-PF lets readers pass writers that have waited longer, DecLock-TF does not"
	}
	return text
}
