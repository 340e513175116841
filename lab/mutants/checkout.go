package mutants

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Find returns the planted bug of a name.
func Find(name string) (Mutant, error) {
	all, err := All()
	if err != nil {
		return Mutant{}, err
	}
	i := slices.IndexFunc(all, func(m Mutant) bool { return m.Name == name })
	if i < 0 {
		return Mutant{}, fmt.Errorf("%w: %q", ErrUnknown, name)
	}
	return all[i], nil
}

// A planted bug stands between these comments, behind the lines that it replaces, which are comments too.
const (
	plantedBegin = "// PLANTED BUG "
	plantedLine  = "// WAS:"
	plantedEnd   = "// END OF PLANTED BUG "
)

// Plant plants the bug in a source tree: it changes files there. It returns their paths.
func (m *Mutant) Plant(root string) ([]string, error) {
	if there, err := m.planted(root); err != nil {
		return nil, err
	} else if len(there) > 0 {
		return nil, fmt.Errorf("mutants: %s is planted already, in %s", m.Name, there[0])
	}
	texts, err := m.change(root, func(h *Hunk, text []byte) ([]byte, error) { return h.plant(m.Name, text) })
	if err != nil {
		return nil, err
	}
	return write(texts)
}

// plant returns the text with the hunk applied, between comments.
func (h *Hunk) plant(name string, text []byte) ([]byte, error) {
	lines, at, err := h.find(text)
	if err != nil {
		return nil, err
	}
	old, now := h.Old, h.New
	for len(old) > 0 && len(now) > 0 && old[0] == now[0] {
		at, old, now = at+1, old[1:], now[1:]
	}
	for len(old) > 0 && len(now) > 0 && old[len(old)-1] == now[len(now)-1] {
		old, now = old[:len(old)-1], now[:len(now)-1]
	}
	changed := []string{plantedBegin + name}
	for _, l := range lines[at : at+len(old)] {
		changed = append(changed, plantedLine+l)
	}
	changed = append(append(changed, now...), plantedEnd+name)
	return []byte(strings.Join(slices.Concat(lines[:at], changed, lines[at+len(old):]), "\n")), nil
}

// planted returns which files of a source tree have the bug.
func (m *Mutant) planted(root string) (names []string, err error) {
	for i := range m.Hunks {
		name := filepath.Join(root, m.Hunks[i].File)
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("mutants: %s: %w", m.Name, err)
		}
		if strings.Contains(string(text), plantedBegin+m.Name+"\n") && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// Remove takes a planted bug out of a source tree: what was there before comes back, whatever has changed around it. It returns the paths
// of the files that it changes.
func (m *Mutant) Remove(root string) ([]string, error) {
	names, err := m.planted(root)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("mutants: %s is not planted in %s", m.Name, root)
	}
	texts := map[string][]byte{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if texts[name], err = m.without(text); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return write(texts)
}

// without returns the text with the lines back that the bug has replaced.
func (m *Mutant) without(text []byte) ([]byte, error) {
	var out []string
	within := false
	for _, l := range strings.Split(string(text), "\n") {
		trimmed := strings.TrimSpace(l) // gofmt may have indented the comments
		switch {
		case trimmed == plantedBegin+m.Name:
			within = true
		case trimmed == plantedEnd+m.Name:
			within = false
		case !within:
			out = append(out, l)
		case strings.HasPrefix(trimmed, plantedLine):
			_, was, _ := strings.Cut(l, plantedLine)
			out = append(out, was)
		}
	}
	if within {
		return nil, fmt.Errorf("mutants: the comment %q is missing", plantedEnd+m.Name)
	}
	return []byte(strings.Join(out, "\n")), nil
}

// write writes files that are there, and returns their names in order.
func write(texts map[string][]byte) (names []string, err error) {
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		names = append(names, name)
		err = errors.Join(err, os.WriteFile(name, texts[name], 0o644))
	}
	return names, err
}
