package mutants

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const code = `package p

type T struct{ n int }

// f has the line of g.
func f(n int) int {
	n++
	return n
}

func (t *T) f() {
	if t.n > 0 {
		t.n++
	}
	t.n++
}
`

func patched(t *testing.T, patch string) (string, error) {
	t.Helper()
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "p.go"), []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := Parse("x", "breaks: it\nclasses: locks\n\n--- p.go\n"+patch)
	if err != nil {
		return "", err
	}
	texts, err := m.Apply(root)
	return string(texts[filepath.Join(root, "p.go")]), err
}

// A hunk finds its lines in its declaration, whatever their indentation, and nowhere else.
func TestApply(t *testing.T) {
	got, err := patched(t, "@@ f @@\n-n++\n+	n += 2\n@@ T.f @@\n-	}\n-	t.n++\n+	}\n")
	want := strings.Replace(strings.Replace(code, "\tn++\n\treturn", "\tn += 2\n\treturn", 1), "\t}\n\tt.n++\n", "\t}\n", 1)
	if err != nil || got != want {
		t.Errorf("%v\n%s", err, got)
	}
}

// A patch that no longer applies says which declaration, and which line of it, is not there.
func TestStale(t *testing.T) {
	for patch, want := range map[string]string{
		"@@ g @@\n-	n++\n":                     "0 declarations g",
		"@@ f @@\n-	n++\n-	return n + 1\n":     `f does not have the line "return n + 1" after those before it`,
		"@@ T.f @@\n-	t.n++\n":                 "T.f has the lines to replace 2 times: add context",
		"--- q.go\n@@ f @@\n-	n++\n+	n += 2\n": "q.go",
	} {
		if _, err := patched(t, patch); !errors.Is(err, ErrStale) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", patch, err)
		}
	}
}

// What is no patch is refused.
func TestParse(t *testing.T) {
	const good = "breaks: it\ntest: cql TestX\n\n--- p.go\n@@ f @@\n-	n++\n"
	if _, err := Parse("x", good); err != nil {
		t.Error(err)
	}
	for _, edit := range [][2]string{{"breaks: it\n", ""}, {"test: cql TestX\n", ""}, {"test:", "tests:"}, {"test: cql TestX\n", "test: cql TestX\nclasses: locks\n"},
		{"@@ f @@\n", ""}, {"-	n++\n", ""}, {"-	n++\n", "+	n++\n"}, {"--- p.go\n", ""}} {
		if _, err := Parse("x", strings.Replace(good, edit[0], edit[1], 1)); !errors.Is(err, ErrFormat) {
			t.Errorf("%q for %q: %v", edit[1], edit[0], err)
		}
	}
}

// A directory that is not in the source tree is refused, and this one is in it.
func TestSourceTree(t *testing.T) {
	if dir, err := SourceTree(t.TempDir()); !errors.Is(err, ErrNoSource) {
		t.Errorf("%q, %v", dir, err)
	}
	root, err := SourceTree(".")
	if err != nil {
		t.Skip(err)
	}
	if here, err := os.Getwd(); err != nil || here != filepath.Join(root, "lab", "mutants") {
		t.Errorf("the root around %s is %s, %v", here, root, err)
	}
}
