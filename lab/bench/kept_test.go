package bench

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// What an earlier run has kept is not measured again, a line that a crash has cut is, and the file of another build is refused.
func TestKept(t *testing.T) {
	list := slices.DeleteFunc(Experiments(), func(e *Experiment) bool { return e.Name != "fig12a" })
	cfg := Config{Options: Options{Tiny: true}, Seed: 1, Seeds: 1, Kept: filepath.Join(t.TempDir(), "kept")}
	run := func() Rows {
		t.Helper()
		memo.Clear() // as in a new process
		out, err := Run(t.Context(), list, cfg)
		if err != nil {
			t.Fatal(err)
		}
		for i := range out[0].Rows {
			out[0].Rows[i].Spent = 0
		}
		return out[0].Rows
	}
	read := func() string {
		t.Helper()
		text, err := os.ReadFile(cfg.Kept)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(cfg.Kept, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	measured := run()
	whole := read()
	if again := run(); !reflect.DeepEqual(again, measured) || read() != whole {
		t.Error("kept measurements differ from those that were taken, or were taken again")
	}
	write(whole[:len(whole)-5])
	if again := run(); !reflect.DeepEqual(again, measured) || read() != whole {
		t.Error("a line that was cut short is not measured again")
	}
	line := strings.SplitAfter(whole, "\n")[1]
	name, rest, _ := strings.Cut(line, "mops=")
	_, rest, _ = strings.Cut(rest, "\t")
	write(strings.Replace(whole, line, name+"mops=12345\t"+rest, 1))
	if !slices.ContainsFunc(run(), func(r Row) bool { return r.Value("mops") == 12345 }) {
		t.Error("a kept measurement is not used")
	}
	write("x" + whole)
	if _, err := Run(t.Context(), list, cfg); err == nil || !strings.Contains(err.Error(), "another build") {
		t.Errorf("the file of another build: %v", err)
	}
}
