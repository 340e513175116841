package mutants

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/declock/declock/lab/check"
)

// The planted bugs that docs/promises.md names are mutants, and so are the classes that it names classes.
func TestPromisesNameMutants(t *testing.T) {
	root, err := SourceTree(".")
	if err != nil {
		t.Skip(err)
	}
	doc, err := os.ReadFile(filepath.Join(root, "docs", "promises.md"))
	if err != nil {
		t.Fatal(err)
	}
	quoted := regexp.MustCompile("`([a-z-]+)`")
	rows := 0
	for line := range strings.Lines(string(doc)) {
		cells := strings.Split(line, " | ")
		if len(cells) != 3 || strings.HasPrefix(line, "| promise") {
			continue
		}
		rows++
		bugs := strings.TrimSuffix(strings.TrimSpace(cells[2]), " |")
		names := quoted.FindAllStringSubmatch(bugs, -1)
		if len(names) == 0 && bugs != "-" {
			t.Errorf("%q names no planted bug, and no - for none", bugs)
		}
		for _, n := range names {
			if !slices.ContainsFunc(mutants(t), func(m Mutant) bool { return m.Name == n[1] }) {
				t.Errorf("%s is no mutant: %s", n[1], cells[0])
			}
		}
		for part := range strings.SplitSeq(cells[1], ";") {
			if _, list, ok := strings.Cut(part, "class"); ok && !strings.Contains(part, "go test") {
				for _, n := range quoted.FindAllStringSubmatch(list, 1) {
					if !slices.Contains(check.Classes(), check.Class(n[1])) {
						t.Errorf("%s is no class: %s", n[1], cells[0])
					}
				}
			}
		}
	}
	if rows < 30 {
		t.Errorf("%d rows", rows)
	}
}
