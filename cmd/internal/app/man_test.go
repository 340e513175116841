package app

import (
	"strings"
	"testing"

	"github.com/declock/declock/cmd/internal/command"
)

// Manual pages have all commands with what their help says.
func TestManualPages(t *testing.T) {
	for program, has := range map[string][]string{
		"declock":    {".TH declock 1", ".SH lock", "DECLOCK_TOKEN", ".SS get", "--conflict-exit-code", ".SH top", ".SH man"},
		"declock-mn": {".TH declock-mn 8", "declock-mn --cluster shm:demo --size 1GiB", "--huge"},
		"declock-cn": {".TH declock-cn 8", "--redis-store"},
	} {
		var out strings.Builder
		if err := Declock(&command.Env{Stdout: &out, Stderr: &out}).Run([]string{"declock", "man", program}); err != nil {
			t.Fatal(err)
		}
		for _, s := range has {
			if !strings.Contains(strings.ReplaceAll(out.String(), `\-`, "-"), s) {
				t.Errorf("%s: no %q", program, s)
			}
		}
		if strings.Contains(out.String(), "__") { // hidden commands
			t.Errorf("%s has a command that is not for people", program)
		}
	}
	if err := Declock(&command.Env{Stdout: new(strings.Builder), Stderr: new(strings.Builder)}).Run([]string{"declock", "man", "ls"}); err == nil {
		t.Error("a page of ls")
	}
}
