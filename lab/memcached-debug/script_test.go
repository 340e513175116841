package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// scripts/memcached-test, with stand-ins for the programs that it calls: a file that fails beside others and passes alone passes, and each other end says why.
func TestScriptSaysWhy(t *testing.T) {
	for _, tool := range []string{"bash", "timeout", "xargs", "mktemp"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(err)
		}
	}
	const prove = "case $1 in\n*pass*) echo ok ;;\n*skip*) echo \"$1 .. skipped: no reason\" ;;\n*twice*) [ -e once ] || { touch once; exit 1; } ;;\n*) echo broken; exit 1 ;;\nesac\n"
	for name, x := range map[string]struct {
		fails string // a program
		files []string
		code  int
		says  string
	}{
		"all pass":              {"", []string{"t/pass.t", "t/pass2.t"}, 0, "2 of 2 files pass"},
		"passes alone":          {"", []string{"t/pass.t", "t/twice.t"}, 0, "2 of 2 files pass"},
		"fails":                 {"", []string{"t/pass.t", "t/fail.t"}, 1, "--- t/fail.t\nbroken\n1 of 2 files pass; memcached has 5\nscripts/memcached-test: 1 files fail, or are skipped"},
		"none passes":           {"", []string{"t/fail.t"}, 1, "0 of 1 files pass"},
		"is skipped":            {"", []string{"t/skip.t"}, 1, "--- t/skip.t: skipped: no reason"},
		"all, whatever they do": {"", []string{"--all"}, 0, "t/fail.t: fail\n"},
		"a program fails":       {"gcc", []string{"t/pass.t"}, 7, "ended with status 7"},
		"another":               {"go", []string{"t/pass.t"}, 7, "ended with status 7"},
		"xargs":                 {"xargs", []string{"t/pass.t"}, 7, "ended with status 7"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			put := func(path, text string, mode os.FileMode) {
				t.Helper()
				path = filepath.Join(dir, path)
				_ = os.MkdirAll(filepath.Dir(path), 0o777)
				if err := os.WriteFile(path, []byte(text), mode); err != nil {
					t.Fatal(err)
				}
			}
			for _, file := range []string{"t/pass.t", "t/pass2.t", "t/fail.t", "t/skip.t", "t/twice.t", "doc/x", "timedrun.c"} {
				put(filepath.Join("declock/memcached/memcached-1.6.18", file), "", 0o666)
			}
			put("bin/prove", "#!/bin/sh\n"+prove, 0o777)
			put("bin/gcc", "#!/bin/sh\n", 0o777)
			put("bin/go", "#!/bin/sh\n", 0o777)
			if x.fails != "" {
				put("bin/"+x.fails, "#!/bin/sh\nexit 7\n", 0o777)
			}
			c := exec.Command("../../scripts/memcached-test", x.files...)
			c.Env = append(os.Environ(), "XDG_CACHE_HOME="+dir, "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
			out, err := c.CombinedOutput()
			if code := c.ProcessState.ExitCode(); code != x.code || !strings.Contains(string(out), x.says) {
				t.Errorf("%v, want code %d and %q:\n%s", err, x.code, x.says, out)
			}
		})
	}
}
