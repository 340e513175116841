package mutants

import (
	"encoding/json"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	for i := range all {
		texts, err := all[i].Apply(root)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, dir := range all[i].dirs() {
			if err := c.check(filepath.Join(root, dir), texts); err != nil {
				t.Errorf("%s: %v", all[i].Name, err)
			}
		}
	}
	cql := filepath.Join(root, "cql")
	if c.check(cql, map[string][]byte{filepath.Join(cql, "doc.go"): []byte("package cql\n\nvar _ = nowhere\n")}) == nil {
		t.Error("a package that does not compile passes")
	}
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
