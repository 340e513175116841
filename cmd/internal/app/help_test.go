package app

import (
	"slices"
	"strings"
	"testing"

	"github.com/declock/declock/cmd/internal/command"
)

// The help of a command that concerns trees as well as object stores names both.
func TestHelpNamesTrees(t *testing.T) {
	var out strings.Builder
	a := Declock(&command.Env{Stdout: &out, Stderr: &out})
	for _, name := range []string{"", "check", "drop", "flush", "forget", "inspect", "status"} {
		out.Reset()
		args := slices.DeleteFunc([]string{"declock", name, "--help"}, func(s string) bool { return s == "" })
		if err := a.Run(args); err != nil {
			t.Errorf("%v: %v", args, err)
		}
		for _, word := range []string{"store", "tree"} {
			if !strings.Contains(out.String(), word) {
				t.Errorf("%v does not name a %s:\n%s", args, word, out.String())
			}
		}
	}
}
