package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/internal/stats"
	"github.com/declock/declock/lab/locks"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/traces"
)

// A Part is one process's share of a microbenchmark in real time.
type Part struct {
	// Nodes are the process's compute nodes, and First is the number of the first among those of
	// all processes, from 0.
	Nodes []fabric.Node
	First int
	// Base is where the locks lie: Micro.MemorySize bytes, zero and aligned to 64, the same for all processes.
	Base fabric.Addr
	// Report is called with errors of agents; it may be nil.
	Report func(error)
}

// MemorySize returns the bytes that the locks and their data take.
func (m Micro) MemorySize() (uint64, error) {
	m = m.WithDefaults()
	sys, err := m.system(0, 0)
	if err != nil {
		return 0, err
	}
	p := newPlan(sys.Layout(), m.Locks, 0)
	return p.size(), nil
}

// Words at the base, besides counterOffset: how many clients are ready, and how many are done.
const (
	readyOffset = 128
	doneOffset  = 192
)

// A realRun is a run of a Part.
type realRun struct {
	m       *Micro
	plan    plan
	part    *Part
	clients []*client
	stop    atomic.Bool
	mu      sync.Mutex
	err     error
}

// Real runs a process's share of a microbenchmark on a fabric in real time: a goroutine for each
// client. All processes begin together, when the last client is ready. When ctx ends, so does the run,
// and what was measured until then is the result. The nodes stay open, and their agents run until they are closed.
func Real(ctx context.Context, m Micro, part Part) (*Result, error) {
	m = m.WithDefaults().timed()
	if err := m.Validate(); err != nil {
		return nil, err
	}
	if part.First < 0 || part.First+len(part.Nodes) > m.CNs || len(part.Nodes) == 0 {
		return nil, fmt.Errorf("%w: compute nodes %d to %d of %d", ErrMicro, part.First, part.First+len(part.Nodes)-1, m.CNs)
	}
	sys, err := m.system(part.Base.Add(counterOffset), 0)
	if err != nil {
		return nil, err
	}
	r := &realRun{m: &m, part: &part, plan: newPlan(sys.Layout(), m.Locks, part.Base)}
	if err := r.open(sys); err != nil {
		return nil, errors.Join(err, r.close())
	}
	defer context.AfterFunc(ctx, func() { r.stop.Store(true) })()
	var clients sync.WaitGroup
	for _, c := range r.clients {
		clients.Go(func() { r.fail(r.client(c)) })
	}
	clients.Wait()
	res := &Result{tally: newTally(realDigits)}
	for _, c := range r.clients {
		res.tally.merge(c.notes.(*tally))
		stats.Add(&res.Locks, &c.counted.Locks)
		stats.Add(&res.Ports, &c.counted.Ports)
		res.WindowNs = max(res.WindowNs, c.to-c.from)
	}
	res.Ops = res.tally.ops
	return res, errors.Join(r.err, r.close())
}

// realDigits are the digits of a client's own histograms: there may be thousands.
const realDigits = 2

// open joins the nodes, starts their agents and opens the clients.
func (r *realRun) open(sys *locks.System) error {
	zipf, err := traces.NewZipf(uint64(r.m.Locks), r.m.Theta)
	if err != nil {
		return err
	}
	for i, node := range r.part.Nodes {
		join, err := sys.Join(node)
		if err != nil {
			return err
		}
		if join.Run != nil {
			go func() {
				if err := join.Run(r.part.Report); err != nil && r.part.Report != nil {
					r.part.Report(err)
				}
			}()
		}
		for k := r.part.First + i; k < r.m.Clients; k += r.m.CNs {
			port, err := node.Open()
			if err != nil {
				return err
			}
			r.clients = append(r.clients, newClient(r.m, &r.plan, r.m.sequence(zipf, k), join.Locker(port), newTally(realDigits)))
		}
	}
	return nil
}

// close closes the clients.
func (r *realRun) close() error {
	var errs []error
	for _, c := range r.clients {
		errs = append(errs, c.port.Close())
	}
	return errors.Join(errs...)
}

// fail takes note of the first error, and ends the run.
func (r *realRun) fail(err error) {
	if err == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
	r.stop.Store(true)
}

// client is the code of one client.
func (r *realRun) client(c *client) error {
	if err := r.meet(c, readyOffset); err != nil {
		return err
	}
	start := c.port.Now()
	c.due = start
	c.from, c.to = start+r.m.WarmupNs, start+r.m.WarmupNs+r.m.WindowNs
	counted := false
	var before counters
	for !r.stop.Load() {
		now := c.port.Now()
		if !counted && now >= c.from {
			counted = true
			before.add(c.lock)
		}
		if now >= c.to {
			break
		}
		if err := c.step(c.from, c.to); err != nil {
			return err
		}
	}
	c.to = min(c.to, max(c.port.Now(), c.from+1))
	c.counted.add(c.lock)
	stats.Subtract(&c.counted, &before)
	// No client leaves before all are done: others may wait for messages from this one.
	return r.meet(c, doneOffset)
}

// meetingNs is the time between two READs of how many clients are there.
const meetingNs = 100 * fabric.Microsecond

// meet waits until all clients of all processes have come, or the run is stopped.
func (r *realRun) meet(c *client, word uint64) error {
	op := [1]fabric.Op{fabric.FAA(r.part.Base.Add(word), 1)}
	if err := c.port.Do(op[:]); err != nil {
		return err
	}
	for have := op[0].Old + 1; have < uint64(r.m.Clients) && !r.stop.Load(); have = op[0].Old {
		if err := c.port.Pause(c.port.Now() + meetingNs); err != nil {
			return err
		}
		op[0] = fabric.Load(r.part.Base.Add(word))
		if err := c.port.Do(op[:]); err != nil {
			return err
		}
	}
	return nil
}

// A WireResult is a Result on its way from one process to another.
type WireResult struct {
	Ops, Lost  uint64
	WindowNs   fabric.Time
	Locks      lock.Stats
	Ports      fabric.Stats
	Histograms [4]*hdrhistogram.Snapshot
}

// Wire returns what Merge takes.
func (r *Result) Wire() WireResult {
	w := WireResult{Ops: r.Ops, Lost: r.tally.lost, WindowNs: r.WindowNs, Locks: r.Locks, Ports: r.Ports}
	for i, h := range r.tally.histograms() {
		w.Histograms[i] = h.Export()
	}
	return w
}

// Merge adds what another process measured at the same time.
func (r *Result) Merge(w WireResult) error {
	if r.tally == nil {
		r.tally = newTally(realDigits)
	}
	for i, h := range r.tally.histograms() {
		if w.Histograms[i] == nil {
			return fmt.Errorf("bench: a result without a histogram")
		}
		h.Merge(hdrhistogram.Import(w.Histograms[i]))
	}
	r.Ops += w.Ops
	r.tally.lost += w.Lost
	r.WindowNs = max(r.WindowNs, w.WindowNs)
	stats.Add(&r.Locks, &w.Locks)
	stats.Add(&r.Ports, &w.Ports)
	return nil
}
