package fabric_test

import (
	"go/build"
	"slices"
	"testing"
)

// A build for a machine with another word size or order of bytes is refused with a reason.
func TestMachines(t *testing.T) {
	for arch, refused := range map[string]bool{"amd64": false, "arm64": false, "riscv64": false, "386": true, "arm": true, "s390x": true, "mips": true} {
		ctx := build.Default
		ctx.GOARCH = arch
		p, err := ctx.ImportDir(".", 0)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(p.GoFiles, "arch.go") != refused {
			t.Errorf("%s: refused is %v", arch, !refused)
		}
	}
}
