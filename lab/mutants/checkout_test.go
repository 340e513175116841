package mutants

import (
	"bytes"
	"errors"
	"go/format"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Each planted bug can be planted in a checkout and taken out again, which leaves it as it was.
func TestPlantAndRemove(t *testing.T) {
	root, err := SourceTree(".")
	if err != nil {
		t.Fatal(err)
	}
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		dir := t.TempDir()
		before := map[string][]byte{}
		for _, h := range m.Hunks {
			text, err := os.ReadFile(filepath.Join(root, h.File))
			if err != nil {
				t.Fatal(err)
			}
			before[filepath.Join(dir, h.File)] = text
		}
		for name, text := range before {
			if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, text, 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := m.Remove(dir); err == nil {
			t.Errorf("%s: is taken out and was not planted", m.Name)
		}
		names, err := m.Plant(dir)
		if want := slices.Sorted(maps.Keys(before)); err != nil || !slices.Equal(names, want) {
			t.Errorf("%s: changes %v, want %v: %v", m.Name, names, want, err)
			continue
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			formatted, err := format.Source(text) // as an editor does on saving
			if err != nil {
				t.Errorf("%s: %v", m.Name, err)
			} else if err := os.WriteFile(name, formatted, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := m.Plant(dir); err == nil {
			t.Errorf("%s: is planted twice", m.Name)
		}
		if _, err := m.Remove(dir); err != nil {
			t.Errorf("%s: %v", m.Name, err)
			continue
		}
		for name, text := range before {
			if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, text) {
				t.Errorf("%s: %s is not as it was: %v", m.Name, name, err)
			}
		}
	}
}
