package app

import (
	"errors"
	"testing"

	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/objstore"
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
