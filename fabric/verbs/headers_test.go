//go:build cgo && !shmonly

package verbs

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Without the headers of libibverbs the C side compiles too, and has all that the Go side calls; with what the build tag verbs
// sets, it stops and names the package.
func TestTheShimCompilesWithoutHeaders(t *testing.T) {
	header, err := os.ReadFile("shim.h")
	if err != nil {
		t.Skip(err) // the guest has no sources
	}
	compiler, err := exec.LookPath("cc")
	if err != nil {
		t.Skip(err)
	}
	object := filepath.Join(t.TempDir(), "shim.o")
	compile := func(more ...string) (string, error) {
		// Where the compiler cannot look for headers it has none.
		out, err := exec.Command(compiler, append([]string{"-U__has_include", "-c", "-o", object, "shim.c"}, more...)...).CombinedOutput()
		return string(out), err
	}
	if out, err := compile("-DDECLOCK_REQUIRE_VERBS"); err == nil || !strings.Contains(out, "libibverbs-dev") {
		t.Errorf("with the tag: %v, %s", err, out)
	}
	if out, err := compile("-Werror=implicit-function-declaration"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	f, err := elf.Open(object)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	defined := map[string]bool{}
	for _, s := range symbols {
		defined[s.Name] = defined[s.Name] || s.Section != elf.SHN_UNDEF
	}
	declared := regexp.MustCompile(`\b(vb_\w+)\(`).FindAllStringSubmatch(string(header), -1)
	if len(declared) < 10 {
		t.Fatalf("%d functions are declared in shim.h", len(declared))
	}
	for _, m := range declared {
		if !defined[m[1]] {
			t.Errorf("%s is missing", m[1])
		}
	}
}
