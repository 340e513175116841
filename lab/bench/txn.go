package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks"
	"github.com/declock/declock/lab/locktrace"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/traces"
)

// A txnRun is a run of transactions by two-phase locking: a client takes all locks of a transaction, executes it, which is a pause, and releases them.
type txnRun struct {
	simulation
	m        Micro // of which lock, clients and network count
	trace    string
	artifact bool
	// sorted: locks are taken in the order of their numbers. Otherwise in that of the transaction, which gives up after txnPatience, releases all, and begins again.
	sorted bool
	mutex  bool // there are no shared holders, as ShiftLock's authors ran it

	plan   plan
	aborts uint64
}

// The pauses for which ShiftLock's clients execute a transaction (its section 4.4), and after how long FissLock's give up.
var txnThink = map[string]fabric.Time{"tatp": 2800, "tpcc": 7 * fabric.Microsecond}

const txnPatience = 10 * fabric.Millisecond

// Sizes of the databases: 100 warehouses for each compute node.
const (
	txnWarehouses  = 100
	txnSubscribers = 100_000
)

func (r txnRun) point(m Micro, params Params, o Options) Point {
	m = m.WithDefaults()
	return Point{
		Cost: 1e8 * float64(min(m.Clients, 64)),
		Measure: one(params, func(ctx context.Context, seed uint64) (Metrics, error) {
			r := r
			r.m = m
			r.m.Seed = seed
			metrics, err := r.run(ctx, o)
			if err != nil {
				err = fmt.Errorf("%s with %s: %w", r.trace, m.Lock, err)
			}
			return metrics, err
		}),
	}
}

// sources returns how many locks there are, and what makes the transactions of a client of a node.
func (r *txnRun) sources(o Options) (int, func(node, client int) locktrace.Source) {
	random := func(client int) *traces.Rand { return traces.NewRand(r.m.Seed, uint64(client)) }
	if r.trace == "tpcc" {
		db := &locktrace.TPCC{Warehouses: txnWarehouses * r.m.CNs, Nodes: r.m.CNs, Artifact: r.artifact}
		return db.Locks(), func(node, client int) locktrace.Source { return db.Source(node, random(client)) }
	}
	subscribers := txnSubscribers
	if o.Tiny {
		subscribers = 1000
	}
	db := locktrace.NewTATP(subscribers, r.artifact)
	return db.Locks(), func(_, client int) locktrace.Source { return db.Source(random(client)) }
}

func (r *txnRun) run(ctx context.Context, o Options) (Metrics, error) {
	sys, err := r.m.system(fabric.At(0, counterOffset), locks.ServerNs)
	if err != nil {
		return nil, err
	}
	n, source := r.sources(o)
	r.plan = newPlan(sys.Layout(), n, 0)
	r.c = sim.New(r.m.cluster())
	defer r.c.Close()
	r.c.AddMN(r.plan.size())
	for i := range r.m.CNs {
		node := r.c.AddCN()
		joined, err := sys.Join(node)
		if err != nil {
			return nil, err
		}
		r.startAgent(joined, node)
		for k := i; k < r.m.Clients; k += r.m.CNs {
			src := source(i, k)
			r.c.Go(node, fmt.Sprintf("client %d", k), func(p fabric.Port) {
				l := joined.Locker(p)
				r.lockers = append(r.lockers, l)
				r.fail(r.work(l, src))
			})
		}
	}
	part, err := r.settle(ctx, r.m.pace(), func(*counters) {})
	if err != nil {
		return nil, err
	}
	res := &Result{Ops: uint64(part.last - part.first), WindowNs: part.window(), counters: part.counters, part: part,
		tally: r.journal.tally(part.first, part.last)}
	metrics := res.Metrics()
	metrics["aborts_pct"] = 100 * float64(r.aborts) / float64(max(len(r.journal.list), 1))
	return metrics, nil
}

// work does transactions until the run ends.
func (r *txnRun) work(l lock.Locker, src locktrace.Source) error {
	var list []locktrace.Access
	holds := make([]lock.Hold, 64)
	for port := l.Port(); r.err == nil; {
		if list = src.Next(list[:0]); len(list) == 0 {
			continue
		}
		if r.sorted {
			slices.SortFunc(list, func(a, b locktrace.Access) int { return cmp.Compare(a.Lock, b.Lock) })
		}
		if n := len(list); n > len(holds) {
			holds = make([]lock.Hold, n)
		}
		began := port.Now()
		for {
			err := r.begin(l, list, holds)
			if err == nil {
				break
			}
			if !errors.Is(err, lock.ErrTimeout) {
				return err
			}
			r.aborts++
		}
		got := port.Now()
		if err := port.Pause(got + txnThink[r.trace]); err != nil {
			return err
		}
		ready := port.Now()
		if err := r.end(l, holds[:len(list)]); err != nil {
			return err
		}
		now := port.Now()
		r.journal.add(now-began, got-began, now-ready, false)
	}
	return nil
}

// begin takes the locks of a transaction, or none.
func (r *txnRun) begin(l lock.Locker, list []locktrace.Access, holds []lock.Hold) error {
	deadline := fabric.Time(0)
	if !r.sorted {
		deadline = l.Port().Now() + txnPatience
	}
	for i, a := range list {
		if r.mutex {
			a.Mode = lock.Exclusive
		}
		err := l.Acquire(&holds[i], &lock.Request{Lock: r.plan.addr(uint64(a.Lock)), Mode: a.Mode, Deadline: deadline})
		if err != nil {
			return errors.Join(err, r.end(l, holds[:i]))
		}
	}
	return nil
}

// end releases locks. One that was held for longer than its lease is lost, and counted.
func (r *txnRun) end(l lock.Locker, holds []lock.Hold) error {
	for i := range holds {
		if err := l.Release(&holds[i], nil); errors.Is(err, lock.ErrLost) {
			r.journal.lose()
		} else if err != nil {
			return err
		}
	}
	return nil
}

// txnLocks are those of ShiftLock's Fig. 10, and declock.
var txnLocks = []string{"cas-backoff", "dslr", "drtm", "mcs", "rmarw", "rpc", delayed, "declock"}

// txnParts are the ways in which transactions are made and run. ShiftLock's evaluation has the first.
var txnParts = []struct {
	name             string
	artifact, sorted bool
}{{"as published, sorted", true, true}, {"as published, aborts", true, false}, {"by the specification, sorted", false, true}}

func txnPoints(trace string) func(Options) []Point {
	return func(o Options) (points []Point) {
		for i, part := range txnParts {
			if o.Tiny && i > 1 {
				break
			}
			for _, name := range txnLocks {
				if i > 0 && name != delayed && name != "declock" && name != "dslr" {
					continue
				}
				m := Default(name)
				m.NIC = "cx5"
				if name == delayed {
					m.Lock, m.Tune = "shift-artifact", delay
				}
				(&shift4).testbed(&m)
				r := txnRun{trace: trace, artifact: part.artifact, sorted: part.sorted, mutex: slices.Contains(shift4.mutexes, name)}
				points = append(points, r.point(m.sized(o), Params{{"part", part.name}, {"lock", name}, {"clients", m.Clients}}, o))
			}
		}
		return points
	}
}

var txnColumns = []string{"part", "lock", "clients", "mops", "p50_us", "p99_us", "mn_ops_per_op", "aborts_pct", "lost"}

// overOthers is ShiftLock's goodput over that of another lock, in transactions as in its evaluation.
func overOthers(rows Rows, lock string) float64 {
	of := rows.Where("part", txnParts[0].name)
	return Ratio(of.Find("lock", delayed), of.Find("lock", lock), "mops")
}

var expTATP = &Experiment{
	Name: "tatp", Other: true, Apart: true, Title: "ShiftLock's Fig. 10: TATP by two-phase locking, 100,000 subscribers",
	Paper:   "ShiftLock's paper, section 4.4: ShiftLock is mildly better than CAS, DSLR and MCS, by 6.9 % in goodput over CAS and MCS, and has 1.25 to 2.85x the goodput of others.",
	Columns: txnColumns, Points: txnPoints("tatp"),
	Judge: func(rows Rows) []Claim {
		return []Claim{
			Claim{Text: "ShiftLock's goodput over CAS's", Unit: "x", Paper: 1.069}.Near(overOthers(rows, "cas-backoff"), 1.1),
			Claim{Text: "ShiftLock's goodput over MCS's", Unit: "x", Paper: 1.069}.Near(overOthers(rows, "mcs"), 1.1),
			Claim{Text: "ShiftLock's goodput over RMA-RW's", Unit: "x"}.Within(overOthers(rows, "rmarw"), 1.25, 2.85),
			Claim{Text: "ShiftLock's goodput over DrTM's", Unit: "x"}.Within(overOthers(rows, "drtm"), 1.25, 2.85),
		}
	},
}

var expTPCC = &Experiment{
	Name: "tpcc", Other: true, Apart: true, Title: "ShiftLock's Fig. 10: TPC-C by two-phase locking, 100 warehouses for each compute node",
	Paper:   "ShiftLock's paper, section 4.4: ShiftLock has 1.09 to 2.14x the goodput of other RDMA locks; MCS is only slightly worse, and RMA-RW is the worst of them.",
	Columns: txnColumns, Points: txnPoints("tpcc"),
	Judge: func(rows Rows) []Claim {
		return []Claim{
			Claim{Text: "ShiftLock's goodput over MCS's", Unit: "x", Paper: 1.09}.Near(overOthers(rows, "mcs"), 1.1),
			Claim{Text: "ShiftLock's goodput over CAS's", Unit: "x"}.Within(overOthers(rows, "cas-backoff"), 1.09, 2.14),
			Claim{Text: "ShiftLock's goodput over DSLR's", Unit: "x"}.Within(overOthers(rows, "dslr"), 1.09, 2.14),
			Claim{Text: "ShiftLock's goodput over RMA-RW's", Unit: "x", Paper: 2.14}.Near(overOthers(rows, "rmarw"), 1.25),
		}
	},
}
