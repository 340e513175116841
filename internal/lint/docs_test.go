package lint

import (
	"go/ast"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A page is a Markdown file of the module.
type page struct{ path, text string }

// pages returns the README and everything in docs and deploy.
func pages(t *testing.T) (list []page) {
	t.Helper()
	add := func(path string) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, page{path, string(text)})
	}
	add("../../README.md")
	for _, dir := range []string{"../../docs", "../../deploy"} {
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".md") {
				add(path)
			}
			return err
		})
	}
	if len(list) < 10 {
		t.Fatalf("%d pages", len(list))
	}
	return list
}

// anchors returns what headings of a page can be linked to by.
func anchors(text string) map[string]bool {
	list := map[string]bool{}
	for line := range strings.Lines(text) {
		heading := strings.TrimLeft(line, "#")
		if heading == line || !strings.HasPrefix(heading, " ") {
			continue
		}
		heading = regexp.MustCompile(`[^\pL\pN _-]`).ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
		list[strings.ReplaceAll(heading, " ", "-")] = true
	}
	return list
}

// TestLinksLead: links of pages to files and headings lead somewhere.
func TestLinksLead(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for _, p := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(p.text, -1) {
			path, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(path, "://") {
				continue
			}
			target := p.path
			if path != "" {
				target = filepath.Join(filepath.Dir(p.path), path)
			}
			text, err := os.ReadFile(target)
			switch _, derr := os.ReadDir(target); {
			case err != nil && derr != nil:
				t.Errorf("%s: %s leads nowhere", p.path, m[1])
			case anchor != "" && !anchors(string(text))[anchor]:
				t.Errorf("%s: %s has no such heading", p.path, m[1])
			}
		}
	}
}

// TestNamedTestsExist: tests that pages name are there.
func TestNamedTestsExist(t *testing.T) {
	_, files := load(t)
	funcs := map[string]bool{}
	for _, f := range files {
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				funcs[fn.Name.Name] = true
			}
		}
	}
	test := regexp.MustCompile(`(?:Test|Fuzz|Benchmark)[A-Z][A-Za-z0-9]*(\.\.)?`)
	for _, p := range pages(t) {
		for _, m := range test.FindAllStringSubmatch(p.text, -1) {
			if m[1] == "" && !begins(funcs, m[0]) {
				t.Errorf("%s: no %s", p.path, m[0])
			}
		}
	}
}

// TestArchitectureNamesPackages: each package is in the table of docs/architecture.md, itself or with its folder.
func TestArchitectureNamesPackages(t *testing.T) {
	text, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, files := load(t)
	missing := map[string]bool{}
	for _, f := range files {
		folder := func(dir string) bool { return strings.HasPrefix(f.pkg, dir+"/") }
		if f.pkg != "" && !folder("cmd") && !folder("tools") && !folder("lab/peers") && !strings.Contains(string(text), "`"+f.pkg+"`") {
			missing[f.pkg] = true
		}
	}
	for pkg := range missing {
		t.Errorf("package %s is not in the table of docs/architecture.md", pkg)
	}
}

// TestPackagesAreListed: docs/packages.md says of each package that can be imported whether it is stable.
func TestPackagesAreListed(t *testing.T) {
	text, err := os.ReadFile("../../docs/packages.md")
	if err != nil {
		t.Fatal(err)
	}
	_, files := load(t)
	for _, f := range files {
		top, _, _ := strings.Cut(f.pkg, "/")
		if f.pkg == "" || f.test || strings.Contains("/"+f.pkg+"/", "/internal/") || strings.Contains(string(text), "`"+top+"/...`") || top == "tools" {
			continue
		}
		if !strings.Contains(string(text), "`"+f.pkg+"`") && f.pkg != "front" {
			t.Errorf("package %s is not in a table of docs/packages.md", f.pkg)
		}
	}
}

// begins reports whether a name begins with a text: what follows -run may be the begin of names.
func begins(names map[string]bool, text string) bool {
	for name := range names {
		if strings.HasPrefix(name, text) {
			return true
		}
	}
	return false
}

// A riddle is a phrase that is not used in comments and pages.
type riddle struct {
	phrase string // as it is looked for, without regard to case
	say    string
	later  []string // folders that have it still
}

var riddles = []riddle{
	{"tells whether", "reports whether", []string{"hier", "cql", "fabric/tcp", "fabric/sim", "coordinator"}},
	{"who waits looks", "a waiter spins", nil},
	{"what the dead had", "memory leaked by crashed nodes", nil},
	{"who has gone", "nodes that have gone", []string{"coordinator", "fabric/member"}},
}

// TestPlainWords: comments and pages say things in the field's words.
func TestPlainWords(t *testing.T) {
	look := func(path, text string) {
		text = strings.ToLower(strings.Join(strings.Fields(strings.ReplaceAll(text, "\n// ", " ")), " "))
		for _, r := range riddles {
			if !strings.Contains(text, r.phrase) {
				continue
			}
			known := false
			for _, dir := range r.later {
				known = known || strings.HasPrefix(filepath.ToSlash(path), dir+"/")
			}
			if !known {
				t.Errorf("%s: %q: say %q", path, r.phrase, r.say)
			}
		}
	}
	for _, p := range pages(t) {
		look(p.path, p.text)
	}
	fset, files := load(t)
	for _, f := range files {
		if f.pkg == "internal/lint" {
			continue
		}
		for _, c := range f.ast.Comments {
			at := fset.Position(c.Pos())
			look(f.path+":"+at.String()[strings.LastIndexByte(at.String(), '/')+1:], c.Text())
		}
	}
}
