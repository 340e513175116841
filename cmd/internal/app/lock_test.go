package app

import (
	"fmt"
	"io"
	"testing"

	"github.com/declock/declock"
	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/exit"
)

// A command under a lock has the fencing token of the lock in its environment, its end is the end of declock lock, and the lock is free then.
func TestCommandUnderLock(t *testing.T) {
	cluster, err := declock.Open(t.Context(), "shm:", declock.WithMemory(32<<20))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	names, err := cluster.Names(t.Context(), "shell", 0)
	if err != nil {
		t.Fatal(err)
	}
	l := &locked{env: &command.Env{Stderr: io.Discard}, lost: "TERM", held: "shm:,shell,name"}
	for _, x := range []struct {
		argv []string
		code exit.Code
	}{
		{[]string{"true"}, exit.OK}, {[]string{"sh", "-c", "exit 7"}, 7}, {[]string{"sh", "-c", "kill -TERM $$"}, 128 + 15}, {[]string{"/nonexistent"}, flockCannotRun},
		{[]string{"sh", "-c", `test "$` + tokenEnv + `" = "$0" || exit 9; case "$` + heldEnv + `" in *shm:,shell,name*) ;; *) exit 8 ;; esac`}, exit.OK},
	} {
		g, err := names.TryLock(t.Context(), "name")
		if err != nil {
			t.Fatalf("before %q: %v", x.argv, err)
		}
		if got := exit.Of(l.command(g, "name", append(x.argv, fmt.Sprint(g.Token())))); got != x.code {
			t.Errorf("%q: code %d, want %d", x.argv, got, x.code)
		}
	}
}
