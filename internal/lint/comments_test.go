package lint

import (
	"go/ast"
	"regexp"
	"testing"
)

// testName is the name of a function that go test calls: its comment is a sentence about what it shows.
var testName = regexp.MustCompile(`^(?:Test|Benchmark|Fuzz|Example)`)

// firstWord is the first word of a comment, without an article.
var firstWord = regexp.MustCompile(`^(?:(?:A|An|The) )?(\w+)`)

// misnamed returns the name with which the comment of a declaration begins, if it is another's: a word in lower case, as a renamed
// function leaves it behind, or, at what other packages see, any other word.
func misnamed(name string, doc *ast.CommentGroup, seen bool) string {
	if doc == nil || testName.MatchString(name) {
		return ""
	}
	m := firstWord.FindStringSubmatch(doc.Text())
	if m == nil || m[1] == name {
		return ""
	}
	if c := m[0][0]; c >= 'a' && c <= 'z' || seen && ast.IsExported(name) {
		return m[1]
	}
	return ""
}

// TestCommentsNameWhatTheyDocument: the comment of a function, method, type, constant or variable does not begin with the name of
// something else, as after a rename.
func TestCommentsNameWhatTheyDocument(t *testing.T) {
	fset, files := load(t)
	for _, f := range files {
		check := func(name *ast.Ident, doc *ast.CommentGroup) {
			if other := misnamed(name.Name, doc, !f.test); other != "" {
				t.Errorf("%v: the comment of %s begins with %q", fset.Position(doc.Pos()), name.Name, other)
			}
		}
		for _, d := range f.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				check(d.Name, d.Doc)
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						check(s.Name, own(s.Doc, d))
					case *ast.ValueSpec:
						if len(s.Names) == 1 {
							check(s.Names[0], own(s.Doc, d))
						}
					}
				}
			}
		}
	}
}

// own returns the comment of a declaration that is not in parentheses, or that of one in them.
func own(doc *ast.CommentGroup, d *ast.GenDecl) *ast.CommentGroup {
	if doc == nil && !d.Lparen.IsValid() {
		return d.Doc
	}
	return doc
}

// TestMisnamed: what the rule refuses.
func TestMisnamed(t *testing.T) {
	comment := func(text string) *ast.CommentGroup {
		return &ast.CommentGroup{List: []*ast.Comment{{Text: "// " + text}}}
	}
	for _, x := range []struct{ name, text, want string }{
		{"deferrable", "owes reports whether it can wait.", "owes"},
		{"Generation", "Birth tells which memory it is.", "Birth"},
		{"deferrable", "deferrable reports whether it can wait.", ""},
		{"dividedRun", "A dividedRun has blocks of one class.", ""},
		{"deferrable", "Readers wait for it.", ""},
		{"TestEtcd", "etcd is away.", ""},
	} {
		if got := misnamed(x.name, comment(x.text), true); got != x.want {
			t.Errorf("%s, %q: %q, want %q", x.name, x.text, got, x.want)
		}
	}
}
