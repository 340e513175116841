package app

import (
	"errors"
	"io"
	"os"
	"testing"

	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/objstore"
	"github.com/urfave/cli/v2"
)

// A script tells a key that is not there from all else that goes wrong by the exit code of kv and tree.
func TestKeysExitCodes(t *testing.T) {
	for _, x := range []struct {
		err  error
		code exit.Code
	}{
		{nil, exit.OK}, {errMissing("no key"), exit.Other}, {errors.New("something else"), exit.Failed}, {objstore.ErrNoSpace, exit.NoSpace},
	} {
		if got := exit.Of(failedKeys(x.err)); got != x.code {
			t.Errorf("%v: code %v, want %v", x.err, got, x.code)
		}
	}
}

// A key of no bytes is bad input, which is said before the cluster is looked for: there is none here.
func TestKeyOfNoBytes(t *testing.T) {
	for _, args := range [][]string{{"set", "", "v"}, {"get", ""}, {"del", ""}, {"incr", ""}} {
		a := Declock(&command.Env{Stdin: os.Stdin, Stdout: io.Discard, Stderr: io.Discard})
		a.ExitErrHandler = func(*cli.Context, error) {}
		err := a.Run(append([]string{"declock", "kv", args[0], "--cluster", "shm:no-such-cluster"}, args[1:]...))
		if got := exit.Of(err); got != exit.Usage {
			t.Errorf("%q: code %v, %v", args, got, err)
		}
	}
}
