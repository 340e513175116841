package main

import (
	"os/exec"
	"strings"
	"testing"
)

// bash completes commands and flags of declock, and runs none of them; what stands behind -- is another program's.
func TestCompletion(t *testing.T) {
	w := newWorld(t)
	script, _ := w.run(0, "completion", "bash")
	for _, shell := range []string{"zsh", "fish"} {
		if out, _ := w.run(0, "completion", shell); !strings.Contains(out, "declock") {
			t.Errorf("%s: %q", shell, out)
		}
	}
	w.run(2, "completion", "csh")
	for line, want := range map[string]string{"declock k": "kv", "declock kv s": "set scan", "declock tree p": "put", "declock kv set k --tt": "--ttl", "declock lock n --cl": "--cluster",
		"declock lock n -- rm -": "", "declock drop st": ""} {
		words := strings.Fields(line)
		if strings.HasSuffix(line, " ") {
			words = append(words, "")
		}
		do := "COMP_WORDS=(" + strings.Join(words, " ") + ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_declock\necho ${COMPREPLY[@]}"
		cmd := exec.Command("bash", "-c", script+do)
		cmd.Env = append(cmd.Environ(), "PATH="+programs+":/usr/bin:/bin")
		if out, err := cmd.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != want {
			t.Errorf("%q: %q, %v, want %q", line, out, err, want)
		}
	}
}
