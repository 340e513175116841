package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// runTiny runs experiments, tiny.
func runTiny(t *testing.T, workers int, list ...*Experiment) []Outcome {
	t.Helper()
	out, err := Run(context.Background(), list, Config{Options: Options{Tiny: true}, Seed: 1, Seeds: 2, Workers: workers})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// forget has everything measured anew.
func forget() {
	known.mu.Lock()
	defer known.mu.Unlock()
	clear(known.has)
}

// Every experiment runs, has rows with the columns it shows, judges and plots.
func TestExperimentsTiny(t *testing.T) {
	for _, e := range Experiments() {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			o := runTiny(t, 2, e)[0]
			if len(o.Rows) == 0 || o.Cut || e.Title == "" || e.Paper == "" {
				t.Fatalf("%d rows, cut %v, title %q, paper %q", len(o.Rows), o.Cut, e.Title, e.Paper)
			}
			for _, r := range o.Rows {
				for _, c := range e.Columns {
					_, ok := r.Metrics[c]
					if !ok && r.Params.Get(c) == nil {
						t.Fatalf("row %v has no %s: %v", r.Params, c, r.Metrics)
					}
				}
			}
			// Whatever is missing must not be a claim that comes out.
			if e.Judge != nil {
				for _, c := range e.Judge(nil) {
					if c.Verdict != NotMeasured || c.Text == "" || c.Bar == "" {
						t.Errorf("without rows: %+v", c)
					}
				}
			}
			if e.Plots != nil {
				e.Plots(nil)
			}
		})
	}
}

// The same seed gives the same rows, whatever the number of workers.
func TestWorkersDoNotMatter(t *testing.T) {
	var first []byte
	for _, workers := range []int{1, 2, 7} {
		forget() // or there would be nothing to measure
		text, err := json.Marshal(runTiny(t, workers, expFig12a)[0].Rows)
		if err != nil {
			t.Fatal(err)
		}
		if first != nil && !bytes.Equal(first, text) {
			t.Errorf("with %d workers:\n%s\n%s", workers, text, first)
		}
		first = text
	}
}

// A run that is stopped, or in which a measurement fails, returns what it has.
func TestCutShort(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	bad := errors.New("it broke")
	var stop atomic.Pointer[error]
	e := &Experiment{Name: "x", Points: func(Options) (points []Point) {
		for i := range 10 {
			points = append(points, Point{Measure: func(context.Context, uint64) ([]Sample, error) {
				if i == 5 {
					if err := stop.Load(); err != nil {
						return nil, *err
					}
					cancel()
				}
				return []Sample{{Params{{"i", i}}, Metrics{"v": float64(i)}}}, nil
			}})
		}
		return points
	}}
	out, err := Run(ctx, []*Experiment{e}, Config{Seeds: 1, Workers: 1})
	if !errors.Is(err, context.Canceled) || !out[0].Cut || len(out[0].Rows) != 6 {
		t.Errorf("%v, %d rows, cut %v", err, len(out[0].Rows), out[0].Cut)
	}
	stop.Store(&bad)
	out, err = Run(context.Background(), []*Experiment{e}, Config{Seeds: 1, Workers: 1})
	if !errors.Is(err, bad) || !out[0].Cut || len(out[0].Rows) != 5 {
		t.Errorf("%v, %d rows, cut %v", err, len(out[0].Rows), out[0].Cut)
	}
}

// A number of seeds that the user gives is that of each point; else a point has what it asks for, and locks that are set against near bars have several.
func TestSeedsOfPoints(t *testing.T) {
	e := &Experiment{Name: "x", Points: func(Options) []Point { return []Point{{}, {Seeds: 10}, {Near: true}} }}
	for _, c := range []struct {
		cfg  Config
		want []int
	}{{Config{}, []int{1, 10, 3}}, {Config{Options: Options{Quick: true}}, []int{1, 10, 1}}, {Config{Seeds: 2}, []int{2, 2, 2}}, {Config{Options: Options{Quick: true}, Seeds: 4}, []int{4, 4, 4}}} {
		n := map[*task]int{}
		var got []int
		for _, x := range plans([]*Experiment{e}, &c.cfg) {
			if n[x.first]++; x.first == x {
				got = append(got, 0)
			}
			got[len(got)-1]++
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v: seeds %v, want %v", c.cfg, got, c.want)
		}
	}
	// The default point is in these three, with as many seeds in each: they are taken once.
	for _, lock := range []string{"shift", "declock-pf", "declock"} {
		same := Default(lock).Point().Same
		for _, e := range []*Experiment{expFig12a, expFig12b, expFig13} {
			points := e.Points(Options{NIC: DefaultNIC})
			if i := slices.IndexFunc(points, func(p Point) bool { return p.Same == same }); i < 0 || !points[i].Near {
				t.Errorf("%s: point %d is the default point of %s, with several seeds", e.Name, i, lock)
			}
		}
	}
	for _, s := range []*sweep{&shift4, &shift8, &others4, &others14, &dslr14, &shift12} {
		if near := func(p Point) bool { return p.Near }; !slices.ContainsFunc(s.points(Options{}), near) {
			t.Errorf("a sweep of %v: no points with several seeds", s.locks)
		}
	}
}

// First seeds go first, those that are likely to take long before others; then the points whose first seed took longest. Points
// that measure the same are measured together.
func TestOrderOfMeasurements(t *testing.T) {
	exp := func(name string) *Experiment {
		return &Experiment{Name: name, Points: func(Options) (points []Point) {
			for i, cost := range []float64{1, 3, 2} {
				points = append(points, Point{Cost: cost, Same: i})
			}
			return points
		}}
	}
	tasks := plans([]*Experiment{exp("a"), exp("b")}, &Config{Seed: 1, Seeds: 2})
	s := newSchedule(tasks, &Config{})
	took := map[any]time.Duration{0: 2, 1: 1, 2: 3}
	var order []string
	for x := s.next(); x != nil; x = s.next() {
		order = append(order, fmt.Sprint(x.exp.Name, x.Same, " ", x.seed))
		for _, x := range append(x.twins, x) {
			s.finish(x, nil, took[x.Same])
		}
	}
	if want := []string{"a1 1", "a2 1", "a0 1", "a2 2", "a0 2", "a1 2"}; !slices.Equal(order, want) {
		t.Errorf("%v, want %v", order, want)
	}
	for _, x := range tasks {
		if !x.done {
			t.Errorf("%s %v, seed %d: not measured", x.exp.Name, x.Same, x.seed)
		}
	}
}

// Points that differ in name only measure the same: how long messages take, of a lock that sends none; a constant that is tuned to what it is.
func TestSameMeasurand(t *testing.T) {
	same := func(a, b func(m *Micro), lock string) bool {
		x, y := Default(lock), Default(lock)
		a(&x)
		b(&y)
		return x.measurand() == y.measurand()
	}
	plain := func(*Micro) {}
	slow := func(m *Micro) { m.MessageExtraNs = 1000 }
	tuned := func(m *Micro) { m.Tune = "MessageMin=2600,MessageMax=2700" }
	if !same(plain, slow, "dslr+") || !same(plain, tuned, "cas") || !same(slow, tuned, "shift") || !same(plain, func(m *Micro) { m.NIC = "cx4" }, "declock") {
		t.Error("the same is taken for two")
	}
	if same(plain, slow, "declock") || same(plain, func(m *Micro) { m.Tune = "LocalWake=1600" }, "sherman") || same(plain, func(m *Micro) { m.NIC = "cx5" }, "cas") {
		t.Error("two are taken for the same")
	}
	index := func(name, lock, tune string) measurand {
		return Index{Lock: lock, Mix: Mix{Name: name, Read: 50, Update: 50}, NIC: "cx4", Tune: tune}.measurand()
	}
	if index("A", "declock", "") != index("update-heavy", "declock", "") || index("A", "cas", "") != index("A", "cas", "MessageMax=5000") || index("A", "declock", "") == index("A", "declock", "MessageMax=5000") {
		t.Error("an index")
	}
}

// Transactions that figures have in common are measured once, and no two different ones are taken for the same.
func TestSameTransactions(t *testing.T) {
	same := func(change func(r *txnRun, m *Micro)) bool {
		r, m := dslrTxn("dslr", 16, 1)
		want := r.point(m, nil, Options{}).Same
		change(&r, &m)
		return r.point(m, nil, Options{}).Same == want
	}
	if !same(func(r *txnRun, m *Micro) { r.nearBar, m.NIC = true, "" }) {
		t.Error("the same is taken for two")
	}
	for i, change := range []func(r *txnRun, m *Micro){
		func(r *txnRun, _ *Micro) { r.delayNs = 1 }, func(r *txnRun, _ *Micro) { r.warehouses++ }, func(r *txnRun, _ *Micro) { r.fails.rate = 1e-3 }, func(r *txnRun, _ *Micro) { r.word = 1 },
		func(_ *txnRun, m *Micro) { m.LeaseNs = 1 }, func(_ *txnRun, m *Micro) { m.Lock = "dslr:busy" }, func(_ *txnRun, m *Micro) { m.Tune = "Pipe=32" }, func(_ *txnRun, m *Micro) { m.WindowNs = 1 },
	} {
		if same(change) {
			t.Errorf("change %d: two are taken for the same", i)
		}
	}
	of := reflect.TypeFor[txnRun]()
	for i := range of.NumField() {
		if f := of.Field(i); !slices.Contains(ofRun, f.Name) && slices.Contains([]reflect.Kind{reflect.Pointer, reflect.Func, reflect.Slice, reflect.Map, reflect.Interface}, f.Type.Kind()) {
			t.Errorf("%s does not tell runs apart by its text", f.Name)
		}
	}
	for _, name := range ofRun {
		if _, ok := of.FieldByName(name); !ok {
			t.Errorf("no field %s", name)
		}
	}
}

// Seeds are averaged, with a confidence interval by Student's t.
func TestEstimate(t *testing.T) {
	e := estimate([]float64{10, 12, 14})
	if e.Mean != 12 || e.N != 3 || round(e.Half) != 4.969 {
		t.Errorf("%+v", e)
	}
	if e := estimate([]float64{5}); e != (Estimate{5, 0, 1}) {
		t.Errorf("%+v", e)
	}
	row := Row{Experiment: "x", Params: Params{{"lock", "cas"}, {"clients", 8}},
		Metrics: map[string]Estimate{"mops": {1.23456, 0.1, 3}, "a": {2, 0, 1}}}
	text, err := json.Marshal(row)
	if want := `{"experiment":"x","lock":"cas","clients":8,"seeds":3,"a":2,"mops":1.235,"mops_ci95":0.1}`; err != nil || string(text) != want {
		t.Errorf("%s %v", text, err)
	}
}

// Claims come out, or not, by their bars; what was not measured does neither.
func TestClaims(t *testing.T) {
	for _, c := range []struct {
		claim Claim
		want  Verdict
	}{
		{Claim{}.AtLeast(30, 30), ComesOut}, {Claim{}.AtLeast(29.9, 30), DoesNot}, {Claim{}.AtLeast(missing, 30), NotMeasured},
		{Claim{}.AtMost(1.13, 1.13), ComesOut}, {Claim{}.AtMost(1.14, 1.13), DoesNot}, {Claim{}.AtMost(missing, 1), NotMeasured},
		{Claim{}.Within(2, 1, 3), ComesOut}, {Claim{}.Within(4, 1, 3), DoesNot},
		{Claim{Paper: 2}.Near(2.4, 1.25), ComesOut}, {Claim{Paper: 2}.Near(2.6, 1.25), DoesNot}, {Claim{Paper: 2}.Near(1.5, 1.25), DoesNot},
	} {
		if c.claim.Verdict != c.want {
			t.Errorf("%+v: want %v", c.claim, c.want)
		}
	}
	c := Claim{Paper: 4}.AtLeast(3, 1)
	if c.Ratio() != 0.75 {
		t.Errorf("ratio %v", c.Ratio())
	}
	rows := Rows{
		{Params: Params{{"lock", "a"}, {"n", 1}}, Metrics: map[string]Estimate{"mops": {Mean: 6}}},
		{Params: Params{{"lock", "b"}, {"n", 1}}, Metrics: map[string]Estimate{"mops": {Mean: 2}}},
		{Params: Params{{"lock", "a"}, {"n", 2}}, Metrics: map[string]Estimate{"mops": {Mean: 5}}},
		{Params: Params{{"lock", "b"}, {"n", 2}}, Metrics: map[string]Estimate{"mops": {Mean: 5}}},
		{Params: Params{{"lock", "a"}, {"n", 3}}, Metrics: map[string]Estimate{"mops": {Mean: 9}}},
	}
	list := rows.Along("a", "b", "n", "mops").Values
	if len(list) != 2 || Most(list) != 3 || Least(list) != 1 {
		t.Errorf("%v", list)
	}
}

// A claim of the best point shows the whole row, and comes out in part only if elsewhere it is the other way round.
func TestClaimsAlongASweep(t *testing.T) {
	sweep := func(neutral float64, values ...float64) Along {
		a := Along{Param: "n", Neutral: neutral}
		for i, v := range values {
			a.add(string(rune('a'+i)), v)
		}
		return a
	}
	for _, c := range []struct {
		along Along
		want  Verdict
	}{
		{sweep(1, 1.8, 1.3, 1.02, 0.98), ComesOut},
		{sweep(1, 1.8, 1.3, 1.02, 0.93), InPart},
		{sweep(1, 1.2, 0.5), DoesNot},
		{sweep(0, 50, 10, -2), ComesOut},
		{sweep(0, 50, 10, -20), InPart},
		{sweep(1), NotMeasured},
	} {
		bar := 1.5
		if c.along.Neutral == 0 {
			bar = 40
		}
		if got := (Claim{Text: "x"}).UpTo(c.along, Claim.AtLeast, bar); got.Verdict != c.want || got.Row != c.along.String() {
			t.Errorf("%v: %+v", c.along, got)
		}
	}
	if got, want := sweep(1, 1.8, 0.9346).String(), "by n, a: 1.8, b: 0.935"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	a, b := sweep(1, 1, 3, 2), sweep(1, 2, 1)
	if got := better(a, b); !slices.Equal(got.Values, []float64{2, 3, 2}) {
		t.Errorf("%v", got)
	}
	claims := []Claim{{Verdict: ComesOut}, {Verdict: InPart}, {Verdict: DoesNot, Own: true}, {Verdict: ComesOut, Own: true}, {Own: true}, {Verdict: DoesNot, Other: true}}
	if got, want := verdicts(claims), "1 of 2 claims of the paper come out (and 1 in part), 1 of 2 of the project's own (1 were not measured), 0 of 1 of the papers on other locks"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A lock is set against the best of others only where all of them have been measured.
func TestOverBest(t *testing.T) {
	row := func(lock string, n int, mops float64) Row {
		return Row{Params: Params{{"lock", lock}, {"n", n}}, Metrics: map[string]Estimate{"mops": {Mean: mops}}}
	}
	rows := Rows{row("a", 1, 6), row("b", 1, 2), row("c", 1, 3), row("a", 2, 8), row("c", 2, 2), row("a", 3, 1), row("a", 4, 4), row("b", 4, 1), row("c", 4, 2)}
	if got, want := rows.OverBest("a", []string{"b", "c"}, "n", "mops", Most).String(), "by n, 1: 2, 4: 2"; got != want {
		t.Errorf("over the most %q, want %q", got, want)
	}
	if got, want := rows.OverBest("a", []string{"b", "c"}, "n", "mops", Least).String(), "by n, 1: 3, 4: 4"; got != want {
		t.Errorf("over the least %q, want %q", got, want)
	}
}

// Locks that ShiftLock's authors ran without shared holders have none in its figures, and a parameter of its own names the rows of DSLR's.
func TestSweepsOfOthers(t *testing.T) {
	for _, r := range runTiny(t, 2, expShift8)[0].Rows {
		if mutex := r.Text("lock") == "mcs" || r.Text("lock") == "cas-backoff"; (r.Value("read_pct") == 0) != mutex {
			t.Errorf("%v", r.Params)
		}
	}
	if got := runTiny(t, 2, expDSLR19)[0].Rows.Distinct("delay_ms"); !slices.Equal(got, []string{"0", "100"}) {
		t.Errorf("delays %v", got)
	}
}

// A row in JSON says how many seeds it has.
func TestRowSeeds(t *testing.T) {
	for _, n := range []int{1, 3} {
		var list []float64
		for i := range n {
			list = append(list, float64(i))
		}
		out, err := json.Marshal(Row{Experiment: "x", Params: Params{{"lock", "cas"}}, Metrics: map[string]Estimate{"mops": estimate(list)}})
		var v map[string]any
		if err = errors.Join(err, json.Unmarshal(out, &v)); err != nil || v["seeds"] != float64(n) {
			t.Errorf("%d seeds: %s, %v", n, out, err)
		}
	}
}
