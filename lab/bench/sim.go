package bench

import (
	"cmp"
	"context"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks"
	"github.com/declock/declock/traces"
)

// A simRun is a run of a Micro in virtual time.
type simRun struct {
	simulation
	m       Micro
	plan    plan
	clients []*client
	steps   steps
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
	s := &simRun{m: m}
	s.c = sim.New(m.cluster())
	defer s.c.Close()
	if err := s.build(); err != nil {
		return nil, err
	}
	return s.measure(ctx)
}

// build makes the cluster and its clients. Clients are dealt out evenly.
func (s *simRun) build() error {
	m := &s.m
	sys, err := m.system(fabric.At(0, counterOffset), cmp.Or(m.ServerNs, locks.ServerNs))
	if err != nil {
		return err
	}
	s.plan = newPlan(sys.Layout(), m.Locks, 0)
	zipf, err := traces.NewZipf(uint64(m.Locks), m.Theta)
	if err != nil {
		return err
	}
	s.c.AddMN(s.plan.size())
	sys.Profile(func(n int) (hottest []fabric.Addr) {
		for rank := range uint64(min(n, m.Locks)) {
			hottest = append(hottest, s.plan.addr(rank))
		}
		return hottest
	})
	if err := s.addSwitch(sys); err != nil {
		return err
	}
	var used *usedLocks
	if m.Used {
		used = newUsedLocks(s.c, m.Locks, sys.Used(), m.mostlyRead())
	}
	for i := range m.CNs {
		node := s.c.AddCN()
		locks, err := sys.Join(node)
		if err != nil {
			return err
		}
		s.startAgent(locks, node)
		for k := i; k < m.Clients; k += m.CNs {
			seq := m.sequence(zipf, k)
			s.c.Go(node, fmt.Sprintf("client %d", k), func(p fabric.Port) {
				c := newClient(m, &s.plan, seq, used.over(locks.Locker(s.timer(p)), &s.plan), &s.journal)
				s.clients, s.lockers = append(s.clients, c), append(s.lockers, c.lock)
				s.client(c)
			})
		}
	}
	return nil
}

// client is the code of one client.
func (s *simRun) client(c *client) {
	for s.err == nil {
		s.fail(c.step(0, fabric.Forever))
	}
}

// measure lets virtual time go by, and takes the figures.
func (s *simRun) measure(ctx context.Context) (*Result, error) {
	part, err := s.settle(ctx, s.m.pace(), func(c *counters) { c.Steps = s.steps })
	if err != nil {
		return nil, err
	}
	r := &Result{Ops: uint64(part.last - part.first), WindowNs: part.window(), counters: part.counters, part: part,
		tally: s.journal.tally(part.first, part.last)}
	if n := s.m.CSLen; n > 0 && s.m.Rate == 0 {
		r.data = s.journal.data(part.first, part.last, n)
	}
	for _, c := range s.clients {
		if c.began != 0 {
			r.OldestNs = max(r.OldestNs, part.to-c.began)
		}
	}
	return r, nil
}

// Params returns the parameters that rows of a microbenchmark have.
func (m Micro) Params() Params {
	return Params{{"lock", m.Lock}, {"clients", m.Clients}, {"cs_len", m.CSLen}, {"read_pct", m.ReadPct},
		{"locks", m.Locks}, {"theta", m.Theta}}
}
