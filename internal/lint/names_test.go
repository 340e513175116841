package lint

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// declared returns what Go files declare, as "package.Name" and "Type.member" (a method or a field).
func declared(files []file) map[string]bool {
	list := map[string]bool{}
	for _, f := range files {
		add := func(name string) { list[f.ast.Name.Name+"."+name] = true }
		for _, d := range f.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					add(d.Name.Name)
				} else {
					list[receiver(d.Recv.List[0].Type)+"."+d.Name.Name] = true
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch s := spec.(type) {
					case *ast.ValueSpec:
						for _, n := range s.Names {
							add(n.Name)
						}
					case *ast.TypeSpec:
						add(s.Name.Name)
						members(s, list)
					}
				}
			}
		}
	}
	return list
}

// members adds the fields of a struct, or the methods of an interface.
func members(s *ast.TypeSpec, list map[string]bool) {
	var fields *ast.FieldList
	switch t := s.Type.(type) {
	case *ast.StructType:
		fields = t.Fields
	case *ast.InterfaceType:
		fields = t.Methods
	default:
		return
	}
	for _, f := range fields.List {
		for _, n := range f.Names {
			list[s.Name.Name+"."+n.Name] = true
		}
	}
}

// receiver returns the name of a receiver's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// imported returns the names of the packages of others that Go files import.
func imported(files []file) map[string]bool {
	list := map[string]bool{}
	for _, f := range files {
		for _, p := range imports(f.ast) {
			if !strings.HasPrefix(p+"/", module) {
				list[p[strings.LastIndexByte(p, '/')+1:]] = true
			}
		}
	}
	return list
}

var (
	codeSpan = regexp.MustCompile("`([^`\n]+)`")
	camel    = regexp.MustCompile(`^[a-zA-Z]+[a-z][A-Z]\w*$`)
	dotted   = regexp.MustCompile(`^((?:[a-zA-Z]\w*\.)+[a-zA-Z]\w*)(?:\(.*\))?$`)
	goFile   = regexp.MustCompile(`(?:[a-z][a-z0-9_]*/)*[a-z][a-z0-9_]*[.]go\b`)
	pageName = regexp.MustCompile(`docs/[a-z-]+[.]md`)
	fileName = regexp.MustCompile(`\.(?:bell|c|go|html|json|key|md|pem|sock|txt)$`)
	hostName = regexp.MustCompile(`^[cm]n\d*\.declock$`) // in certificates
)

// notCode are words in code spans that look like names of the code.
var notCode = []string{"resetID", "qhead", "cnN", "vm.overcommit_memory", "securityContext.capabilities"}

// A vocabulary is what the code has names for.
type vocabulary struct {
	pairs map[string]bool // "package.Name", "Type.member"
	first map[string]bool // what has a dot behind it in pairs
	bare  map[string]bool // what has a dot before it
	other map[string]bool // packages of others
}

func vocabularyOf(files []file) vocabulary {
	v := vocabulary{pairs: declared(files), first: map[string]bool{}, bare: map[string]bool{}, other: imported(files)}
	for pair := range v.pairs {
		owner, member, _ := strings.Cut(pair, ".")
		v.first[owner], v.bare[member] = true, true
	}
	return v
}

// unknown returns what the code does not have of the name in a code span, or "".
func (v *vocabulary) unknown(span string) string {
	m := dotted.FindStringSubmatch(span)
	switch {
	case slices.Contains(notCode, span) || hostName.MatchString(span):
		return ""
	case camel.MatchString(span) && !v.bare[span]:
		return span
	case m == nil:
		return ""
	}
	parts := strings.Split(m[1], ".")
	if v.other[parts[0]] && !v.first[parts[0]] {
		return ""
	}
	for i := 1; i < len(parts); i++ {
		if pair := parts[i-1] + "." + parts[i]; !v.pairs[pair] {
			if fileName.MatchString(m[1]) {
				return ""
			}
			return pair
		}
	}
	return ""
}

// TestNamedCodeExists: functions, types and fields that pages name with a dot or a capital inside, are in the code, so that pages
// follow a rename.
func TestNamedCodeExists(t *testing.T) {
	_, files := load(t)
	v := vocabularyOf(files)
	for _, p := range pages(t) {
		for _, m := range codeSpan.FindAllStringSubmatch(p.text, -1) {
			if missing := v.unknown(m[1]); missing != "" {
				t.Errorf("%s: the code has no %s (in %s)", p.path, missing, m[1])
			}
		}
	}
}

// mapPages lead through the code by its names.
var mapPages = []string{"architecture.md", "walks.md", "incarnations.md", "restarts.md", "shm.md"}

// TestNamesOfMapPagesExist: what is one word of code on the pages that lead through the code is an identifier or a folder there.
func TestNamesOfMapPagesExist(t *testing.T) {
	_, files := load(t)
	have, word := map[string]bool{}, regexp.MustCompile(`^[a-zA-Z]\w+$`)
	for _, name := range notCode {
		have[name] = true
	}
	for _, f := range files {
		for dir := range strings.SplitSeq(f.pkg, "/") {
			have[dir] = true
		}
		if f.test {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				have[id.Name] = true
			}
			return true
		})
	}
	for _, p := range pages(t) {
		if !slices.Contains(mapPages, filepath.Base(p.path)) {
			continue
		}
		for _, m := range codeSpan.FindAllStringSubmatch(p.text, -1) {
			if word.MatchString(m[1]) && !have[m[1]] && !strings.HasPrefix(m[1], "Test") {
				t.Errorf("%s: the code has no %s", p.path, m[1])
			}
		}
	}
}

// TestNamedFilesExist: Go files that pages and comments name are there, with their folder or without, and pages that comments name.
func TestNamedFilesExist(t *testing.T) {
	fset, files := load(t)
	have := map[string]bool{}
	for _, f := range files {
		path := filepath.ToSlash(f.path)
		have[path], have[filepath.Base(path)] = true, true
	}
	check := func(where, text string) {
		for _, name := range goFile.FindAllString(text, -1) {
			if !have[name] {
				t.Errorf("%s: no file %s", where, name)
			}
		}
	}
	for _, p := range pages(t) {
		check(p.path, p.text)
	}
	for _, f := range files {
		for _, c := range f.ast.Comments {
			where := fset.Position(c.Pos()).String()
			check(where, c.Text())
			for _, name := range pageName.FindAllString(c.Text(), -1) {
				if _, err := os.Stat("../../" + name); err != nil {
					t.Errorf("%s: no page %s", where, name)
				}
			}
		}
	}
}

// TestGlossaryNamesTheCode: words in italics and brackets in the first column of the glossary are those of the code for the same thing. One
// that the code has no longer goes from the glossary.
func TestGlossaryNamesTheCode(t *testing.T) {
	_, files := load(t)
	files = slices.DeleteFunc(files, func(f file) bool { return f.test || within(f.pkg, "lab cmd") })
	have := map[string]bool{}
	word := regexp.MustCompile(`[A-Z]?[a-z]+|[A-Z]+`)
	for pair := range declared(files) {
		for _, w := range word.FindAllString(pair, -1) {
			have[strings.ToLower(w)] = true
		}
	}
	brackets, italics := regexp.MustCompile(`\([^)]*\)`), regexp.MustCompile(`\*([^*]+)\*`)
	for _, p := range pages(t) {
		if filepath.Base(p.path) != "glossary.md" {
			continue
		}
		for _, b := range blocks(p.text) {
			if !b.row {
				continue
			}
			for _, m := range italics.FindAllStringSubmatch(strings.Join(brackets.FindAllString(cells(b.lines[0])[0], -1), " "), -1) {
				for _, w := range strings.Fields(m[1]) {
					if !have[strings.ToLower(w)] {
						t.Errorf("%s:%d: the code has no %s", p.path, b.line, m[1])
					}
				}
			}
		}
	}
}

// TestProtocolNamesTheMessages: the table of messages in docs/protocol.md has each kind of cql and hier, and no other.
func TestProtocolNamesTheMessages(t *testing.T) {
	_, files := load(t)
	files = slices.DeleteFunc(files, func(f file) bool { return f.test || f.pkg != "cql" && f.pkg != "hier" })
	have := map[string]bool{}
	for pair := range declared(files) {
		if _, kind, ok := strings.Cut(pair, ".msg"); ok {
			have[kind] = true
		}
	}
	text, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Messages\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rows := 0
	for _, b := range blocks(section) {
		if !b.row {
			continue
		}
		if rows++; rows <= 2 {
			continue // the heads of the columns
		}
		kind := cells(b.lines[0])[0]
		if !have[kind] {
			t.Errorf("docs/protocol.md: there is no message %s", kind)
		}
		delete(have, kind)
	}
	for kind := range have {
		t.Errorf("docs/protocol.md: no row for the message %s", kind)
	}
}

// runFlag is what a command of a page selects of tests. In a table a bar has a backslash.
var runFlag = regexp.MustCompile(`-(?:test[.])?run[ =]'?([\w|\\^$]+)`)

// TestSelectedTestsExist: each test that a page selects by -run, in full or by a part of its name, is there.
func TestSelectedTestsExist(t *testing.T) {
	_, files := load(t)
	var names []string
	for _, f := range files {
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && f.test && fn.Recv == nil {
				names = append(names, fn.Name.Name)
			}
		}
	}
	for _, p := range pages(t) {
		for _, m := range runFlag.FindAllStringSubmatch(p.text, -1) {
			for part := range strings.SplitSeq(strings.ReplaceAll(m[1], `\`, ""), "|") {
				want := strings.Trim(part, "^$")
				if strings.EqualFold(want, "xxx") { // none, for benchmarks
					continue
				}
				if !slices.ContainsFunc(names, func(name string) bool { return testName.MatchString(name) && strings.Contains(name, want) }) {
					t.Errorf("%s: no test has %q in its name (%s)", p.path, want, m[0])
				}
			}
		}
	}
}
