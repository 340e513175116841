package lab

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/declock/declock/cmd/internal/exit"
)

// Each command that draws writes a page, and says what it lacks otherwise.
func TestPictures(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "run.html")
	for _, args := range [][]string{
		{"sim", "faults", "--scenario", "gen=g11 class=locks seed=1 cns=2 clients=1 mns=1 policy=declock cap=2 ver=27 nic=cx4 scale=100 grain=64 locks=1 rounds=2", "--html", file},
		{"sim", "explore", "--replay", "cql [1x 2x] x1, 4 entries, 27 version bits; -", "--html", file},
		{"sim", "handover", "--lock", "mcs", "--html", file},
	} {
		_ = os.Remove(file)
		if out, err := labRun(args...); err != nil {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
		if b, err := os.ReadFile(file); err != nil || !strings.Contains(string(b), "holds lock") {
			t.Errorf("%v: the page has %d bytes, %v", args, len(b), err)
		}
	}
	for _, args := range [][]string{
		{"sim", "faults", "--html", file}, {"sim", "explore", "--html", file}, {"sim", "handover"}, {"sim", "handover", "--lock", "nope", "--svg", file},
		{"sim", "handover", "--lock", "mcs", "--all", dir}, {"mutants", "--dir", dir}, {"mutants", "--apply", "nope"}, {"mutants", "--apply", "no-refetch", "--only", "no-refetch"},
	} {
		if _, err := labRun(args...); exit.Of(err) != exit.Usage {
			t.Errorf("%v: %v, want an error of usage", args, err)
		}
	}
	if _, err := labRun("sim", "handover", "--html", filepath.Join(dir, "nowhere", "x.html")); err == nil || !strings.Contains(err.Error(), "picture") {
		t.Errorf("a picture in a folder that there is not: %v", err)
	}
}
