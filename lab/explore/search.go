package explore

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
)

// A search is a depth-first search through the tree of choices. It executes
// the program once for each leaf.
type search struct {
	cfg     Config
	build   func(*Cluster)
	shared  fabric.CNSet
	visited map[uint64]sleepers
	ids     map[uint64]int // bits of sleepers, by explorer.idOf
	finals  map[uint64]struct{}
	path    []branch
	menu    []uint64 // of the point at which a run is, by explorer.idOf
	past    []choice // what has happened in the present run, or will first: see explorer.redo
	hashes  []uint64 // see explorer.keep
	known   bool     // the present run has come to a state known before
	pool    sim.Coroutines
	audit   audit
	moves   map[uint64]move // by explorer.moveOf
	began   time.Time
	report  Report
}

// A branch is a point on the present path at which there was a choice.
type branch struct {
	of       int // how many
	choice   int
	untried  []untaken // choices that come after it
	state    uint64    // hash of it
	judged   uint64    // tally.judged there
	move     uint64    // see explorer.moveOf, of the choice
	asleep   []sleeper // before the choice
	chosen   sleeper   // the choice
	menu     uint64    // hash of the menu
	past     int       // how much had happened
	switches int
	hashes   int      // calls of explorer.keep before it
	digests  []uint64 // of the nodes' memories
	audited  uint64   // the state, as exploration tells states apart without an audit
}

const notDeterministic = "explore: the program is not deterministic"

func newSearch(cfg Config, build func(*Cluster)) *search {
	cfg = cfg.withDefaults()
	cfg.Sleep = cfg.Sleep && cfg.MaxSwitches == 0
	if err := cfg.Sim.Validate(); err != nil {
		panic(err)
	}
	return &search{cfg: cfg, build: build, visited: map[uint64]sleepers{}, ids: map[uint64]int{}, finals: map[uint64]struct{}{},
		audit: newAudit(), moves: map[uint64]move{}, began: time.Now()}
}

// execute runs the program once. The choices are pick's. searching: it is a run of the search itself, which begins like
// the one before.
func (s *search) execute(pick func(ex *explorer) (int, bool), searching bool, trace func(string)) (ex *explorer, final uint64, ended bool, err error) {
	ex = &explorer{cfg: &s.cfg, trace: trace}
	ex.shared, ex.actor = s.shared, nobody
	u := sim.NewUntimed(s.cfg.Sim, ex, &s.pool)
	u.OneByOne = s.cfg.News
	c := &Cluster{Cluster: u.Cluster, ex: ex, atEnd: func() error { return nil }}
	ex.u, ex.c = u, c
	if searching {
		s.rewind(ex)
	}
	ex.blind = !searching && trace == nil
	ex.pick = func() (int, bool) { return pick(ex) }
	s.build(c)
	if trace != nil {
		c.SetObserver(&tracer{trace, c.Config().Observer})
	}
	ex.run()
	if u.Err() == nil && !ex.stopped {
		final = ex.state()
		if err := c.atEnd(); err != nil {
			c.Fail(err)
		}
	}
	err = u.Err()
	// What clients do while they are stopped in the middle is not part of the schedule.
	if cerr := c.Close(); errors.Is(cerr, sim.ErrSwallowed) && err == nil {
		err = cerr
	}
	return ex, final, !ex.stopped, err
}

// rewind has a run begin like the one before, up to the last branch of the path.
func (s *search) rewind(ex *explorer) {
	ex.past, ex.known = &s.past, &s.hashes
	if len(s.path) == 0 {
		return
	}
	last := len(s.path) - 1
	ex.switches, ex.digests = s.path[last].switches, s.path[last].digests
	for i := range s.path[:last] {
		ex.taken = append(ex.taken, s.path[i].choice)
	}
}

// sleepers is a set of choices, as bits.
type sleepers uint64

// bit returns the bit of a choice that may sleep; 0: it does not, or there are too many.
func (s *search) bit(id uint64) sleepers {
	if id == 0 || !s.cfg.Sleep {
		return 0
	}
	n, ok := s.ids[id]
	if !ok {
		n = len(s.ids)
		s.ids[id] = n
	}
	if n > 63 {
		return 0
	}
	return 1 << n
}

// explore is the search.
func (s *search) explore() {
	s.loop()
	r := &s.report
	r.States = len(s.visited)
	r.Ends = slices.Sorted(maps.Keys(s.finals))
	r.Shared = listed(s.shared)
	r.Exhaustive = r.Bound == "" && r.Failure == nil
	r.Wall = time.Since(s.began)
}

func (s *search) loop() {
	for n := 0; ; n++ {
		if s.exceeded(n) {
			return
		}
		s.known = false
		ex, final, ended, err := s.execute(s.pick, true, nil)
		s.count(ex, ended)
		switch {
		case errors.Is(err, errConflict):
			s.shared.Add(ex.conflict.ID())
			s.path, s.past, s.hashes = s.path[:0], s.past[:0], s.hashes[:0]
			clear(s.visited)
			clear(s.finals)
			clear(s.moves)
			s.audit = newAudit()
			continue
		case err != nil:
			s.fail(err, Schedule{Choices: ex.taken, Shared: listed(ex.shared)})
			return
		case ended:
			s.finals[final] = struct{}{}
		}
		if s.report.Audit != "" {
			s.report.Bound = "audit"
			return
		}
		if !s.backtrack() {
			return
		}
	}
}

// count adds a run to the report.
func (s *search) count(ex *explorer, ended bool) {
	r := &s.report
	r.Steps += uint64(ex.steps)
	r.MaxSteps = max(r.MaxSteps, ex.steps)
	r.MaxDepth = max(r.MaxDepth, len(ex.taken))
	if ended {
		r.Schedules++
	} else if s.known || ex.slept {
		r.Pruned++
	}
	if ex.withheld && r.Bound == "" {
		r.Bound = fmt.Sprintf("at most %d switches", s.cfg.MaxSwitches)
	}
}

// exceeded reports whether a bound of the whole search has been reached.
func (s *search) exceeded(runs int) bool {
	cfg := &s.cfg
	switch {
	case cfg.MaxSchedules > 0 && runs >= cfg.MaxSchedules:
		s.report.Bound = fmt.Sprintf("%d executions", cfg.MaxSchedules)
	case cfg.MaxStates > 0 && len(s.visited) >= cfg.MaxStates:
		s.report.Bound = fmt.Sprintf("%d states", cfg.MaxStates)
	case cfg.MaxWall > 0 && time.Since(s.began) > cfg.MaxWall:
		s.report.Bound = cfg.MaxWall.String()
	default:
		return false
	}
	return true
}

// pick follows the path to its end, and then takes first choices where the state is new.
func (s *search) pick(ex *explorer) (int, bool) {
	d, menu := len(ex.taken), ex.menuHash()
	if d < len(s.path) {
		b := &s.path[d]
		if d == len(s.path)-1 {
			s.chooses(ex, b)
		}
		if b.menu != menu || b.of != len(ex.menu) {
			panic(fmt.Sprintf("%s: under the same choices %v there were %d events to choose from at point %d, and now there are %d (or others). It must use no map iteration, real time, goroutine or randomness of its own",
				notDeterministic, Schedule{Choices: ex.taken}, b.of, d, len(ex.menu)))
		}
		return b.choice, true
	}
	var audited uint64
	if s.cfg.Audit {
		var objection string
		if audited, objection = s.audit.arrives(ex); objection != "" {
			s.report.Audit = objection
			return 0, false
		}
	}
	list := s.untried(ex)
	if len(list) == 0 {
		s.known = true
		return 0, false
	}
	b := branch{of: len(ex.menu), untried: list, asleep: slices.Clone(ex.asleep), state: ex.tally.sum, judged: ex.tally.judged,
		menu: menu, past: len(s.past), switches: ex.switches, hashes: ex.knew, digests: ex.memories(), audited: audited}
	if !s.next(&b) {
		s.known = true
		return 0, false
	}
	s.path = append(s.path, b)
	s.chooses(ex, &s.path[d])
	return b.choice, true
}

// chooses has a run go on with the choice of the last branch of the path.
func (s *search) chooses(ex *explorer, b *branch) {
	if s.cfg.Audit {
		s.audit.leaves(b.audited, ex, ex.menu[b.choice])
	}
	if s.foresees() {
		ex.learn = func() { s.learn(ex, b) }
	}
	if !s.cfg.Sleep {
		return
	}
	ex.asleep = append(ex.asleep[:0], b.asleep...)
	if id := ex.idOf(ex.menu[b.choice]); s.bit(id) != 0 {
		b.chosen = sleeper{id: id}
		ex.record = &b.chosen.print
	} else {
		b.chosen = sleeper{}
	}
}

// untried returns the choices that are to be explored at a point that is not on the path yet: those that do not sleep, and
// have not been explored in the same state before.
func (s *search) untried(ex *explorer) []untaken {
	var asleep, was, here sleepers
	for i := range ex.asleep {
		asleep |= s.bit(ex.asleep[i].id)
	}
	s.menu = s.menu[:0]
	for _, x := range ex.menu {
		id := ex.idOf(x)
		s.menu = append(s.menu, id)
		here |= s.bit(id)
	}
	only := ^sleepers(0)
	if !s.cfg.NoStates {
		ex.exactly = s.cfg.Audit
		h := ex.state()
		if ex.exactly {
			ex.exactly = false
			ex.state()
		}
		met := false
		if was, met = s.visited[h]; met {
			switch only = was &^ asleep; {
			case only == 0:
				return nil
			case only&^here != 0: // what slept then and does not now cannot happen yet
				only = ^sleepers(0)
			}
			// What else does not sleep has been explored.
			asleep &= was
		}
		s.visited[h] = asleep
		ex.asleep = slices.DeleteFunc(ex.asleep, func(x sleeper) bool { return s.bit(x.id)&asleep == 0 })
	}
	var list []untaken
	for i, id := range s.menu {
		if b := s.bit(id); b&asleep == 0 && (only == ^sleepers(0) || b&only != 0) {
			x := untaken{choice: i, id: id}
			if s.foresees() {
				x.move = ex.moveOf(ex.menu[i])
			}
			list = append(list, x)
		}
	}
	return list
}

// backtrack moves the path on to its next leaf. It returns false at the end.
func (s *search) backtrack() bool {
	for len(s.path) > 0 {
		b := &s.path[len(s.path)-1]
		if len(b.untried) > 0 {
			if b.chosen.id != 0 {
				b.asleep = append(b.asleep, b.chosen)
			}
			if s.next(b) {
				s.past, s.hashes = s.past[:b.past], s.hashes[:b.hashes]
				return true
			}
		}
		s.path = s.path[:len(s.path)-1]
	}
	return false
}

func (ex *explorer) menuHash() uint64 {
	h := uint64(ex.steps)
	for _, x := range ex.menu {
		h = fold(h, uint64(x.kind)|uint64(x.part)<<8|uint64(x.a)<<16^uint64(x.actor)<<40)
	}
	return h
}

func listed(set fabric.CNSet) (list []fabric.CNID) {
	for n, ok := set.Next(0); ok; n, ok = set.Next(n) {
		list = append(list, n)
	}
	return list
}

// fail reports a failing schedule: shrunk, with a trace.
func (s *search) fail(err error, found Schedule) {
	found = found.trim()
	best := s.shrink(found, err)
	out := s.replay(best)
	if out.Err == nil {
		panic(fmt.Sprintf("%s: schedule %v failed once with %v, and not again", notDeterministic, best, err))
	}
	s.report.Failure = &Failure{Err: out.Err, Schedule: best, Found: found, Trace: out.Trace}
}

// replay executes one schedule.
func (s *search) replay(schedule Schedule) Outcome {
	var out Outcome
	ex, final, fits, err := s.rerun(schedule, func(line string) { out.Trace = append(out.Trace, line) })
	out.Err, out.Final = err, final
	if !fits {
		out.Err = errors.Join(fmt.Errorf("%w: %v: this program offers fewer choices; it took %v", ErrSchedule, schedule, Schedule{Choices: ex.taken}), err)
	}
	return out
}

// rerun executes a schedule; choices that there are not are taken for 0.
func (s *search) rerun(schedule Schedule, trace func(string)) (ex *explorer, final uint64, fits bool, err error) {
	fits = true
	before := s.shared
	s.shared = fabric.CNSet{}
	for _, n := range schedule.Shared {
		s.shared.Add(n)
	}
	defer func() { s.shared = before }()
	ex, final, _, err = s.execute(func(ex *explorer) (int, bool) {
		d := len(ex.taken)
		if d >= len(schedule.Choices) {
			return 0, true
		}
		if i := schedule.Choices[d]; i < len(ex.menu) {
			return i, true
		}
		fits = false
		return 0, true
	}, false, trace)
	fits = fits && len(ex.taken) >= len(schedule.Choices)
	return ex, final, fits, err
}

// maxShrinks bounds the executions of shrinking.
const maxShrinks = 2000

// shrink looks for a schedule that fails in the same way with fewer choices other than 0.
func (s *search) shrink(found Schedule, err error) Schedule {
	best, want, runs := found, kindOf(err), 0
	try := func(choices []int) bool {
		if runs++; runs > maxShrinks {
			return false
		}
		ex, _, _, err := s.rerun(Schedule{Shared: found.Shared, Choices: choices}, nil)
		if err == nil || errors.Is(err, errConflict) || kindOf(err) != want {
			return false
		}
		got := Schedule{Shared: found.Shared, Choices: ex.taken}.trim()
		if !got.simpler(best) {
			return false
		}
		best = got
		return true
	}
	for again := true; again && runs <= maxShrinks; {
		again = false
		for n := 0; n < len(best.Choices); n++ { // the shortest beginning that fails
			if best.Choices[n] != 0 && try(best.Choices[:n]) {
				again = true
				break
			}
		}
		for i := len(best.Choices) - 1; i >= 0; i-- {
			if i >= len(best.Choices) || best.Choices[i] == 0 {
				continue
			}
			less := append([]int(nil), best.Choices...)
			less[i] = 0
			if try(less) || try(append(less[:i:i], less[i+1:]...)) {
				again = true
			}
		}
	}
	return best
}

// simpler reports whether a schedule has fewer choices other than 0, or as many and is shorter.
func (s Schedule) simpler(t Schedule) bool {
	count := func(s Schedule) int {
		return len(slices.DeleteFunc(slices.Clone(s.Choices), func(x int) bool { return x == 0 }))
	}
	a, b := count(s), count(t)
	return a < b || a == b && len(s.Choices) < len(t.Choices)
}

// kindOf classes failures, so that shrinking does not change the subject.
func kindOf(err error) string {
	var p *sim.PanicError
	var d *sim.DeadlockError
	switch {
	case errors.As(err, &p):
		return "panic"
	case errors.Is(err, ErrLivelock):
		return "livelock"
	case errors.As(err, &d):
		return "deadlock"
	}
	return "check"
}

// A tracer writes down what happens, for people.
type tracer struct {
	say  func(string)
	next sim.Observer
}

func (t *tracer) Observe(e *sim.Event) {
	switch e.Step {
	case sim.StepPost, sim.StepComplete, sim.StepAbandon:
	default:
		t.say(e.String())
	}
	if t.next != nil {
		t.next.Observe(e)
	}
}
