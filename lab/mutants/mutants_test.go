package mutants

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/declock/declock/lab/check"
)

var (
	flagMutants = flag.String("mutants", "", "mutants to run, with commas; all: all of them")
	flagRuns    = flag.Int("runs", 1000, "runs of each mutant")
)

func mutants(t *testing.T) []Mutant {
	t.Helper()
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// hasTest reports whether there is a test, given as in a patch: the directory of its package and its name.
func hasTest(t *testing.T, root, test string) bool {
	t.Helper()
	dir, name, _ := strings.Cut(test, " ")
	files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	name, _, _ = strings.Cut(name, "/")
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(text), "\nfunc "+name+"(")
	})
}

// Every patch applies to the source as it is, and names classes and tests that there are.
func TestPatchesApply(t *testing.T) {
	root, err := SourceTree(".")
	if err != nil {
		t.Skip(err)
	}
	for _, m := range mutants(t) {
		if _, err := m.Apply(root); err != nil {
			t.Error(err)
		}
		if _, err := check.ParseClasses(strings.Join(m.Classes, ",")); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
		if m.Test != "" && !hasTest(t, root, m.Test) {
			t.Errorf("%s: there is no test %s", m.Name, m.Test)
		}
	}
}

// A mutant is built and caught: one for which little is compiled. The whole table is "declock-lab mutants", and TestReportsReplay has others.
func TestMutantsAreCaught(t *testing.T) {
	root, err := SourceTree(".")
	if err != nil {
		t.Skip(err)
	}
	o := Options{Runs: *flagRuns, Names: []string{"mcs-no-successor"}}
	if *flagMutants != "" {
		o.Names = strings.Split(*flagMutants, ",")
	}
	if *flagMutants == "all" {
		o.Names = nil
	}
	kills, err := Run(context.Background(), root, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + Table(kills))
	for i := range kills {
		if k := &kills[i]; k.Err != nil || !k.Caught() {
			t.Errorf("mutant %s: %d bad runs of %d, %v", k.Mutant.Name, k.Tally.Bad, k.Tally.Runs, k.Err)
		}
	}
}
