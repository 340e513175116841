package declock_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// program is what stands around the README's Go program: its variables are used, and it ends at the first error.
const program = `package main

import (
	"context"
	"log"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/btree"
)

func use(...any) {}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	ctx := context.Background()
%s	use(value)
	check(c.Close())
}
`

// The Go program of the README runs in a module of its own, which requires this one.
func TestReadmeProgram(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program")
	}
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Skip(err) // without the source tree
		}
		return string(text)
	}
	found := regexp.MustCompile("(?s)## In a Go program\n.*?```sh\ngo get ([^ ]+) .*?```go\n(.*?)```").FindStringSubmatch(read("README.md"))
	if found == nil {
		t.Fatal("the README has no go get line with a Go program behind it")
	}
	var body strings.Builder
	setsErr := regexp.MustCompile(`^(\w+, )*err :?= `)
	for line := range strings.Lines(found[2]) {
		if body.WriteString("\t" + line); setsErr.MatchString(line) {
			body.WriteString("\tcheck(err)\n")
		}
	}
	dir := t.TempDir()
	mod := strings.Replace(read("go.mod"), "module "+found[1]+"\n", "module example.com/program\n", 1)
	if !strings.Contains(mod, "module example.com/program\n") {
		t.Fatalf("go get %s is not of this module", found[1])
	}
	mod += fmt.Sprintf("\nrequire %s v0.0.0\n\nreplace %s => %s\n", found[1], found[1], root)
	for name, text := range map[string]string{"go.mod": mod, "go.sum": read("go.sum"), "main.go": fmt.Sprintf(program, body.String())} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "run", "-mod=mod", ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOPROXY=off", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s\n%s", err, out, body.String())
	}
}
