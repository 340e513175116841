package mutants

import (
	"context"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A planted bug that fault seeds find, and one that an exploration finds, are reported with the command that
// runs it again, shrunk; and run again in another process, it is the same failure.
func TestReportsReplay(t *testing.T) {
	if testing.Short() {
		t.Skip("builds mutants")
	}
	root, err := SourceTree(".")
	if err != nil {
		t.Skip(err)
	}
	all := mutants(t)
	find := func(name string) Mutant {
		return all[slices.IndexFunc(all, func(m Mutant) bool { return m.Name == name })]
	}
	// One program has both: to compile and link it takes longer than all else. The seeds hardly ever meet the bug of the locks, the programs that are
	// explored have no objects.
	objects, locks := find("chunk-freed-twice"), find("count-beyond-header")
	both := Mutant{Name: "both", Hunks: slices.Concat(objects.Hunks, locks.Hunks)}
	binary, err := both.Build(context.Background(), root, t.TempDir(), "cmd/declock-lab")
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		mutant string
		args   []string
		again  string // the flag that runs it again
		quick  []string
		same   string // what must be the same
	}{
		{objects.Name, []string{"faults", "--class", "store"}, "scenario", []string{"--no-shrink"}, `history hash .*|store check at .*`},
		{locks.Name, []string{"explore", "--wall", "15s", "--match", locks.Explore}, "replay", nil, `(?m)^  sim: deadlock.*|^  [0-9].*`},
	} {
		t.Run(x.mutant, func(t *testing.T) {
			found := output(t, binary, x.args...)
			if !strings.Contains(found, "FAILED") || !strings.Contains(found, "the last operations") || !strings.Contains(found, "* ") {
				t.Fatalf("the report lacks something:\n%s", found)
			}
			lines := regexp.MustCompile(`again: declock-lab sim \w+ --`+x.again+` '(.*)'\n`).FindAllStringSubmatch(found, -1)
			if len(lines) != 1 && len(lines) != 2 {
				t.Fatalf("%d commands in\n%s", len(lines), found)
			}
			shrunk := lines[len(lines)-1][1]
			again := output(t, binary, append([]string{x.args[0], "--" + x.again, shrunk}, x.quick...)...)
			same := regexp.MustCompile(x.same)
			_, tail, _ := strings.Cut(found, "again: declock-lab sim "+x.args[0]+" --"+x.again+" '"+shrunk)
			want, got := same.FindAllString(tail, -1), same.FindAllString(again, -1)
			if len(want) == 0 || !slices.Equal(want, got[:min(len(got), len(want))]) {
				t.Errorf("run again, it is another failure:\n%q\n%q\n%s\n%s", want, got, found, again)
			}
		})
	}
}

// unsound is the exit code of a check that finds something.
const unsound = 15

// output returns what "declock-lab sim" prints, which finds something.
func output(t *testing.T, binary string, args ...string) string {
	t.Helper()
	cmd := exec.Command(binary, append([]string{"sim"}, args...)...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != unsound {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	return string(out)
}
