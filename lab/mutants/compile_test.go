package mutants

import (
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Every patched package passes the type checker: a mutant that no longer compiles is neither caught nor alive.
func TestPatchesCompile(t *testing.T) {
	root, err := SourceTree(".")
	if err != nil {
		t.Skip(err)
	}
	all := mutants(t)
	c := newChecker(t, root, all)
	for _, err := range c.checkAll(root, all) {
		t.Error(err)
	}
	i := slices.IndexFunc(all, func(m Mutant) bool { return m.Name == "reader-passes-writer" })
	broken := Mutant{Name: "broken", Hunks: slices.Clone(all[i].Hunks)}
	broken.Hunks[0].New = append([]string{"nowhere()"}, broken.Hunks[0].New...)
	if errs := c.checkAll(root, append([]Mutant{broken}, all[i-10:i]...)); len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), "broken: ") {
		t.Errorf("of some mutants one does not compile: %v", errs)
	}
}

// A batch is mutants that change different lines, all planted at once.
type batch struct {
	mutants []Mutant
	texts   map[string][]byte // of the files that they change, by path
}

// add plants another mutant, if it still applies.
func (b *batch) add(root string, m Mutant) error {
	texts := maps.Clone(b.texts)
	for i := range m.Hunks {
		h := &m.Hunks[i]
		name := filepath.Join(root, h.File)
		text, ok := texts[name]
		var err error
		if !ok {
			if text, err = os.ReadFile(name); err != nil {
				return err
			}
		}
		if texts[name], err = h.apply(text); err != nil {
			return err
		}
	}
	b.mutants, b.texts = append(b.mutants, m), texts
	return nil
}

// checkAll type-checks what mutants change, and returns an error for each that does not compile. To check each alone takes ten times as
// long: they are checked in batches, and in halves of a batch that does not compile. (That one gives what another lacks is not
// noticed here; to build it is.)
func (c *checker) checkAll(root string, all []Mutant) (errs []error) {
	var batches []*batch
	for _, m := range all {
		if !slices.ContainsFunc(batches, func(b *batch) bool { return b.add(root, m) == nil }) {
			b := &batch{texts: map[string][]byte{}}
			if err := b.add(root, m); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", m.Name, err))
				continue
			}
			batches = append(batches, b)
		}
	}
	for _, b := range batches {
		var err error
		for _, dir := range b.dirs() {
			err = cmp.Or(err, c.check(filepath.Join(root, dir), b.texts))
		}
		switch n := len(b.mutants); {
		case err == nil:
		case n == 1:
			errs = append(errs, fmt.Errorf("%s: %w", b.mutants[0].Name, err))
		default:
			errs = append(errs, c.checkAll(root, b.mutants[:n/2])...)
			errs = append(errs, c.checkAll(root, b.mutants[n/2:])...)
		}
	}
	return errs
}

func (b *batch) dirs() (dirs []string) {
	for i := range b.mutants {
		dirs = append(dirs, b.mutants[i].dirs()...)
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// dirs lists the directories of the packages that a mutant changes.
func (m *Mutant) dirs() (dirs []string) {
	for _, h := range m.Hunks {
		if dir := filepath.Dir(h.File); !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// A listed is what the go command says of a package.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles, CgoFiles       []string
}

// A checker type-checks packages of which some files are replaced. What they import comes from the build cache.
type checker struct {
	fset     *token.FileSet
	packages map[string]listed    // by directory
	parsed   map[string]*ast.File // files as they are
	config   types.Config
}

func newChecker(t *testing.T, root string, all []Mutant) *checker {
	t.Helper()
	args := []string{"list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,CgoFiles"}
	for i := range all {
		for _, dir := range all[i].dirs() {
			if pattern := "./" + filepath.ToSlash(dir); !slices.Contains(args, pattern) {
				args = append(args, pattern)
			}
		}
	}
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &checker{fset: token.NewFileSet(), packages: map[string]listed{}, parsed: map[string]*ast.File{}}
	exports := map[string]string{}
	for d := json.NewDecoder(out); ; {
		var p listed
		if err := d.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		c.packages[p.Dir], exports[p.ImportPath] = p, p.Export
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	c.config = types.Config{FakeImportC: true, Importer: importer.ForCompiler(c.fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})}
	return c
}

// check type-checks the package in a directory with other texts of some files.
func (c *checker) check(dir string, texts map[string][]byte) error {
	p := c.packages[dir]
	var files []*ast.File
	for _, name := range slices.Concat(p.GoFiles, p.CgoFiles) {
		path := filepath.Join(dir, name)
		text, patched := texts[path]
		f := c.parsed[path]
		if patched || f == nil {
			var err error
			var src any
			if patched {
				src = text
			}
			if f, err = parser.ParseFile(c.fset, path, src, parser.SkipObjectResolution); err != nil {
				return err
			}
			if !patched {
				c.parsed[path] = f
			}
		}
		files = append(files, f)
	}
	_, err := c.config.Check(p.ImportPath, c.fset, files, nil)
	return err
}
