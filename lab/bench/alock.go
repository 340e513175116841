package bench

import (
	"context"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/traces"
)

// A nearRun is clients on machines that have memory, too: most of a client's locks are on its own machine. Atomics of the NIC are none to the CPU.
type nearRun struct {
	simulation
	m     Micro
	local int // percent of the acquisitions, of locks of the own machine
	plans []plan
}

// client is the code of a client of the i-th machine.
func (r *nearRun) client(i int, l lock.Locker, random *traces.Rand) {
	var h lock.Hold
	for port := l.Port(); r.err == nil; {
		at := i
		if len(r.plans) > 1 && int(random.Below(100)) >= r.local {
			at = (i + 1 + int(random.Below(uint64(len(r.plans)-1)))) % len(r.plans)
		}
		p := &r.plans[at]
		began := port.Now()
		if err := l.Acquire(&h, &lock.Request{Lock: p.addr(random.Below(p.locks)), Mode: lock.Exclusive}); err != nil {
			r.fail(err)
			return
		}
		got := port.Now()
		if err := l.Release(&h, nil); err != nil {
			r.fail(err)
			return
		}
		r.journal.add(port.Now()-began, got-began, port.Now()-got, false)
	}
}

func (r *nearRun) run(ctx context.Context) (Metrics, error) {
	m := &r.m
	sys, err := m.system(fabric.At(0, counterOffset), locks.ServerNs)
	if err != nil {
		return nil, err
	}
	cfg := m.cluster()
	cfg.SplitAtomics = true
	r.c = sim.New(cfg)
	defer r.c.Close()
	var nodes []*sim.Node
	for i := range m.CNs {
		r.plans = append(r.plans, newPlan(sys.Layout(), max(m.Locks/m.CNs, 1), fabric.At(fabric.MemID(i), 0)))
		mn := r.c.AddMN(r.plans[i].size())
		nodes = append(nodes, r.c.AddCN())
		r.c.Place(nodes[i], mn)
	}
	for i, node := range nodes {
		joined, err := sys.Join(node)
		if err != nil {
			return nil, err
		}
		r.startAgent(joined, node)
		for k := i; k < m.Clients; k += m.CNs {
			random := traces.NewRand(m.Seed, uint64(k))
			r.c.Go(node, fmt.Sprintf("client %d", k), func(p fabric.Port) {
				l := joined.Locker(p)
				r.lockers = append(r.lockers, l)
				r.client(i, l, random)
			})
		}
	}
	part, err := r.settle(ctx, m.pace(), func(*counters) {})
	if err != nil {
		return nil, err
	}
	res := &Result{Ops: uint64(part.last - part.first), WindowNs: part.window(), counters: part.counters, part: part, tally: r.journal.tally(part.first, part.last)}
	return res.Metrics(), nil
}

var expALock = &Experiment{
	Name: "alock", Other: true, Apart: true, Title: "ALock: locks of the client's own machine, and of others",
	Paper:   "ALock's abstract (SPAA 2024): where most operations are local, ALock has up to 29 times the throughput of locks by loopback, and up to 20 times lower latencies. Here: 5 machines of 8 clients, 100 locks; cas is its spinlock, mcs its MCS lock.",
	Columns: []string{"lock", "local_pct", "mops", "acquire_p50_us", "acquire_p99_us"},
	Points: func(o Options) []Point {
		return across(pick(o, []int{85, 90, 95, 99, 100}, 85, 95, 100), []string{"qplock", "alock", "cas", "mcs", "declock"}, func(local int, lock string) Point {
			m := Default(lock)
			m.NIC, m.Clients, m.CNs, m.CoreClients, m.CSLen, m.Locks = "cx5", 40, 5, 1, 0, 100
			m = m.sized(o).WithDefaults()
			return Point{Cost: 1e8, Measure: one(Params{{"lock", lock}, {"local_pct", local}}, func(ctx context.Context, seed uint64) (Metrics, error) {
				r := nearRun{m: m, local: local}
				r.m.Seed = seed
				return r.run(ctx)
			})}
		})
	},
	Judge: func(rows Rows) []Claim {
		byLoopback := []string{"cas", "mcs"}
		over := func(lock string) Along { return rows.OverBest(lock, byLoopback, "local_pct", "mops", Most) }
		tail := rows.OverBest("alock", byLoopback, "local_pct", "acquire_p50_us", Least)
		for i, v := range tail.Values {
			tail.Values[i] = 1 / v
		}
		ours := rows.OverBest("declock", byLoopback, "local_pct", "mops", Most)
		note := "an access by CPU takes 60 ns, and loopback 400 ns each way, by assumption: alone on its machine's locks a client takes 0.4 us to acquire and release one by CPU, six accesses one after the other, and 3 us by loopback. " + both(rows, "alock", "cas", "local_pct", "mops")
		return []Claim{
			Claim{Text: "ALock's throughput over the better of cas and mcs by loopback, up to", Unit: "x", Paper: 29, Note: note}.UpTo(over("alock"), Claim.AtLeast, 20),
			Claim{Text: "ALock's median acquisition is faster than the faster of them, up to", Unit: "x", Paper: 20, Note: note}.UpTo(tail, Claim.AtLeast, 14),
			Claim{Own: true, Text: "qplock's throughput over them, at least", Unit: "x", Row: over("qplock").String()}.AtLeast(over("qplock").Least(), 1),
			Claim{Own: true, Text: "declock's throughput over them by loopback, at least", Unit: "x", Sweep: ours}.AtLeast(ours.Least(), 1),
		}
	},
}
