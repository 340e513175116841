package check

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/declock/declock/fabric/sim"
)

// ErrRotten: the text that a mutant replaces is not in its file, or more than once.
var ErrRotten = errors.New("check: mutant is rotten")

// A Caught is what one oracle did to a mutant.
type Caught struct {
	Runs int    `json:"runs"` // to which it objected
	Seed uint64 `json:"seed"` // the first of them
	At   int    `json:"at"`   // which run that was, from 1
	What string `json:"what"`
}

// A Tally is what came of the runs of a mutant.
type Tally struct {
	Runs     int               `json:"runs"`
	Bad      int               `json:"bad"`
	ByJudge  map[string]Caught `json:"by_judge"`
	Schedule string            `json:"schedule"` // of an exploration that failed
	Scenario string            `json:"scenario"` // the first bad one
}

// hangTime is how long one run may take: the longest that do end take seconds,
// for the search for linearizations.
const hangTime = 20 * time.Second

// Count runs the scenarios of seeds until keep of them are bad. A run that does not
// end, outside of virtual time, cannot be stopped: onHang is told of it.
func Count(classes []Class, first uint64, runs, keep int, onHang func(Tally)) (Tally, error) {
	t := Tally{ByJudge: map[string]Caught{}}
	for t.Runs < runs && t.Bad < keep {
		s := Draw(first+uint64(t.Runs), classes...)
		t.Runs++
		hung := t
		hung.Bad++
		hung.ByJudge = maps.Clone(t.ByJudge)
		hung.ByJudge["hang"] = Caught{Runs: 1, Seed: s.Seed, At: t.Runs, What: "the run does not end"}
		timer := time.AfterFunc(hangTime, func() { onHang(hung) })
		r, err := Run(s)
		timer.Stop()
		if err != nil {
			return t, fmt.Errorf("%w: %s", err, s)
		}
		if !r.Bad() {
			continue
		}
		if t.Bad++; t.Bad == 1 {
			t.Scenario = s.String()
		}
		seen := map[string]bool{}
		for _, v := range r.Violations {
			if seen[v.Judge] {
				continue
			}
			seen[v.Judge] = true
			c := t.ByJudge[v.Judge]
			if c.Runs++; c.Runs == 1 {
				c.Seed, c.At, c.What = s.Seed, t.Runs, v.What
			}
			t.ByJudge[v.Judge] = c
		}
	}
	return t, nil
}

// CountExplored explores programs until one fails. Runs are schedules.
func CountExplored(match string, b Bounds) Tally {
	t := Tally{ByJudge: map[string]Caught{}}
	for _, x := range Explorations(false, match) {
		r := Explore(x, b)
		t.Runs += r.Schedules + r.Pruned
		if f := r.Failure; f != nil {
			t.Bad++
			judge, what, _ := strings.Cut(f.Err.Error(), ":")
			if before, _, ok := strings.Cut(judge, " at "); ok {
				judge = before
			}
			var stuck *sim.DeadlockError
			if errors.As(f.Err, &stuck) {
				judge, what = "lost grant", f.Err.Error()
			}
			t.ByJudge["explore ("+judge+")"] = Caught{Runs: 1, At: t.Runs, What: what}
			t.Scenario, t.Schedule = x.String(), f.Schedule.String()
			break
		}
	}
	return t
}

// ModuleRoot returns the directory of the module's source, found from the working directory.
func ModuleRoot() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	root := strings.TrimSpace(string(out))
	if err != nil || root == "" {
		return "", errors.Join(errors.New("check: mutants need the go command and the source: the working directory is in no module"), err)
	}
	return root, nil
}

// Apply returns the mutated texts of the mutant's files, by path.
func (m *Mutant) Apply(root string) (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, e := range append([]Edit{{m.File, m.Old, m.New}}, m.Also...) {
		path := filepath.Join(root, e.File)
		text, ok := out[path]
		if !ok {
			var err error
			if text, err = os.ReadFile(path); err != nil {
				return nil, err
			}
		}
		if n := bytes.Count(text, []byte(e.Old)); n != 1 {
			return nil, fmt.Errorf("%w: %s: %q is %d times in %s", ErrRotten, m.Name, e.Old, n, e.File)
		}
		out[path] = bytes.Replace(text, []byte(e.Old), []byte(e.New), 1)
	}
	return out, nil
}

// overlay writes the mutated files into dir, and the go command's list of them, whose path it returns.
func (m *Mutant) overlay(root, dir string) (string, error) {
	texts, err := m.Apply(root)
	if err != nil {
		return "", err
	}
	list := filepath.Join(dir, m.Name+".json")
	files := map[string]string{}
	for path, text := range texts {
		mutated := filepath.Join(dir, fmt.Sprintf("%s-%d.go", m.Name, len(files)))
		files[path] = mutated
		err = errors.Join(err, os.WriteFile(mutated, text, 0o600))
	}
	replace, jerr := json.Marshal(map[string]any{"Replace": files})
	return list, errors.Join(err, jerr, os.WriteFile(list, replace, 0o600))
}

// runTest runs the mutant's test on it. That the test fails is what is wanted.
func (m *Mutant) runTest(ctx context.Context, root, dir string) (Tally, error) {
	overlay, err := m.overlay(root, dir)
	if err != nil {
		return Tally{}, err
	}
	pkg, name, _ := strings.Cut(m.Test, " ")
	cmd := exec.CommandContext(ctx, "go", "test", "-overlay", overlay, "./"+pkg, "-run", "^"+name+"$")
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	t := Tally{Runs: 1, ByJudge: map[string]Caught{}}
	switch {
	case err == nil || ctx.Err() != nil:
		return t, nil
	case !bytes.Contains(out, []byte("--- FAIL: ")):
		return t, fmt.Errorf("check: mutant %s: test %s: %w\n%s", m.Name, m.Test, err, out)
	}
	t.Bad = 1
	t.ByJudge["test "+m.Test] = Caught{Runs: 1, At: 1}
	return t, nil
}

// Build builds the runner with the mutant in it, and returns its path in dir.
func (m *Mutant) Build(ctx context.Context, root, dir string) (string, error) {
	overlay, err := m.overlay(root, dir)
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, m.Name)
	cmd := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-o", binary, "github.com/declock/declock/check/runner")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("check: mutant %s does not build: %w\n%s", m.Name, err, out)
	}
	return binary, nil
}

// A Kill is how a mutant died, or that it lives.
type Kill struct {
	Mutant Mutant
	Tally  Tally
	Slow   bool // it was not caught in the time that it had
	Err    error
	Wall   time.Duration
}

// Caught reports whether an oracle objected.
func (k *Kill) Caught() bool { return k.Tally.Bad > 0 }

// MutantOptions of RunMutants.
type MutantOptions struct {
	Names    []string // which; empty: all
	First    uint64   // seed
	Runs     int      // of each, at most; 0: 2000
	Keep     int      // failing runs after which to stop; 0: 10
	Timeout  time.Duration
	Progress func(k *Kill)
}

// RunMutants builds each mutant and runs scenarios on it until oracles object.
func RunMutants(ctx context.Context, root string, o MutantOptions) ([]Kill, error) {
	if o.Runs == 0 {
		o.Runs = 2000
	}
	if o.Keep == 0 {
		o.Keep = 10
	}
	if o.Timeout == 0 {
		o.Timeout = 3 * time.Minute
	}
	all := Mutants()
	for _, n := range o.Names {
		if !slices.ContainsFunc(all, func(m Mutant) bool { return m.Name == n }) {
			return nil, fmt.Errorf("%w: no mutant %q", ErrScenario, n)
		}
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	var kills []Kill
	for _, m := range all {
		if len(o.Names) > 0 && !slices.Contains(o.Names, m.Name) {
			continue
		}
		if ctx.Err() != nil {
			return kills, ctx.Err()
		}
		k := m.run(ctx, root, dir, &o)
		kills = append(kills, k)
		if o.Progress != nil {
			o.Progress(&k)
		}
	}
	return kills, nil
}

func (m *Mutant) run(ctx context.Context, root, dir string, o *MutantOptions) (k Kill) {
	begin := time.Now()
	k.Mutant = *m
	defer func() { k.Wall = time.Since(begin) }()
	if m.Test != "" {
		timed, cancel := context.WithTimeout(ctx, o.Timeout)
		defer cancel()
		k.Tally, k.Err = m.runTest(timed, root, dir)
		return k
	}
	binary, err := m.Build(ctx, root, dir)
	if err != nil {
		k.Err = err
		return k
	}
	defer os.Remove(binary)
	classes := m.Classes
	if len(classes) == 0 {
		classes = []Class{Locks}
	}
	if m.Explore != "" {
		classes = nil
	}
	names := make([]string, len(classes))
	for i, c := range classes {
		names[i] = string(c)
	}
	timed, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	cmd := exec.CommandContext(timed, binary, "-classes", strings.Join(names, ","), "-explore", m.Explore,
		"-first", fmt.Sprint(o.First), "-runs", fmt.Sprint(o.Runs), "-keep", fmt.Sprint(o.Keep))
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	switch {
	case timed.Err() != nil && ctx.Err() == nil:
		k.Slow = true
	case err != nil:
		k.Err = fmt.Errorf("check: mutant %s: %w\n%s", m.Name, err, errs.Bytes())
	default:
		k.Err = json.Unmarshal(out, &k.Tally)
	}
	return k
}

// Table returns the table of mutants and oracles: for each the oracles that
// objected, with the number of runs out of those made, and the first seed.
func Table(kills []Kill) string {
	var b strings.Builder
	caught := 0
	b.WriteString("| mutant | breaks | runs | caught in | oracles: runs, first seed |\n|---|---|---|---|---|\n")
	for i := range kills {
		k := &kills[i]
		if k.Caught() {
			caught++
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %s | %s |\n", k.Mutant.Name, k.Mutant.Breaks, k.Tally.Runs, k.verdict(), k.judges())
	}
	fmt.Fprintf(&b, "\n%d of %d mutants caught\n", caught, len(kills))
	return b.String()
}

func (k *Kill) verdict() string {
	switch {
	case k.Err != nil:
		return "ERROR"
	case k.Slow:
		return "ALIVE (out of time)"
	case k.Tally.Bad == 0:
		return "ALIVE"
	}
	return fmt.Sprint(k.Tally.Bad)
}

func (k *Kill) judges() string {
	if k.Err != nil {
		return strings.ReplaceAll(k.Err.Error(), "\n", " ")
	}
	var names []string
	for n := range k.Tally.ByJudge {
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b string) int {
		if d := k.Tally.ByJudge[b].Runs - k.Tally.ByJudge[a].Runs; d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	for i, n := range names {
		c := k.Tally.ByJudge[n]
		if k.Mutant.Test != "" {
			continue
		}
		if names[i] = fmt.Sprintf("%s: %d, seed %d", n, c.Runs, c.Seed); k.Tally.Schedule != "" {
			names[i] = fmt.Sprintf("%s: schedule %s of %s", n, k.Tally.Schedule, k.Tally.Scenario)
		}
	}
	return strings.Join(names, "; ")
}
