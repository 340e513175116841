package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The Debian package has what it says, is installed by dpkg beneath a directory, and what it has installed starts a cluster.
func TestDebianPackage(t *testing.T) {
	if _, err := exec.LookPath("dpkg-deb"); err != nil || testing.Short() || os.Getuid() != 0 {
		t.Skip("needs dpkg and root")
	}
	t.Parallel()
	root, packed := t.TempDir(), ""
	sh := func(line string) string {
		t.Helper()
		cmd := exec.Command("sh", "-ec", line)
		cmd.Dir = "../.."
		cmd.Env = append(os.Environ(), "LEVEL=1", "PROGRAMS="+programs, "ROOT="+root, "PACKAGE="+packed)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	packed = sh(`scripts/deb "$ROOT"`)
	sh(`mkdir -p "$ROOT/dev/shm" "$ROOT/var/lib/dpkg/info" "$ROOT/var/lib/dpkg/updates" && touch "$ROOT/var/lib/dpkg/status"`)
	sh(`dpkg --root="$ROOT" --force-script-chrootless --force-depends --install "$PACKAGE"`)
	for _, file := range []string{"usr/share/man/man1/declock.1.gz", "usr/share/man/man8/declock-cn.8.gz", "usr/lib/systemd/system/declock-mn.service", "etc/declock/declock-cn.yaml",
		"usr/share/bash-completion/completions/declock", "usr/share/doc/declock/copyright"} {
		if _, err := os.Stat(filepath.Join(root, file)); err != nil {
			t.Error(err)
		}
	}
	if out := sh(`cat "$ROOT"/usr/lib/systemd/system/*.service`); strings.Contains(out, "/usr/local") || !strings.Contains(out, "ExecStart=/usr/bin/declock-mn ") {
		t.Errorf("units:\n%s", out)
	}
	if out := sh(`dpkg --root="$ROOT" --status declock`); !strings.Contains(out, "install ok installed") {
		t.Error(out)
	}
	// It starts memory and compute nodes of its own, and ends them.
	if out := sh(`"$ROOT/usr/bin/declock" replay --keys 100 --ops 1k --size 64MiB --verify --dir "$ROOT/dev/shm"`); !strings.Contains(out, "all") {
		t.Error(out)
	}
	sh(`dpkg --root="$ROOT" --force-script-chrootless --purge declock`)
	if left := sh(`find "$ROOT" -type f -not -path "$ROOT/var/*" -not -name "*.deb"`); left != "" {
		t.Errorf("left behind:\n%s", left)
	}
}
