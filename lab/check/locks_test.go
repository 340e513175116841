package check

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// lockPackage returns the directory of a lock.
func lockPackage(t *testing.T, name string) string {
	name, _, _ = strings.Cut(name, ":")
	if other, ok := map[string]string{"rpc": "server", "parlock": "server", "alock": "qplock"}[name]; ok {
		name = other
	}
	dirs, err := os.ReadDir("../../lab/locks")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		if d.IsDir() && strings.HasPrefix(name, d.Name()) {
			return "lab/locks/" + d.Name()
		}
	}
	t.Fatalf("%s is in no package", name)
	return ""
}

// docs/locks.md says of each baseline lock what checks it: programs that docs/explored.md has as exhaustive, classes that draw it, two planted bugs of its code.
func TestLocksChecked(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	quoted := regexp.MustCompile("`([^`]+)`")
	names := func(cell string) (list []string) {
		for _, x := range quoted.FindAllStringSubmatch(cell, -1) {
			list = append(list, x[1])
		}
		return list
	}
	_, table, _ := strings.Cut(read("../../docs/locks.md"), "| lock | programs |")
	explored := read("../../docs/explored.md")
	seen := 0
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 4 || len(names(cells[0])) == 0 {
			continue
		}
		for _, name := range names(cells[0]) {
			f := baselineOf(name)
			if f == nil {
				t.Errorf("%s is none of the baseline locks", name)
				continue
			}
			seen++
			want := []string{"field"}
			if f.fair > 0 {
				want = append(want, "fieldfair")
			}
			if f.crashable {
				want = append(want, "fieldcrash")
			}
			if f.class != "" {
				want = []string{string(f.class)}
			}
			if f.class == Switched {
				want = append(want, string(SwitchedCrash), string(SwitchedLeave), string(SwitchedLocal), string(SwitchedLoss))
			}
			if f.class == "" && f.updates {
				want = append(want, string(Updates))
			}
			if f.homes {
				want = append(want, string(HomesCrash))
			}
			if name == "parlock" {
				want = append(want, string(SwitchedLocal))
			}
			if got := names(cells[2]); !slices.Equal(got, want) {
				t.Errorf("%s: fault classes %q, want %q", name, got, want)
			}
			n := len(regexp.MustCompile(`(?m)^\| `+regexp.QuoteMeta(name)+` \[.*\| exhaustive \|$`).FindAllString(explored, -1))
			if got, _, _ := strings.Cut(strings.TrimSpace(cells[1]), " "); got != fmt.Sprint(n) && (n > 0 || got != "none:") {
				t.Errorf("%s: %s programs, docs/explored.md has %d", name, got, n)
			}
		}
		bugs := names(cells[3])
		if slices.Sort(bugs); len(slices.Compact(bugs)) < 2 {
			t.Errorf("%s: planted bugs %q, want two", cells[0], bugs)
		}
		for _, bug := range bugs {
			if patch := read("../../lab/mutants/patches/" + bug + ".patch"); !strings.Contains(patch, "--- "+lockPackage(t, names(cells[0])[0])+"/") {
				t.Errorf("%s: the planted bug %s is in another package", cells[0], bug)
			}
		}
	}
	if seen != len(baselineLocks) {
		t.Errorf("%d locks in the table, want %d", seen, len(baselineLocks))
	}
}
