package mutants

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/declock/declock/lab/check"
)

// A tableRow is a row of docs/mutants.md.
type tableRow struct{ name, breaks, runs, caught, oracles string }

// tableRows returns the rows of docs/mutants.md, by the names of their mutants.
func tableRows(doc string) map[string]tableRow {
	rows := map[string]tableRow{}
	for line := range strings.Lines(doc) {
		cells := strings.Split(strings.TrimSuffix(strings.TrimSpace(line), " |"), " | ")
		if name := strings.TrimPrefix(cells[0], "| "); len(cells) == 5 && name != "mutant" {
			rows[name] = tableRow{name, cells[1], cells[2], cells[3], cells[4]}
		}
	}
	return rows
}

var (
	seedCell     = regexp.MustCompile(`^([a-z ]+): ([0-9]+), seed ([0-9]+)$`)
	scheduleCell = regexp.MustCompile(`^explore \([^()]+\): schedule \S+ of (.+)$`)
)

// stale returns what shows that a row is not of a run of the mutant as it is now, with the scenarios of now, or "". A run of the mutant shows
// more; this takes no time. oracles are the names of oracles that there are.
func (m *Mutant) stale(row tableRow, oracles map[string]bool) string {
	runs, rerr := strconv.Atoi(row.runs)
	caught, cerr := strconv.Atoi(row.caught)
	switch {
	case row.breaks != m.Breaks:
		return fmt.Sprintf("it breaks %q", m.Breaks)
	case rerr != nil || cerr != nil || caught < 1 || caught > runs:
		return "it is not caught"
	case m.Test != "":
		if runs != 1 || row.oracles != "test "+m.Test {
			return "it is for test " + m.Test
		}
		return ""
	case m.Explore != "":
		s := scheduleCell.FindStringSubmatch(row.oracles)
		if s == nil || caught != 1 || !strings.Contains(s[1], m.Explore) {
			return "it is for exploration of " + m.Explore
		}
		if !slices.ContainsFunc(check.Explorations(false, m.Explore), func(x check.Exploration) bool { return x.String() == s[1] }) {
			return "there is no program " + s[1]
		}
		return ""
	}
	return m.staleSeeds(row, runs, caught, oracles)
}

// staleSeeds is stale for a mutant that is caught by seeds.
func (m *Mutant) staleSeeds(row tableRow, runs, caught int, oracles map[string]bool) string {
	classes, err := check.ParseClasses(strings.Join(m.Classes, ","))
	if err != nil {
		return err.Error()
	}
	sum := 0
	for part := range strings.SplitSeq(row.oracles, "; ") {
		s := seedCell.FindStringSubmatch(part)
		if s == nil {
			return fmt.Sprintf("%q is no oracle with its runs and first seed", part)
		}
		n, _ := strconv.Atoi(s[2])
		seed, _ := strconv.Atoi(s[3])
		if sum += n; !oracles[s[1]] {
			return "there is no oracle " + s[1]
		}
		if n < 1 || n > caught || seed+n > runs {
			return fmt.Sprintf("%q is not of %d runs, %d of them bad", part, runs, caught)
		}
		if sc := check.Draw(uint64(seed), classes...); !objects(s[1], &sc) {
			return fmt.Sprintf("%s does not judge the scenario that seed %d of its classes draws now: %s", s[1], seed, &sc)
		}
	}
	if sum < caught {
		return fmt.Sprintf("oracles object to %d runs, and %d are bad", sum, caught)
	}
	return ""
}

// objects reports whether an oracle can object to a scenario, by what is in that.
func objects(oracle string, s *check.Scenario) bool {
	switch oracle {
	case "linearizability", "leaked memory", "keeper":
		return s.Keys > 0
	case "store check":
		return s.Keys > 0 && s.Tree == 0
	case "tree check", "scan":
		return s.Tree == 1
	case "lost memory":
		return strings.Contains(s.String(), "restart mn") || strings.Contains(s.String(), "reboot mn")
	}
	return true
}

// oracleNames returns all strings of the sources of package check and of the oracles: the names of oracles are among them.
func oracleNames(t *testing.T, root string) map[string]bool {
	names := map[string]bool{}
	quoted := regexp.MustCompile(`"([a-z ]+)"`)
	for _, dir := range []string{"check", "oracle"} {
		err := filepath.WalkDir(filepath.Join(root, "lab", dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, s := range quoted.FindAllSubmatch(text, -1) {
				names[string(s[1])] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return names
}

// Each mutant has a row in docs/mutants.md that can be of a run of it; and no row is of a mutant that is none any more.
func TestMutantsAreInTheTable(t *testing.T) {
	root, err := SourceTree(".")
	if err != nil {
		t.Skip(err)
	}
	doc, err := os.ReadFile(filepath.Join(root, "docs", "mutants.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows, oracles := tableRows(string(doc)), oracleNames(t, root)
	for _, m := range mutants(t) {
		row, ok := rows[m.Name]
		if !ok {
			t.Errorf("%s has no row: declock-lab mutants --only %s prints it", m.Name, m.Name)
			continue
		}
		if why := m.stale(row, oracles); why != "" {
			t.Errorf("%s: the row is stale: %s; declock-lab mutants --only %s prints it anew:\n%+v", m.Name, why, m.Name, row)
		}
		delete(rows, m.Name)
	}
	for name := range rows {
		t.Errorf("%s is in the table, and no mutant", name)
	}
}

// A row is stale if it is of another kind than the mutant, names another test, program or oracle, or cannot be of so many runs.
func TestStaleRows(t *testing.T) {
	oracles := map[string]bool{"data": true, "tree check": true}
	const program = "cql [1s 2x 3x] x1, 4 entries, 27 version bits"
	seeds := Mutant{Breaks: "b", Classes: []string{"locks"}}
	tested := Mutant{Breaks: "b", Test: "hier TestWaiterOfEarlierIncarnation"}
	explored := Mutant{Breaks: "b", Explore: program}
	for _, x := range []struct {
		m     *Mutant
		row   tableRow
		stale bool
	}{
		{&seeds, tableRow{"", "b", "12", "10", "data: 10, seed 0"}, false},
		{&seeds, tableRow{"", "c", "12", "10", "data: 10, seed 0"}, true},
		{&seeds, tableRow{"", "b", "12", "ALIVE", "data: 10, seed 0"}, true},
		{&seeds, tableRow{"", "b", "12", "13", "data: 10, seed 0"}, true},
		{&seeds, tableRow{"", "b", "12", "10", "data: 9, seed 0"}, true},
		{&seeds, tableRow{"", "b", "12", "10", "data: 11, seed 0"}, true},
		{&seeds, tableRow{"", "b", "12", "10", "data: 10, seed 3"}, true},
		{&seeds, tableRow{"", "b", "12", "10", "order: 10, seed 0"}, true},
		{&seeds, tableRow{"", "b", "12", "10", "tree check: 10, seed 0"}, true},
		{&seeds, tableRow{"", "b", "1", "1", "test " + tested.Test}, true},
		{&tested, tableRow{"", "b", "1", "1", "test " + tested.Test}, false},
		{&tested, tableRow{"", "b", "1", "1", "test hier TestStories"}, true},
		{&tested, tableRow{"", "b", "12", "10", "data: 10, seed 0"}, true},
		{&explored, tableRow{"", "b", "9", "1", "explore (lost grant): schedule 2.1 of " + program}, false},
		{&explored, tableRow{"", "b", "9", "1", "explore (lost grant): schedule 2.1 of " + program + ", and more"}, true},
		{&explored, tableRow{"", "b", "9", "1", "explore (lost grant): schedule 2.1 of cql"}, true},
	} {
		if why := x.m.stale(x.row, oracles); (why != "") != x.stale {
			t.Errorf("%+v: stale %q, want it stale: %v", x.row, why, x.stale)
		}
	}
}
