package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
)

// A Config says how experiments are run.
type Config struct {
	Options
	Seed    uint64 // the first; others follow it
	Seeds   int    // of each point; 0 means 3
	Workers int    // measurements at a time; 0: as many as there are cores
	// Progress is called with what was done, by one goroutine at a time; it may be nil.
	Progress func(Progress)
}

// Progress is how far a run is.
type Progress struct {
	Experiment      string
	Cost, TotalCost float64
}

// An Outcome is what an experiment gave.
type Outcome struct {
	Experiment *Experiment
	Rows       Rows
	Claims     []Claim
	// Cut: the run ended before all was measured.
	Cut bool
}

// A task is one measurement.
type task struct {
	Point
	exp     *Experiment
	seed    uint64
	index   int // of the seed
	samples []Sample
	done    bool
	spent   time.Duration
}

// Run measures experiments, several measurements at a time, and judges them. Its outcomes depend on the
// seed and not on Workers. When ctx ends, what has been measured is returned along with its error; so is it
// when a measurement fails.
func Run(ctx context.Context, list []*Experiment, cfg Config) ([]Outcome, error) {
	cfg.Seeds, cfg.Workers = cmp.Or(cfg.Seeds, 3), cmp.Or(cfg.Workers, runtime.GOMAXPROCS(0))
	cfg.NIC = cmp.Or(cfg.NIC, DefaultNIC)
	tasks := plans(list, &cfg)
	err := work(ctx, tasks, &cfg)
	outcomes := make([]Outcome, len(list))
	for i, e := range list {
		outcomes[i] = Outcome{Experiment: e}
		o := &outcomes[i]
		o.Rows, o.Cut = collect(e, tasks)
		if e.Judge != nil && len(o.Rows) > 0 {
			o.Claims = e.Judge(o.Rows)
		}
		for k := range o.Claims {
			o.Claims[k].Experiment, o.Claims[k].Other = e.Name, e.Other && !o.Claims[k].Own
		}
	}
	return outcomes, err
}

// plans returns all measurements, in the order of their points.
func plans(list []*Experiment, cfg *Config) []*task {
	var tasks []*task
	for _, e := range list {
		for _, p := range e.Points(cfg.Options) {
			for s := range cmp.Or(p.Seeds, cfg.Seeds) {
				tasks = append(tasks, &task{Point: p, exp: e, seed: cfg.Seed + uint64(s), index: s})
			}
		}
	}
	return tasks
}

// work runs the tasks. First seeds go first, so that a run that is cut short has something of
// everything; among them the costly ones, so that no worker is left with one at the end.
func work(ctx context.Context, tasks []*task, cfg *Config) error {
	order := slices.Clone(tasks)
	slices.SortStableFunc(order, func(a, b *task) int {
		return cmp.Or(cmp.Compare(a.index, b.index), cmp.Compare(b.Cost, a.Cost))
	})
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var p Progress
	queue := make(chan *task, len(order))
	for _, t := range order {
		p.TotalCost += t.Cost
		queue <- t
	}
	close(queue)
	var mu sync.Mutex
	var running sync.WaitGroup
	for range cfg.Workers {
		running.Go(func() {
			for t := range queue {
				if ctx.Err() != nil {
					return
				}
				began := time.Now()
				samples, err := t.Measure(ctx, t.seed)
				if err != nil {
					if !errors.Is(err, context.Canceled) {
						err = fmt.Errorf("bench: %s, seed %d: %w", t.exp.Name, t.seed, err)
					}
					cancel(err)
					return
				}
				mu.Lock()
				t.samples, t.done, t.spent = samples, true, time.Since(began)
				p.Cost += t.Cost
				p.Experiment = t.exp.Name
				if cfg.Progress != nil {
					cfg.Progress(p)
				}
				mu.Unlock()
			}
		})
	}
	running.Wait()
	return context.Cause(ctx)
}

// collect makes the rows of an experiment, in the order of its points.
func collect(e *Experiment, tasks []*task) (rows Rows, cut bool) {
	type group struct {
		params Params
		values map[string][]float64
		spent  time.Duration
	}
	var groups []*group
	byKey := map[string]*group{}
	for _, t := range tasks {
		if t.exp != e {
			continue
		}
		cut = cut || !t.done
		for _, s := range t.samples {
			key := s.Params.key()
			g := byKey[key]
			if g == nil {
				g = &group{params: s.Params, values: map[string][]float64{}}
				byKey[key] = g
				groups = append(groups, g)
			}
			g.spent += t.spent / time.Duration(len(t.samples))
			for name, v := range s.Metrics {
				g.values[name] = append(g.values[name], v)
			}
		}
	}
	for _, g := range groups {
		r := Row{Experiment: e.Name, Params: g.params, Metrics: map[string]Estimate{}, Spent: g.spent}
		for name, values := range g.values {
			r.Metrics[name] = estimate(values)
		}
		rows = append(rows, r)
	}
	return rows, cut
}
