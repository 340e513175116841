package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/timesync"
	"github.com/declock/declock/traces"
)

// A deathRun is a simulated cluster in which nodes crash: compute nodes with their
// clients, and the memory node, which comes back.
type deathRun struct {
	c      *sim.Cluster
	layout cql.Layout
	nodes  []*sim.Node
	tables []*hier.Table
	clocks []*timesync.Clock
	agents []*hier.Agent
}

// deathLocks is where locks begin; the counter of clock synchronisation is below.
const deathLocks = 4096

// newDeathRun makes a cluster with DecLock's policy of a name.
func newDeathRun(seed uint64, nic, policy string, cns int, memory uint64) (*deathRun, error) {
	p, err := hier.ParsePolicy(policy)
	if err != nil {
		return nil, err
	}
	model, err := sim.Preset(nic)
	if err != nil {
		return nil, err
	}
	d := &deathRun{c: sim.New(sim.Config{Seed: seed, NIC: model})}
	layout := cql.LayoutFor
	if p.Train {
		layout = cql.LayoutWithTrains
	}
	if d.layout, err = layout(cns); err != nil {
		return nil, err
	}
	d.c.AddMN(memory)
	for range cns {
		n, table, clock := d.c.AddCN(), hier.NewTable(p), new(timesync.Clock)
		agent := hier.NewAgent(table, n, clock, d.config(), hier.SyncConfig{Counter: fabric.At(0, 64), IntervalNs: fabric.Second})
		// What fails there is the crashed memory node: waiting clients ask again.
		d.c.GoAgent(n, func(fabric.Port) { _ = agent.Run(nil) })
		d.nodes, d.tables = append(d.nodes, n), append(d.tables, table)
		d.clocks, d.agents = append(d.clocks, clock), append(d.agents, agent)
	}
	return d, nil
}

func (d *deathRun) config() hier.Config { return hier.Config{Layout: d.layout} }

func (d *deathRun) lock(i uint64) fabric.Addr {
	return fabric.At(0, deathLocks+i*d.layout.Lock().Size)
}

// client starts a client on a compute node.
func (d *deathRun) client(cn int, name string, body func(k *hier.Locker)) {
	d.c.Go(d.nodes[cn], name, func(p fabric.Port) {
		body(hier.New(d.tables[cn], p, d.nodes[cn], d.clocks[cn], d.config()))
	})
}

// detectNs is how long the simulator's coordinator takes to notice a crash and to fence the node: a parameter, not a result.
const detectNs = 10 * fabric.Millisecond

// A resetResult says how a lock was freed whose holder had crashed, with all other clients waiting for it.
type resetResult struct {
	reset fabric.Time // from the request to the free lock
	grant fabric.Time // from the view without the crashed node to the next holder
}

// measureReset has one client of one of 8 compute nodes hold a lock, all others want it, and kills that node.
func measureReset(seed uint64, nic, policy string, clients int) (r resetResult, err error) {
	const cns = 8
	d, err := newDeathRun(seed, nic, policy, cns, 1<<20)
	if err != nil {
		return r, err
	}
	defer d.c.Close()
	var failed error
	killed, first := fabric.Millisecond, fabric.Forever
	for i := range clients {
		d.client(i%cns, fmt.Sprint("client ", i), func(k *hier.Locker) {
			p := k.Port()
			if i > 0 {
				_ = p.Pause(fabric.Time(10+p.Rand()%100) * fabric.Microsecond)
			}
			var h lock.Hold
			if err := k.Acquire(&h, &lock.Request{Lock: d.lock(0), Mode: lock.Exclusive}); err != nil {
				failed = errors.Join(failed, err)
				return
			}
			if i == 0 {
				_ = p.Pause(fabric.Forever) // and crashes with its node
			}
			first = min(first, p.Now())
			failed = errors.Join(failed, k.Release(&h, nil))
		})
	}
	d.c.At(killed, func() { d.c.Kill(d.nodes[0]) })
	if err := d.c.RunUntil(killed + detectNs + 20*fabric.Millisecond); err != nil || failed != nil {
		return r, errors.Join(err, failed)
	}
	for _, a := range d.agents {
		if s := a.Resets(); s.Led > 0 {
			r.reset = s.LastNs
		}
	}
	if r.reset == 0 || first == fabric.Forever {
		return r, fmt.Errorf("bench: the lock of the dead node was not passed on: reset %d, granted at %d", r.reset, first)
	}
	r.grant = first - killed - detectNs
	return r, nil
}

// A timeline is the throughput over time while nodes crash.
type timeline struct {
	mops                           []float64 // of each slot
	slot                           fabric.Time
	cnDies, mnDies, mnBack, endsAt fabric.Time
}

// timelineOf says when what happens, for a number of milliseconds between two events.
func timelineOf(gap fabric.Time) timeline {
	ms := fabric.Millisecond
	return timeline{slot: ms, cnDies: gap, mnDies: 2*gap + detectNs, mnBack: 2*gap + 2*detectNs, endsAt: 3*gap + 2*detectNs}
}

// courseCNs are the compute nodes of a course.
const courseCNs = 8

// newCourse makes 8 compute nodes with clients that do operations at the default point.
func newCourse(seed uint64, nic, policy string, clients int, gap fabric.Time) (*deathRun, timeline, error) {
	const cns, nLocks = courseCNs, DefaultLocks
	t := timelineOf(gap)
	t.mops = make([]float64, t.endsAt/t.slot)
	size, _ := cql.LayoutWithTrains(cns) // or less
	d, err := newDeathRun(seed, nic, policy, cns, deathLocks+nLocks*size.Lock().Size+4096)
	if err != nil {
		return nil, t, err
	}
	zipf, err := traces.NewZipf(nLocks, DefaultTheta)
	if err != nil {
		return nil, t, errors.Join(err, d.c.Close())
	}
	for i := range clients {
		seq := (&Micro{Seed: seed, ReadPct: DefaultReadPct}).sequence(zipf, i)
		d.client(i%cns, fmt.Sprint("client ", i), func(k *hier.Locker) {
			for {
				rank, shared := seq.next()
				t.operate(k, d.lock(uint64(rank)), shared)
			}
		})
	}
	return d, t, nil
}

// run lets a course go by.
func (d *deathRun) run(ctx context.Context, t *timeline) error {
	for now := t.slot; now <= t.endsAt; now += t.slot {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := d.c.RunUntil(now); err != nil {
			return err
		}
	}
	return nil
}

// measureCourse runs a course in which a compute node crashes, and then the memory
// node, which comes back with its memory.
func measureCourse(ctx context.Context, seed uint64, nic, policy string, clients int, gap fabric.Time) (timeline, error) {
	d, t, err := newCourse(seed, nic, policy, clients, gap)
	if err != nil {
		return t, err
	}
	defer d.c.Close()
	d.c.At(t.cnDies, func() { d.c.Kill(d.nodes[0]) })
	d.c.At(t.mnDies, func() { d.c.KillMN(0) })
	d.c.At(t.mnBack, func() { d.c.RestartServer(0) })
	return t, d.run(ctx, &t)
}

// retryNs is how long a client of a timeline waits after an error.
const retryNs = 100 * fabric.Microsecond

// operate does one operation: acquire, 8 bytes of data, release.
func (t *timeline) operate(k *hier.Locker, l fabric.Addr, shared bool) {
	p := k.Port()
	mode := lock.Exclusive
	if shared {
		mode = lock.Shared
	}
	var h lock.Hold
	err := k.Acquire(&h, &lock.Request{Lock: l, Mode: mode})
	if err == nil {
		op := []fabric.Op{fabric.Load(l)}
		err = p.Do(op)
		err = errors.Join(err, k.Release(&h, nil))
	}
	if err != nil {
		_ = p.Pause(p.Now() + retryNs)
		return
	}
	if i := int(p.Now() / t.slot); i < len(t.mops) {
		t.mops[i] += 1e3 / float64(t.slot)
	}
}

// mean returns the mean throughput from one time to before another.
func (t *timeline) mean(from, to fabric.Time) float64 {
	list := t.mops[from/t.slot : to/t.slot]
	sum := 0.0
	for _, m := range list {
		sum += m
	}
	return sum / float64(len(list))
}

// drift is that of the slots from one time to before another.
func (t *timeline) drift(from, to fabric.Time) float64 {
	var series []uint64
	for _, m := range t.mops[from/t.slot : to/t.slot] {
		series = append(series, uint64(m*float64(t.slot)/1e3))
	}
	return drift(series)
}

// back returns how long after a time throughput is at a share of a mean again; missing: never.
func (t *timeline) back(after fabric.Time, want float64) float64 {
	for i := int(after / t.slot); i < len(t.mops); i++ {
		if t.mops[i] >= want {
			return float64(fabric.Time(i+1)*t.slot-after) / 1e6
		}
	}
	return missing
}
