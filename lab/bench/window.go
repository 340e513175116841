package bench

import (
	"context"
	"errors"
	"runtime"

	"github.com/declock/declock/btree"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/internal/stats"
	"github.com/declock/declock/lab/locks"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
)

// A simulation is what runs on a simulated cluster have in common.
type simulation struct {
	c       *sim.Cluster
	err     error // the first of a client or agent
	lockers []lock.Locker
	journal journal   // of the clients' operations
	device  *sim.Node // the programmable switch, if the lock needs one
	agents  []*sim.Node
}

// fail takes note of the first error.
func (s *simulation) fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

// open adds compute nodes to a cluster whose memory node holds a store or tree, and the Lockers of their clients, which are dealt out
// evenly. use is called with a Port of each node before its clients come, and client with the Locker of each.
func (s *simulation) open(sys *locks.System, cns, clients int, format memory.Params, use func(*sim.Node, *locks.Node, fabric.Port) error, client func(k int, l lock.Locker) error) error {
	if err := s.addSwitch(sys); err != nil {
		return err
	}
	for i := range cns {
		node := s.c.AddCN()
		p, err := node.Open()
		if err != nil {
			return err
		}
		if i == 0 {
			if err := memory.Format(p, 0, format); err != nil {
				return err
			}
		}
		n, err := sys.Join(node)
		if err != nil {
			return err
		}
		if err := use(node, n, p); err != nil {
			return err
		}
		for k := i; k < clients; k += cns {
			port, err := node.Open()
			if err != nil {
				return err
			}
			l := n.Locker(port)
			s.lockers = append(s.lockers, l)
			if err := client(k, l); err != nil {
				return err
			}
		}
	}
	return nil
}

// switchModel is a Tofino, assumed: some 400 ns for a program's stages, and a packet a nanosecond.
var switchModel = sim.SwitchModel{Pass: 400, Packet: 1}

// addSwitch adds a programmable switch, if the lock needs one.
func (s *simulation) addSwitch(sys *locks.System) error {
	program, err := sys.Program()
	if program != nil {
		s.device = s.c.AddSwitch(program, switchModel)
	}
	return err
}

// packets is how many packets the program of the switch has handled, 0 without one.
func (s *simulation) packets() uint64 {
	if s.device == nil {
		return 0
	}
	return s.device.SwitchStats().Packets
}

// busiest returns how many messages the agent that has sent most has sent, over the mean of all; 0 if none has sent any.
func (s *simulation) busiest() float64 {
	most, all := uint64(0), uint64(0)
	for _, n := range s.agents {
		sent := n.Agent().Stats().Sent
		most, all = max(most, sent), all+sent
	}
	return per(most*uint64(len(s.agents)), all)
}

// startAgent starts the agent of a compute node, if the lock has one.
func (s *simulation) startAgent(n *locks.Node, node *sim.Node) {
	if n.Run != nil {
		s.agents = append(s.agents, node)
		s.c.GoAgent(node, func(fabric.Port) { s.fail(n.Run(s.fail)) })
	}
}

// A measured is the part of a run that is measured.
type measured struct {
	counters
	from, to    fabric.Time // since the run began
	first, last int         // of the journal: from one entry to before another
	steady      bool
	drift       float64
}

// metrics adds what is said of every measured part to the metrics of a run.
func (r *measured) metrics(m Metrics) Metrics {
	m["settle_us"], m["window_us"], m["drift_pct"], m["steady"] = float64(r.from)/1e3, float64(r.to-r.from)/1e3, 100*r.drift, 0
	if r.steady {
		m["steady"] = 1
	}
	return m
}

func (r *measured) window() fabric.Time { return r.to - r.from }

// A mark is what was counted at an end of a batch.
type mark struct {
	counters
	at   fabric.Time
	done int // operations in the journal
}

// settle lets virtual time go by until the clients' operations are measured as the pace says. more counts what Lockers do not.
func (s *simulation) settle(ctx context.Context, p Pace, more func(*counters)) (*measured, error) {
	begin := s.c.Now()
	look := func(at fabric.Time) (m mark, err error) {
		if ctx.Err() != nil {
			return m, context.Cause(ctx)
		}
		if err := errors.Join(s.c.RunUntil(begin+at), s.err); err != nil {
			return m, err
		}
		m.at, m.done = at, len(s.journal.list)
		for _, l := range s.lockers {
			m.add(l)
		}
		more(&m.counters)
		runtime.Gosched()
		return m, nil
	}
	if p.WindowNs > 0 {
		return fixedWindow(&p, look)
	}
	start, err := look(0)
	if err != nil {
		return nil, err
	}
	marks, t := []mark{start}, newSettling(p)
	for {
		m, err := look(marks[len(marks)-1].at + t.length)
		if err != nil {
			return nil, err
		}
		done, skip, steady := t.add(uint64(m.done - marks[len(marks)-1].done))
		if marks = append(marks, m); done {
			return between(&marks[skip], &m, steady, drift(t.ops[skip:])), nil
		}
		if t.join() {
			for i := range t.ops {
				marks[i+1] = marks[2*(i+1)]
			}
			marks = marks[:len(t.ops)+1]
		}
	}
}

// fixedWindow measures a window that is given.
func fixedWindow(p *Pace, look func(fabric.Time) (mark, error)) (*measured, error) {
	first, err := look(p.WarmupNs)
	if err != nil {
		return nil, err
	}
	ended := func(m *mark) uint64 {
		if p.Ends {
			return m.Locks.Acquires + m.Locks.Aborts
		}
		return uint64(m.done)
	}
	last, series := first, []uint64(nil)
	for i := fabric.Time(1); i <= maxBatches || uint64(last.done-first.done) < p.Ops && last.at < p.LimitNs; i++ {
		m, err := look(p.WarmupNs + p.WindowNs*i/maxBatches)
		if err != nil {
			return nil, err
		}
		series = append(series, ended(&m)-ended(&last))
		last = m
	}
	d := drift(series)
	return between(&first, &last, d <= p.Tolerance && ended(&last)-ended(&first) >= p.LeastOps, d), nil
}

// between returns what was measured between two marks.
func between(a, b *mark, steady bool, drift float64) *measured {
	r := &measured{counters: b.counters, from: a.at, to: b.at, first: a.done, last: b.done, steady: steady, drift: drift}
	stats.Subtract(&r.counters, &a.counters)
	return r
}

// counters are what all clients of a run have counted.
type counters struct {
	Locks lock.Stats
	Ports fabric.Stats
	Trees btree.Stats
	Steps steps
}

// add adds what a client has counted.
func (c *counters) add(l lock.Locker) {
	stats.Add(&c.Locks, l.Stats())
	stats.Add(&c.Ports, l.Port().Stats())
}
