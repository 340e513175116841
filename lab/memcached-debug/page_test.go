package main

import (
	"os"
	"strings"
	"testing"
)

// docs/memcached.md says of each of memcached's 82 test files whether it passes: of those that scripts/memcached-test runs, and of no others.
func TestFilesAreInThePage(t *testing.T) {
	text, err := os.ReadFile("../../docs/memcached.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "## memcached's own tests")
	said := map[string]bool{} // whether it passes, by file
	for line := range strings.Lines(table) {
		cells := strings.Split(line, " | ")
		if len(cells) != 3 || strings.HasPrefix(line, "|--") || strings.Contains(cells[0], "files") {
			continue
		}
		for file := range strings.SplitSeq(strings.TrimPrefix(cells[0], "| "), ", ") {
			if strings.Trim(file, "0123456789") == "" {
				file = "issue_" + file
			}
			said[file] = cells[1] == "yes"
		}
	}
	passing := 0
	if text, err = os.ReadFile("passing"); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if file, ok := strings.CutPrefix(line, "t/"); ok {
			passing++
			if !said[strings.TrimSuffix(file, ".t")] {
				t.Errorf("the page does not say that %s passes", line)
			}
		}
	}
	yes := 0
	for _, passes := range said {
		if passes {
			yes++
		}
	}
	if len(said) != 82 || yes != passing || passing < 45 {
		t.Errorf("the page has %d files, %d of which pass; %d do", len(said), yes, passing)
	}
}
