package check

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/declock/declock/internal/stats"
)

// Options of Faults.
type Options struct {
	Classes []Class // empty: all
	First   uint64  // seed
	Runs    int
	// Keep is after how many failures to stop. 0: 1.
	Keep     int
	NoShrink bool
}

// A Failure is a scenario to which an oracle objects, with a smaller one.
type Failure struct {
	Found  *Result
	Shrunk *Result // with the last operations of each client
	Runs   int     // that shrinking took
}

// A Summary is what came of many runs.
type Summary struct {
	Runs    int
	ByClass map[Class]int
	Counts
	Faults int // planned
	// Overtaken is, for each baseline lock, the most requests of class FieldFair that passed one, for each client of their cluster.
	Overtaken map[string]float64
	Failures  []*Failure // by seed
}

// Judge runs a scenario; if an oracle objects, it makes a failure of it, shrunk or not.
func Judge(s Scenario, shrink bool) (*Result, *Failure, error) {
	r, err := Run(s)
	if err != nil || !r.Bad() {
		return r, nil, err
	}
	f := &Failure{Found: r}
	small := s
	if shrink {
		small, f.Runs = Shrink(s, r.Violations[0].Judge)
	}
	f.Shrunk, err = run(small, true)
	return r, f, err
}

// Faults runs the scenarios of many seeds.
func Faults(ctx context.Context, o Options) (*Summary, error) {
	if len(o.Classes) == 0 {
		o.Classes = Classes()
	}
	o.Keep = max(1, o.Keep)
	x := &faulter{o: o, sum: &Summary{ByClass: map[Class]int{}, Overtaken: map[string]float64{}}}
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), max(1, o.Runs)) {
		wg.Go(func() { x.work(ctx) })
	}
	wg.Wait()
	if x.err == nil {
		x.err = ctx.Err()
	}
	return x.sum, x.err
}

// A faulter deals seeds to workers.
type faulter struct {
	o    Options
	mu   sync.Mutex
	next int
	// failed is how many scenarios have failed so far: Keep of them are shrunk and reported.
	failed int
	sum    *Summary
	err    error
}

func (x *faulter) deal(ctx context.Context) (seed uint64, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.next >= x.o.Runs || x.err != nil || ctx.Err() != nil || x.failed >= x.o.Keep {
		return 0, false
	}
	x.next++
	return x.o.First + uint64(x.next-1), true
}

// fails counts a scenario that fails, and reports whether it is one of those to report. Others may be under way when enough have failed.
func (x *faulter) fails() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.failed++
	return x.failed <= x.o.Keep
}

func (x *faulter) work(ctx context.Context) {
	for {
		seed, ok := x.deal(ctx)
		if !ok {
			return
		}
		s := Draw(seed, x.o.Classes...)
		r, f, err := Judge(s, false)
		if err == nil && f != nil {
			if !x.fails() {
				return
			}
			if !x.o.NoShrink {
				r, f, err = Judge(s, true)
			}
		}
		x.mu.Lock()
		if err != nil {
			x.err = fmt.Errorf("seed %d: %w: %s", seed, err, s)
			x.mu.Unlock()
			return
		}
		x.sum.add(r, f)
		x.mu.Unlock()
	}
}

func (u *Summary) add(r *Result, f *Failure) {
	u.Runs++
	u.ByClass[r.Scenario.Class]++
	u.Faults += len(r.Scenario.Plan)
	stats.Add(&u.Counts, &r.Counts)
	u.LongestNs = max(u.LongestNs, r.LongestNs)
	if s := &r.Scenario; s.Class == FieldFair {
		u.Overtaken[s.Lock] = max(u.Overtaken[s.Lock], float64(r.Overtaken)/float64(s.CNs*s.Clients))
	}
	if f != nil {
		u.Failures = append(u.Failures, f)
	}
}

func (u *Summary) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d runs (", u.Runs)
	sep := ""
	for _, c := range Classes() {
		if n := u.ByClass[c]; n > 0 {
			fmt.Fprintf(&b, "%s%s %d", sep, c, n)
			sep = ", "
		}
	}
	fmt.Fprintf(&b, "), %d events, %d grants, %d refused, %d faults, %d resets, %d objects evicted, %d moved, %d expired, longest wait %.3f ms, %d histories undecided, %d failures\nwhat faults did: %v",
		u.Events, u.Grants, u.Refused, u.Faults, u.Resets, u.Evicted, u.Moved, u.Expired, float64(u.LongestNs)/1e6, u.Undecided, len(u.Failures), &u.Effects)
	if u.Upgraded > 0 {
		fmt.Fprintf(&b, "\nholders for update that were upgraded: %d", u.Upgraded)
	}
	if u.Absorbed > 0 {
		fmt.Fprintf(&b, "\nsets and deletes done by a later client: %d", u.Absorbed)
	}
	if u.Open > 0 {
		fmt.Fprintf(&b, "\nobjects stored without a lock: %d", u.Open)
	}
	sep = "\nmost overtaking, for each client: "
	for _, name := range slices.Sorted(maps.Keys(u.Overtaken)) {
		fmt.Fprintf(&b, "%s%s %.1f", sep, name, u.Overtaken[name])
		sep = ", "
	}
	return b.String()
}

// Replay returns the command that runs a scenario again.
func Replay(s Scenario) string {
	return fmt.Sprintf("declock-lab sim faults --scenario %s", shellQuote(s.String()))
}

func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// String is the report of a failure, for people.
func (f *Failure) String() string {
	var b strings.Builder
	s := f.Found.Scenario
	fmt.Fprintf(&b, "FAILED: seed %d, class %s\n", s.Seed, s.Class)
	tell(&b, "found", f.Found)
	fmt.Fprintf(&b, "shrunk in %d runs:\n", f.Runs)
	tell(&b, "shrunk", f.Shrunk)
	tellLast(&b, f.Shrunk.Last)
	return b.String()
}

// Bounds of the objections that a report lists, and of the lines of each.
const (
	told      = 4
	toldLines = 10
)

func tell(b *strings.Builder, what string, r *Result) {
	fmt.Fprintf(b, "  %s scenario: %s\n", what, r.Scenario)
	if len(r.Scenario.Plan) > 0 {
		fmt.Fprintf(b, "  fault plan: %s\n", r.Scenario.Plan)
	}
	fmt.Fprintf(b, "  again: %s\n", Replay(r.Scenario))
	fmt.Fprintf(b, "  history hash %#016x, %d events, %d ns of virtual time\n", r.Hash, r.Events, r.Time)
	for i, v := range r.Violations {
		if i == told {
			fmt.Fprintf(b, "  and %d objections more\n", len(r.Violations)-i)
			break
		}
		lines := strings.SplitAfter(v.String(), "\n")
		if n := len(lines); n > toldLines {
			lines = append(lines[:toldLines:toldLines], fmt.Sprintf("  ... %d lines more\n", n-toldLines))
		}
		fmt.Fprintf(b, "  %s\n", strings.TrimRight(strings.Join(lines, "  "), "\n"))
	}
}
