package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
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

// Once the command has run, the exit code is its own, or that of a lock that was lost, whatever the end of the membership shows: it is no error of the command that etcd has gone meanwhile.
func TestCodeWhenLeavingFails(t *testing.T) {
	said := new(strings.Builder)
	l := &locked{env: &command.Env{Stderr: said}}
	away := fmt.Errorf("etcd: leaving %q: %w", "x", context.DeadlineExceeded)
	for _, x := range []struct {
		ran        bool
		err, close error
		code       exit.Code
	}{
		{true, nil, away, exit.OK}, {true, exit.With(7, errSaid), away, 7}, {true, exit.Errorf(exit.NodeLost, "lost"), away, exit.NodeLost},
		{false, nil, away, exit.Of(away)}, {false, errors.New("first"), away, exit.Other}, {true, nil, nil, exit.OK},
	} {
		said.Reset()
		err := l.left("name", x.ran, x.err, x.close)
		if got := exit.Of(err); got != x.code || (said.Len() > 0) != (x.ran && x.close != nil) {
			t.Errorf("%v, %v, leaving: %v: code %d, want %d; said %q", x.ran, x.err, x.close, got, x.code, said)
		}
	}
}
