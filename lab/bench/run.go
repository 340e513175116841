package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"
)

// A Config says how experiments are run.
type Config struct {
	Options
	Seed    uint64 // the first; others follow it
	Seeds   int    // of each point; 0: as many as the point asks for
	Workers int    // measurements at a time; 0: as many as there are cores
	// Kept names a file for measurements in virtual time: those that are in it are not taken again, and others are added. Only the build that has
	// begun the file can use it. Empty: none.
	Kept string
	// Progress is called with what was done, by one goroutine at a time; it may be nil.
	Progress func(Progress)
}

// seedsOf is how many seeds a point has.
func (c *Config) seedsOf(p *Point) int {
	if c.Seeds == 0 && p.Seeds == 0 && p.Near && !c.Quick {
		return severalSeeds
	}
	return cmp.Or(c.Seeds, p.Seeds, 1)
}

// severalSeeds are enough to judge by a bar that is near.
const severalSeeds = 3

// Runs says how many seeds points have.
func (c *Config) Runs() string {
	if c.Seeds == 0 {
		return "1 run of each point, or as many as it asks for"
	}
	return fmt.Sprintf("%d run(s) of each point", c.Seeds)
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
	index   int     // of the seed
	first   *task   // the same point with the first seed
	twins   []*task // other points that measure the same: they are taken along
	twin    bool
	samples []Sample
	done    bool
	spent   time.Duration
}

// Run measures experiments, several measurements at a time, and judges them. Its outcomes depend on the
// seed and not on Workers. When ctx ends, what has been measured is returned along with its error; so is it
// when a measurement fails.
func Run(ctx context.Context, list []*Experiment, cfg Config) (outcomes []Outcome, err error) {
	cfg.Workers = cmp.Or(cfg.Workers, runtime.GOMAXPROCS(0))
	cfg.NIC = cmp.Or(cfg.NIC, DefaultNIC)
	if cfg.Kept != "" {
		db, err := openKept(cfg.Kept)
		if err != nil {
			return nil, fmt.Errorf("bench: kept measurements: %w", err)
		}
		known.keepIn(db)
		defer func() { known.keepIn(nil); err = errors.Join(err, db.Close()) }()
	}
	tasks := plans(list, &cfg)
	err = work(ctx, tasks, &cfg)
	outcomes = make([]Outcome, len(list))
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
	type what struct{ same, seed any }
	var tasks []*task
	byWhat := map[what]*task{}
	for _, e := range list {
		for _, p := range e.Points(cfg.Options) {
			var first *task
			for s := range cfg.seedsOf(&p) {
				t := &task{Point: p, exp: e, seed: cfg.Seed + uint64(s), index: s}
				first = cmp.Or(first, t)
				t.first = first
				tasks = append(tasks, t)
				if p.Same == nil {
					continue
				}
				w := what{p.Same, t.seed}
				if other := byWhat[w]; other != nil {
					other.twins, t.twin = append(other.twins, t), true
				} else {
					byWhat[w] = t
				}
			}
		}
	}
	return tasks
}

// A schedule has the tasks that are not begun yet. First seeds go first, so that a run that is cut short has something of everything;
// among them those that are likely to take long. Then those go first whose first seed took longest, so that no
// worker is left with a long one at the end.
type schedule struct {
	mu       sync.Mutex
	waiting  []*task
	progress Progress
	cfg      *Config
}

func newSchedule(tasks []*task, cfg *Config) *schedule {
	s := &schedule{cfg: cfg}
	for _, t := range tasks {
		if !t.twin {
			s.waiting = append(s.waiting, t)
			s.progress.TotalCost += t.Cost
		}
	}
	slices.SortStableFunc(s.waiting, func(a, b *task) int {
		return cmp.Or(cmp.Compare(a.index, b.index), cmp.Compare(b.Cost, a.Cost))
	})
	return s
}

// next returns the task to begin next, nil if there is none.
func (s *schedule) next() *task {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 {
		return nil
	}
	best := 0
	if s.waiting[0].index > 0 {
		for i, t := range s.waiting {
			if t.likely() > s.waiting[best].likely() {
				best = i
			}
		}
	}
	t := s.waiting[best]
	s.waiting = slices.Delete(s.waiting, best, best+1)
	return t
}

// likely returns how long a task is likely to take: as long as with the first seed. If that is still under way, it takes long.
func (t *task) likely() time.Duration {
	if !t.first.done {
		return math.MaxInt64
	}
	return t.first.spent
}

// finish takes what a task gave.
func (s *schedule) finish(t *task, samples []Sample, spent time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.samples, t.done, t.spent = samples, true, spent
	if t.twin {
		return
	}
	s.progress.Cost += t.Cost
	s.progress.Experiment = t.exp.Name
	if s.cfg.Progress != nil {
		s.cfg.Progress(s.progress)
	}
}

// measure runs a task and its twins, which take no time.
func (s *schedule) measure(ctx context.Context, t *task) error {
	for _, t := range append([]*task{t}, t.twins...) {
		began := time.Now()
		samples, err := t.Measure(ctx, t.seed)
		if errors.Is(err, context.Canceled) {
			return err
		}
		if err != nil {
			return fmt.Errorf("bench: %s, seed %d: %w", t.exp.Name, t.seed, err)
		}
		s.finish(t, samples, time.Since(began))
	}
	return nil
}

// work runs the tasks.
func work(ctx context.Context, tasks []*task, cfg *Config) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := newSchedule(tasks, cfg)
	var running sync.WaitGroup
	for range cfg.Workers {
		running.Go(func() {
			for t := s.next(); t != nil && ctx.Err() == nil; t = s.next() {
				if err := s.measure(ctx, t); err != nil {
					cancel(err)
					return
				}
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
