package scheme

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/declock/declock"
	"github.com/declock/declock/cmd/internal/exit"
)

func TestAddresses(t *testing.T) {
	for in, want := range map[string]string{
		"shm:demo":            "shm:demo",
		"tcp://a:1/demo":      "tcp://a:1/demo",
		"tcp://a:1,b:2/demo":  "tcp://a:1,b:2/demo",
		"tcp://[::1]:1/demo/": "tcp://[::1]:1/demo",
		"tcp:///run/e.sock/x": "tcp:///run/e.sock/x",
		"tcp://a:1/x?insecure=true&listen=h:1&dead-after=2s": "tcp://a:1/x",
		"verbs://a:1,b:2/demo":                               "verbs://a:1,b:2/demo",
		"verbs:///run/e.sock/x":                              "verbs:///run/e.sock/x",
	} {
		c, err := Parse(in, Options{})
		if err != nil || c.Address() != want {
			t.Errorf("%q: %v, %v; want %s", in, c, err, want)
			continue
		}
		if again, err := Parse(c.Address(), Options{}); err != nil || again.Address() != want {
			t.Errorf("%q is not its own address: %v", want, err)
		}
	}
	for _, in := range []string{"tcp:", "tcp:x", "tcp://", "tcp://a:1", "tcp://a/demo", "tcp://:1/demo", "tcp://a:1,/demo", "tcp:///demo", "tcp://a:1/",
		"tcp://a:1/x/y", "tcp://a:1/x?nosuch=1", "tcp://a:1/x?insecure=maybe", "tcp://a:1/x?dead-after=5", "tcp://a:1/x?%zz", "", "x", "shm:", ":x", "nosuch:x", "verbs:", "verbs://", "verbs:host",
		"verbs://:7480", "verbs://host/x", "verbs://host:1", "verbs://host:1/x?colour=red"} {
		if c, err := Parse(in, Options{}); !errors.Is(err, declock.ErrAddress) {
			t.Errorf("%q: %v, %v", in, c, err)
		}
	}
}

// Two addresses never share a directory of sockets, whatever they are made of.
func TestRunDirsAreApart(t *testing.T) {
	seen := map[string]string{}
	for _, a := range []string{"tcp://a:1/x", "tcp://a:1,b:1/x", "tcp://a:1/y", "verbs://a:1/x", "verbs://a:2/x", "verbs://[::1]:1/x"} {
		c, err := Parse(a, Options{RunDir: "/r"})
		if err != nil {
			t.Fatal(err)
		}
		dir := c.RunDir()
		if filepath.Dir(dir) != "/r" || seen[dir] != "" {
			t.Errorf("%s: %s, which is also that of %q", a, dir, seen[dir])
		}
		seen[dir] = a
	}
}

// The order of etcd's endpoints, and what else an address says, do not matter.
func TestRunDirOfTheSameCluster(t *testing.T) {
	a, _ := Parse("tcp://a:1,b:2/x", Options{})
	b, _ := Parse("tcp://b:2,a:1/x?insecure=true", Options{})
	if a.RunDir() != b.RunDir() {
		t.Errorf("%s and %s", a.RunDir(), b.RunDir())
	}
}

func TestRunDirOfOthersIsRefused(t *testing.T) {
	base := t.TempDir()
	c, err := Parse("verbs://a:1/x", Options{RunDir: base})
	if err != nil {
		t.Fatal(err)
	}
	if err := PrivateDir(c.RunDir()); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(c.RunDir(), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := PrivateDir(c.RunDir()); exit.Of(err) != exit.Denied {
		t.Errorf("a directory that everybody can write: %v", err)
	}
}

func TestFlagsOfOtherFabricsAreRefused(t *testing.T) {
	c := SHM("x", "")
	for flag, want := range map[string]exit.Code{"device": exit.Usage, "tls-ca": exit.Usage, "dir": exit.OK, "run-dir": exit.OK, "size": exit.OK} {
		if err := CheckFlag(c, flag); exit.Of(err) != want {
			t.Errorf("--%s for shm: %v", flag, err)
		}
	}
}

func TestStatusOnLoopbackIsForTheSameHostOnly(t *testing.T) {
	for addr, want := range map[string]string{
		"10.0.0.2:7493#cn2;http=127.0.0.1:7492": "",
		"10.0.0.2:7493#cn2;http=localhost:7492": "",
		"10.0.0.2:7493#cn2;http=[::1]:7492":     "",
		"10.0.0.2:7493#cn2;http=10.0.0.2:7492":  "10.0.0.2:7492",
		"10.0.0.2:7493#cn2;http=:7492":          "10.0.0.2:7492",
		"127.0.0.1:7493#cn2;http=0.0.0.0:7492":  "127.0.0.1:7492",
		"127.0.0.1:7493#cn2;http=[::1]:7492":    "[::1]:7492",
		"127.0.0.1:7493#cn2":                    "",
	} {
		if got := httpOf(addr); got != want {
			t.Errorf("%q: %q, want %q", addr, got, want)
		}
	}
}
