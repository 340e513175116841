package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/declock/declock/"

// mayImport is the house from the bottom up: each package, or folder of
// packages ("x/..."), and the packages of this module that its code (without
// tests) may import, besides those of its own folder.
var mayImport = map[string][]string{
	"fabric":                      {"internal/stats"},
	"fabric/inbox":                {"fabric"},
	"fabric/sim":                  {"fabric", "fabric/member", "fabric/pswitch"},
	"fabric/pswitch":              {"fabric"},
	"fabric/internal/...":         {"fabric", "fabric/member"},
	"fabric/internal/peer":        {"fabric", "fabric/inbox", "fabric/member", "internal/boottime"},
	"fabric/internal/peertest":    {"fabric", "fabric/fabrictest", "fabric/internal/peer", "fabric/member", "coordinator/coordtest"}, // a test suite and its harness
	"fabric/shm":                  {"fabric", "fabric/inbox"},
	"fabric/member":               {"fabric"},
	"fabric/verbs":                {"fabric", "fabric/inbox", "fabric/member"},
	"fabric/tcp":                  {"fabric", "fabric/inbox", "fabric/member"},
	"coordinator":                 {"fabric", "fabric/member"},
	"coordinator/...":             {"fabric", "fabric/member", "coordinator"},
	"coordinator/etcd":            {"fabric", "fabric/member", "internal/boottime"},
	"fabric/fabrictest":           {"fabric"},
	"lock":                        {"fabric", "internal/stats"},
	"lock/...":                    {"fabric", "lock"},
	"lock/locktest":               {"fabric", "fabric/fabrictest", "fabric/pswitch", "fabric/shm", "fabric/sim", "fabric/tcp", "coordinator", "lock"}, // a test suite and its harnesses
	"timesync":                    {"fabric"},
	"cql":                         {"fabric", "lock"},
	"hier":                        {"fabric", "lock", "timesync", "cql"},
	"memory":                      {"fabric"},
	"memory/reclaim":              {"fabric"},
	"memory/slab":                 {"fabric", "memory", "memory/reclaim"},
	"memory/handle":               {"fabric", "lock", "memory", "memory/reclaim", "memory/slab"},
	"mn":                          {"fabric", "cql", "memory"},
	"cn":                          {"fabric", "lock", "timesync", "cql", "hier", "memory", "internal/stats"},
	"objstore":                    {"fabric", "lock", "memory", "memory/slab", "memory/reclaim", "memory/handle", "internal/stats"},
	"btree":                       {"fabric", "lock", "memory", "memory/slab", "memory/reclaim", "memory/handle", "internal/stats"},
	"lab/...":                     {"..."}, // what researchers and maintainers use; what users link does without it, see TestLinked
	"lab/locks":                   {"..."}, // the registry
	"lab/locks/...":               {"fabric", "fabric/pswitch", "lock", "lab/locks/internal/baseline"},
	"lab/locks/fiss":              {"fabric", "fabric/pswitch", "lock", "lab/locks/internal/baseline", "lab/locks/internal/switched", "lab/locks/server"}, // for locks without registers
	"lab/locks/netlock":           {"fabric", "fabric/pswitch", "lock", "lab/locks/internal/baseline", "lab/locks/internal/switched", "lab/locks/server"}, // for locks without queues
	"lab/locks/internal/switched": {"fabric", "lock", "lab/locks/internal/baseline", "lab/locks/server"},
	"lab/oracle":                  {"fabric", "lock"},
	"traces/...":                  {"objstore", "traces", "internal/stats"},
	"internal/...":                {},
	"internal/membership":         {"fabric", "fabric/member", "coordinator/etcd", "internal/secure"},
	"":                            {"fabric", "fabric/shm", "lock", "hier", "memory", "memory/handle", "mn", "cn", "objstore", "btree"},
	"metrics":                     {"", "fabric", "fabric/member", "lock", "cql", "memory", "cn", "objstore", "front", "internal/background"},
	"internal/secure/securetest":  {"internal/secure"},
	"overtcp":                     {"", "fabric", "fabric/member", "fabric/tcp", "coordinator/etcd", "memory", "internal/secure", "internal/membership"},
	"oververbs":                   {"", "fabric", "fabric/verbs", "coordinator/etcd", "internal/secure", "internal/membership"},
	"front":                       {},
	"front/item":                  {"", "front", "fabric", "lock", "memory", "objstore"},
	"front/...":                   {"", "front", "front/item", "fabric", "lock", "memory", "cn", "objstore", "internal/stats"},
	"cmd/...":                     {"..."},
}

// pure are the packages that are straight-line code over a fabric.Port: they run the same
// in real and in virtual time.
var pure = []string{"lock", "fabric/pswitch", "lab/locks/...", "timesync", "cql", "hier", "memory", "memory/slab", "memory/reclaim", "memory/handle", "objstore", "btree"}

// impure is what pure packages must not import.
var impure = []string{"time", "net", "os", "context", "runtime", "syscall", "math/rand", "math/rand/v2", "crypto/rand", "unsafe", "golang.org/x/sys/unix"}

// Bounds of files and functions, in lines.
const (
	maxFile     = 800
	maxFunction = 70
)

func matches(pattern, pkg string) bool {
	if folder, ok := strings.CutSuffix(pattern, "/..."); ok {
		return pkg == folder || strings.HasPrefix(pkg, folder+"/")
	}
	return pattern == pkg || pattern == "..."
}

func any(patterns []string, pkg string) bool {
	for _, p := range patterns {
		if matches(p, pkg) {
			return true
		}
	}
	return false
}

// allowed returns what a package may import: the exact rule before the folder's, and a folder's before that of the one above it.
func allowed(pkg string) (rule []string, ok bool) {
	if rule, ok = mayImport[pkg]; ok {
		return rule, true
	}
	for folder := pkg; folder != "."; folder = path.Dir(folder) {
		if rule, ok = mayImport[folder+"/..."]; ok {
			return rule, true
		}
	}
	return nil, false
}

type file struct {
	path, pkg string // relative to the module's root
	test      bool
	ast       *ast.File
	lines     int
}

// load parses every Go file of the module.
func load(t *testing.T) (*token.FileSet, []file) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	var files []file
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if n := d.Name(); path != root && (strings.HasPrefix(n, ".") || n == "testdata" || n == "bin") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		a, err := parser.ParseFile(fset, path, src, parser.ParseComments)
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		pkg := filepath.ToSlash(filepath.Dir(rel))
		if pkg == "." {
			pkg = ""
		}
		files = append(files, file{path: rel, pkg: pkg, test: strings.HasSuffix(path, "_test.go"), ast: a, lines: strings.Count(string(src), "\n")})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 20 {
		t.Fatalf("only %d Go files found under %s", len(files), root)
	}
	return fset, files
}

func imports(f *ast.File) []string {
	var all []string
	for _, i := range f.Imports {
		p, _ := strconv.Unquote(i.Path.Value)
		all = append(all, p)
	}
	return all
}

// TestImportsGoDown: imports only go down the table.
func TestImportsGoDown(t *testing.T) {
	_, files := load(t)
	for _, f := range files {
		if f.test {
			continue
		}
		rule, ok := allowed(f.pkg)
		if !ok {
			t.Errorf("%s: package %q is not in the import table", f.path, f.pkg)
			continue
		}
		for _, p := range imports(f.ast) {
			own, ok := strings.CutPrefix(p, module)
			if !ok && p+"/" == module {
				own, ok = "", true
			}
			if !ok || own == f.pkg || strings.HasPrefix(own, f.pkg+"/internal") || any(rule, own) {
				continue
			}
			if top, _, _ := strings.Cut(f.pkg, "/"); strings.HasPrefix(own, top+"/internal/") {
				continue
			}
			t.Errorf("%s: %q must not import %q", f.path, f.pkg, own)
		}
	}
}

// TestProtocolCodeIsPure: no time, net, os, goroutines, channels or randomness
// of its own in protocol and application code.
func TestProtocolCodeIsPure(t *testing.T) {
	fset, files := load(t)
	for _, f := range files {
		if f.test || !any(pure, f.pkg) || strings.HasSuffix(f.pkg, "test") {
			continue
		}
		for _, p := range imports(f.ast) {
			if any(impure, p) {
				t.Errorf("%s: protocol code must not import %q", f.path, p)
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch x := n.(type) {
			case *ast.GoStmt, *ast.SelectStmt, *ast.ChanType, *ast.SendStmt:
				t.Errorf("%v: %T in protocol code", fset.Position(n.Pos()), x)
			}
			return true
		})
	}
}

// TestNoPackageAsksWhichFabric: no protocol branch depends on the fabric.
func TestNoPackageAsksWhichFabric(t *testing.T) {
	fset, files := load(t)
	for _, f := range files {
		if f.test || !any(pure, f.pkg) && f.pkg != "cn" && f.pkg != "mn" {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "Fabric" {
				if c, ok := s.X.(*ast.CallExpr); ok {
					if m, ok := c.Fun.(*ast.SelectorExpr); ok && m.Sel.Name == "Caps" {
						t.Errorf("%v: Caps().Fabric is for messages to people", fset.Position(n.Pos()))
					}
				}
			}
			return true
		})
	}
}

// TestSizes: files under 800 lines, functions under 70.
func TestSizes(t *testing.T) {
	fset, files := load(t)
	for _, f := range files {
		if f.lines > maxFile {
			t.Errorf("%s: %d lines, at most %d", f.path, f.lines, maxFile)
		}
		if f.test {
			continue
		}
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			if n := fset.Position(fn.End()).Line - fset.Position(fn.Pos()).Line + 1; n > maxFunction {
				t.Errorf("%v: %s has %d lines, at most %d", fset.Position(fn.Pos()), fn.Name.Name, n, maxFunction)
			}
		}
	}
}

// TestEveryPackageIsDocumented: each package has a package comment.
func TestEveryPackageIsDocumented(t *testing.T) {
	_, files := load(t)
	doc := map[string]bool{}
	for _, f := range files {
		if !f.test {
			doc[f.pkg] = doc[f.pkg] || f.ast.Doc != nil
		}
	}
	for pkg, ok := range doc {
		if !ok {
			t.Errorf("package %q has no package comment", pkg)
		}
	}
}

// TestExportedHaveComments: everything exported says what it is.
func TestExportedHaveComments(t *testing.T) {
	fset, files := load(t)
	for _, f := range files {
		if f.test || strings.HasPrefix(f.pkg, "cmd") {
			continue
		}
		for _, d := range f.ast.Decls {
			switch x := d.(type) {
			case *ast.FuncDecl:
				if x.Name.IsExported() && x.Doc == nil && x.Recv == nil {
					t.Errorf("%v: %s has no comment", fset.Position(x.Pos()), x.Name.Name)
				}
			case *ast.GenDecl:
				for _, s := range x.Specs {
					if ts, ok := s.(*ast.TypeSpec); ok && ts.Name.IsExported() && x.Doc == nil && ts.Doc == nil {
						t.Errorf("%v: %s has no comment", fset.Position(ts.Pos()), ts.Name.Name)
					}
				}
			}
		}
	}
}
