package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// askShell has a shell complete a line: $LINE, with the script in $SCRIPT. It prints the words that there are for the last one.
var askShell = map[string]string{
	"bash": `source "$SCRIPT"; COMP_WORDS=($LINE); [[ $LINE == *" " ]] && COMP_WORDS+=(""); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _declock; printf '%s\n' "${COMPREPLY[@]}"`,
	// As the shell loads it on the first use, with what shows the words in place of the completion system's.
	"zsh": `compdef() { exit 9 }; _files() { :; }
		_describe() { local -a all=("${(@P)2}"); print -rl -- ${(M)all:#${words[CURRENT]}*} }
		fpath=(${SCRIPT:h}); autoload -Uz _declock; words=(${(z)LINE}); [[ $LINE == *" " ]] && words+=(""); CURRENT=$#words; _declock`,
	"fish": `source $SCRIPT; complete -C $LINE`,
}

// Shells complete commands and flags of declock, and run none of them; what stands behind -- is another program's.
func TestCompletion(t *testing.T) {
	w := newWorld(t)
	w.run(2, "completion", "csh")
	for shell, ask := range askShell {
		script, _ := w.run(0, "completion", shell)
		path, err := exec.LookPath(shell)
		if err != nil {
			t.Logf("no %s here", shell)
			continue
		}
		file := filepath.Join(t.TempDir(), "_declock")
		if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
			t.Fatal(err)
		}
		for line, want := range map[string]string{"declock k": "kv", "declock kv s": "scan set", "declock tree p": "put", "declock kv set k --tt": "--ttl", "declock lock n --cl": "--cluster",
			"declock lock n -- rm -": "", "declock drop st": ""} {
			cmd := exec.Command(path, "-c", ask)
			cmd.Dir = t.TempDir() // without files to complete
			cmd.Env = append(cmd.Environ(), "PATH="+programs+":/usr/bin:/bin", "SCRIPT="+file, "LINE="+line)
			out, err := cmd.CombinedOutput()
			words := strings.Fields(string(out))
			slices.Sort(words)
			if got := strings.Join(words, " "); err != nil || got != want {
				t.Errorf("%s, %q: %q, %v, want %q", shell, line, got, err, want)
			}
		}
		if shell == "zsh" { // as its manual says: in a shell that has loaded the completion system
			if out, err := exec.Command(path, "-c", "compdef() { print $*; }; source "+file).Output(); err != nil || string(out) != "_declock declock\n" {
				t.Errorf("zsh, sourced: %q, %v", out, err)
			}
		}
	}
}
