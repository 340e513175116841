package fabric_test

import (
	"go/build"
	"slices"
	"strings"
	"testing"
)

// A build for a machine with another word size or order of bytes, or without Linux, is refused with a reason.
func TestMachines(t *testing.T) {
	for machine, refused := range map[string]bool{"linux/amd64": false, "linux/arm64": false, "linux/riscv64": false,
		"linux/386": true, "linux/arm": true, "linux/s390x": true, "linux/mips": true, "darwin/arm64": true} {
		ctx := build.Default
		ctx.GOOS, ctx.GOARCH, _ = strings.Cut(machine, "/")
		p, err := ctx.ImportDir(".", 0)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(p.GoFiles, "arch.go") != refused {
			t.Errorf("%s: refused is %v", machine, !refused)
		}
	}
}
