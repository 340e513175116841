package mutants

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// ErrStale reports that a patch no longer applies: what it changes is not there, or more than once.
var ErrStale = errors.New("mutants: the patch is stale")

// ErrFormat reports that a patch file cannot be read.
var ErrFormat = errors.New("mutants: bad patch")

// A Mutant is a planted bug.
type Mutant struct {
	Name    string
	Breaks  string   // what it breaks
	Classes []string // the classes of fault scenarios that may catch it
	Explore string   // it is caught by exploring the programs whose description contains this
	Test    string   // package and test that catch it
	Hunks   []Hunk
}

// A Hunk replaces consecutive lines of one declaration.
type Hunk struct {
	File string   // from the module's root
	Decl string   // "Func", "Type.Method", or the first name of a const, var or type declaration
	Old  []string // lines as they are, context among them
	New  []string // lines in their place
}

//go:embed patches
var patches embed.FS

// All returns the planted bugs, by name.
func All() ([]Mutant, error) {
	files, err := patches.ReadDir("patches")
	if err != nil {
		return nil, err
	}
	var all []Mutant
	for _, f := range files {
		text, err := patches.ReadFile(path.Join("patches", f.Name()))
		if err != nil {
			return nil, err
		}
		m, err := Parse(strings.TrimSuffix(f.Name(), ".patch"), string(text))
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// Parse reads a patch file.
func Parse(name, text string) (Mutant, error) {
	m := Mutant{Name: name}
	head, hunks, _ := strings.Cut(text, "\n\n")
	for line := range strings.Lines(head) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch value = strings.TrimSpace(value); key {
		case "breaks":
			m.Breaks = value
		case "classes":
			m.Classes = strings.Fields(value)
		case "explore":
			m.Explore = value
		case "test":
			m.Test = value
		default:
			return m, fmt.Errorf("%w: %s: the head has a key %q (breaks, classes, explore, test)", ErrFormat, name, key)
		}
	}
	if m.Breaks == "" {
		return m, fmt.Errorf("%w: %s: the head does not say what the bug breaks", ErrFormat, name)
	}
	if (m.Explore != "") == (len(m.Classes) > 0) && m.Test == "" || m.Test != "" && (m.Explore != "" || len(m.Classes) > 0) {
		return m, fmt.Errorf("%w: %s: the head must say what catches the bug, by one of classes, explore, test", ErrFormat, name)
	}
	err := m.parseHunks(hunks)
	return m, err
}

func (m *Mutant) parseHunks(text string) error {
	file, hunk := "", (*Hunk)(nil)
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "--- "):
			file, hunk = strings.TrimPrefix(line, "--- "), nil
		case strings.HasPrefix(line, "@@ ") && strings.HasSuffix(line, " @@") && file != "":
			m.Hunks = append(m.Hunks, Hunk{File: file, Decl: strings.TrimSuffix(strings.TrimPrefix(line, "@@ "), " @@")})
			hunk = &m.Hunks[len(m.Hunks)-1]
		case line == "":
			hunk = nil // an empty line of the code has a space before it
		case hunk == nil:
			return fmt.Errorf("%w: %s: %q is in no hunk", ErrFormat, m.Name, line)
		case strings.HasPrefix(line, "-"):
			hunk.Old = append(hunk.Old, line[1:])
		case strings.HasPrefix(line, "+"):
			hunk.New = append(hunk.New, line[1:])
		default:
			line = strings.TrimPrefix(line, " ")
			hunk.Old, hunk.New = append(hunk.Old, line), append(hunk.New, line)
		}
	}
	if len(m.Hunks) == 0 {
		return fmt.Errorf("%w: %s: no hunk", ErrFormat, m.Name)
	}
	for _, h := range m.Hunks {
		if len(h.Old) == 0 {
			return fmt.Errorf("%w: %s: the hunk of %s in %s adds lines to none", ErrFormat, m.Name, h.Decl, h.File)
		}
	}
	return nil
}

// Apply returns the patched texts of the files that the mutant changes, by path.
func (m *Mutant) Apply(root string) (map[string][]byte, error) { return m.change(root, (*Hunk).apply) }

// change returns the texts of the files of the hunks, changed hunk by hunk.
func (m *Mutant) change(root string, how func(h *Hunk, text []byte) ([]byte, error)) (map[string][]byte, error) {
	out := map[string][]byte{}
	for i := range m.Hunks {
		h := &m.Hunks[i]
		name := filepath.Join(root, h.File)
		text, ok := out[name]
		if !ok {
			var err error
			if text, err = os.ReadFile(name); err != nil {
				return nil, fmt.Errorf("%w: %s: %w", ErrStale, m.Name, err)
			}
		}
		text, err := how(h, text)
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %s: %w", ErrStale, m.Name, h.File, err)
		}
		out[name] = text
	}
	return out, nil
}

// apply returns the text with the hunk applied.
func (h *Hunk) apply(text []byte) ([]byte, error) {
	lines, at, err := h.find(text)
	if err != nil {
		return nil, err
	}
	return []byte(strings.Join(slices.Concat(lines[:at], h.New, lines[at+len(h.Old):]), "\n")), nil
}

// find returns the lines of a text, and at which of them the lines to replace begin.
func (h *Hunk) find(text []byte) (lines []string, at int, err error) {
	first, last, err := declaration(h.File, text, h.Decl)
	if err != nil {
		return nil, 0, err
	}
	lines = strings.Split(string(text), "\n")
	best, count := 0, 0
	for i := first; i+len(h.Old) <= last+1; i++ {
		n := common(lines[i:], h.Old)
		best = max(best, n)
		if n == len(h.Old) {
			at = i
			count++
		}
	}
	switch {
	case count > 1:
		return nil, 0, fmt.Errorf("%s has the lines to replace %d times: add context", h.Decl, count)
	case count == 0:
		return nil, 0, fmt.Errorf("%s does not have the line %q after those before it", h.Decl, strings.TrimSpace(h.Old[min(best, len(h.Old)-1)]))
	}
	return lines, at, nil
}

// common returns how many lines two texts have in common at their beginning, but for indentation.
func common(a, b []string) int {
	for i := range b {
		if i == len(a) || strings.TrimSpace(a[i]) != strings.TrimSpace(b[i]) {
			return i
		}
	}
	return len(b)
}

// declaration returns the first and the last line, from 0, of a declaration with its comment.
func declaration(file string, text []byte, name string) (first, last int, err error) {
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, file, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return 0, 0, err
	}
	found := 0
	for _, d := range parsed.Decls {
		if declName(d) == name {
			found++
			first, last = files.Position(d.Pos()).Line-1, files.Position(d.End()).Line-1
		}
	}
	if found != 1 {
		return 0, 0, fmt.Errorf("%d declarations %s", found, name)
	}
	return first, last, nil
}

// declName returns the name by which hunks call a declaration.
func declName(d ast.Decl) string {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return d.Name.Name
		}
		t := d.Recv.List[0].Type
		if p, ok := t.(*ast.StarExpr); ok {
			t = p.X
		}
		if g, ok := t.(*ast.IndexExpr); ok {
			t = g.X
		}
		if id, ok := t.(*ast.Ident); ok {
			return id.Name + "." + d.Name.Name
		}
	case *ast.GenDecl:
		switch s := d.Specs[0].(type) {
		case *ast.TypeSpec:
			return s.Name.Name
		case *ast.ValueSpec:
			return s.Names[0].Name
		case *ast.ImportSpec:
			return "import"
		}
	}
	return ""
}

// Overlay writes the patched files into dir, and the go command's list of them, whose path it returns.
func (m *Mutant) Overlay(root, dir string) (string, error) {
	texts, err := m.Apply(root)
	if err != nil {
		return "", err
	}
	list := filepath.Join(dir, m.Name+".json")
	files := map[string]string{}
	for name, text := range texts {
		patched := filepath.Join(dir, fmt.Sprintf("%s-%d.go", m.Name, len(files)))
		files[name] = patched
		err = errors.Join(err, os.WriteFile(patched, text, 0o600))
	}
	replace, jerr := json.Marshal(map[string]any{"Replace": files})
	return list, errors.Join(err, jerr, os.WriteFile(list, replace, 0o600))
}
