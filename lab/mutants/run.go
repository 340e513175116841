package mutants

import (
	"bytes"
	"cmp"
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

	"github.com/declock/declock/lab/check"
)

// ErrUnknown reports that no mutant has that name.
var ErrUnknown = errors.New("mutants: no such mutant")

// ErrNoSource reports that a directory is not in DecLock's source tree.
var ErrNoSource = errors.New("not in DecLock's source tree")

// SourceTree returns the root of DecLock's source tree around a directory.
func SourceTree(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	for at := dir; err == nil; at = filepath.Dir(at) {
		b, err := os.ReadFile(filepath.Join(at, "go.mod"))
		if err == nil && bytes.HasPrefix(b, []byte("module github.com/declock/declock\n")) {
			return at, nil
		}
		if at == filepath.Dir(at) {
			break
		}
	}
	return "", cmp.Or(err, fmt.Errorf("%s is %w", dir, ErrNoSource))
}

// runTest runs the mutant's test on it. That the test fails is what is wanted.
func (m *Mutant) runTest(ctx context.Context, root, dir string) (check.Tally, error) {
	overlay, err := m.Overlay(root, dir)
	if err != nil {
		return check.Tally{}, err
	}
	pkg, name, _ := strings.Cut(m.Test, " ")
	cmd := exec.CommandContext(ctx, "go", "test", "-overlay", overlay, "./"+pkg, "-run", "^"+name+"$")
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	t := check.Tally{Runs: 1, ByJudge: map[string]check.Caught{}}
	switch {
	case err == nil || ctx.Err() != nil:
		return t, nil
	case !bytes.Contains(out, []byte("--- FAIL: ")):
		return t, fmt.Errorf("mutants: %s: test %s: %w\n%s", m.Name, m.Test, err, out)
	}
	t.Bad = 1
	t.ByJudge["test "+m.Test] = check.Caught{Runs: 1, At: 1}
	return t, nil
}

// Build builds a command, the directory of which is given from the module's root, with the mutant in it. It returns its path in dir.
func (m *Mutant) Build(ctx context.Context, root, dir, command string) (string, error) {
	overlay, err := m.Overlay(root, dir)
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, m.Name)
	cmd := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-ldflags=-s -w", "-o", binary, "./"+command)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("mutants: %s does not build: %w\n%s", m.Name, err, out)
	}
	return binary, nil
}

// A Kill is what came of a mutant: how it was caught, or that it was not.
type Kill struct {
	Mutant Mutant
	Tally  check.Tally
	Slow   bool // it was not caught in the time that it had
	Err    error
	Wall   time.Duration
}

// Caught reports whether an oracle or a test objected.
func (k *Kill) Caught() bool { return k.Tally.Bad > 0 }

// Options of Run.
type Options struct {
	Names []string // which; empty: all
	Runs  int      // of each, at most
}

// Run builds each mutant and runs its scenarios, explorations or test until something objects.
func Run(ctx context.Context, root string, o Options) ([]Kill, error) {
	all, err := All()
	if err != nil {
		return nil, err
	}
	for _, n := range o.Names {
		if !slices.ContainsFunc(all, func(m Mutant) bool { return m.Name == n }) {
			return nil, fmt.Errorf("%w: %q", ErrUnknown, n)
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
		kills = append(kills, m.run(ctx, root, dir, o.Runs))
	}
	return kills, nil
}

// timeout bounds the runs of one mutant.
const timeout = 3 * time.Minute

func (m *Mutant) run(ctx context.Context, root, dir string, runs int) (k Kill) {
	begin := time.Now()
	k.Mutant = *m
	defer func() { k.Wall = time.Since(begin) }()
	if m.Test != "" {
		timed, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		k.Tally, k.Err = m.runTest(timed, root, dir)
		return k
	}
	binary, err := m.Build(ctx, root, dir, "lab/check/runner")
	if err != nil {
		k.Err = err
		return k
	}
	defer os.Remove(binary)
	timed, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cmd := exec.CommandContext(timed, binary, "-classes", strings.Join(m.Classes, ","), "-explore", m.Explore, "-runs", fmt.Sprint(runs))
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	switch {
	case timed.Err() != nil && ctx.Err() == nil:
		k.Slow = true
	case err != nil:
		k.Err = fmt.Errorf("mutants: %s: %w\n%s", m.Name, err, errs.Bytes())
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
	by := k.Tally.ByJudge
	names := slices.SortedFunc(maps.Keys(by), func(a, b string) int { return cmp.Or(by[b].Runs-by[a].Runs, strings.Compare(a, b)) })
	for i, n := range names {
		c := by[n]
		if k.Mutant.Test != "" {
			continue
		}
		if names[i] = fmt.Sprintf("%s: %d, seed %d", n, c.Runs, c.Seed); k.Tally.Schedule != "" {
			names[i] = fmt.Sprintf("%s: schedule %s of %s", n, k.Tally.Schedule, k.Tally.Scenario)
		}
	}
	return strings.Join(names, "; ")
}
