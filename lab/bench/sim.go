package bench

import (
	"context"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/traces"
)

// A simRun is a run of a Micro in virtual time.
type simRun struct {
	simulation
	m       Micro
	plan    plan
	tally   *tally
	clients []*client
}

// simDigits are the digits of the histograms of a simulated run.
const simDigits = 3

// Sim runs a microbenchmark on a simulated cluster. The same Micro gives the same
// Result, to the last digit. It may be called from several goroutines at once.
func Sim(ctx context.Context, m Micro) (*Result, error) {
	m = m.WithDefaults()
	if err := m.Validate(); err != nil {
		return nil, err
	}
	s := &simRun{m: m, tally: newTally(simDigits)}
	defer func() {
		if s.c != nil {
			s.c.Close()
		}
	}()
	if err := s.build(); err != nil {
		return nil, err
	}
	return s.run(ctx)
}

// build makes the cluster and its clients. Clients are dealt out evenly.
func (s *simRun) build() error {
	m := &s.m
	sys, err := m.system(0)
	if err != nil {
		return err
	}
	s.plan = newPlan(sys.Layout(), m.Locks, 0)
	zipf, err := traces.NewZipf(uint64(m.Locks), m.Theta)
	if err != nil {
		return err
	}
	s.c = sim.New(sim.Config{Seed: m.Seed, NIC: m.nic()})
	s.c.AddMN(s.plan.size())
	for i := range m.CNs {
		node := s.c.AddCN()
		locks, err := s.join(sys, node)
		if err != nil {
			return err
		}
		for k := i; k < m.Clients; k += m.CNs {
			seq := m.sequence(zipf, k)
			s.c.Go(node, fmt.Sprintf("client %d", k), func(p fabric.Port) {
				c := newClient(m, &s.plan, seq, locks.Locker(p), s.tally)
				s.clients = append(s.clients, c)
				s.client(c)
			})
		}
	}
	return nil
}

// client is the code of one client.
func (s *simRun) client(c *client) {
	for s.err == nil {
		s.fail(c.step(s.m.WarmupNs, s.m.WarmupNs+s.m.WindowNs))
	}
}

// run lets virtual time go by, and takes the figures of the window.
func (s *simRun) run(ctx context.Context) (*Result, error) {
	counted, err := s.window(ctx, s.m.WarmupNs, s.m.WindowNs, func(n *counters) {
		for _, c := range s.clients {
			n.add(c.lock)
		}
	})
	if err != nil {
		return nil, err
	}
	r := &Result{Ops: s.tally.ops, WindowNs: s.m.WindowNs, counters: counted, tally: s.tally}
	for _, c := range s.clients {
		if c.began != 0 {
			r.OldestNs = max(r.OldestNs, s.m.WarmupNs+s.m.WindowNs-c.began)
		}
	}
	return r, nil
}

// Params returns the parameters that rows of a microbenchmark have.
func (m Micro) Params() Params {
	return Params{{"lock", m.Lock}, {"clients", m.Clients}, {"cs_len", m.CSLen}, {"read_pct", m.ReadPct},
		{"locks", m.Locks}, {"theta", m.Theta}}
}
