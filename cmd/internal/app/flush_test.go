package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/declock/declock"
	"github.com/declock/declock/btree"
	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/exit"
)

// declock flush empties a tree, and says how many keys it had.
func TestFlushOfATree(t *testing.T) {
	ctx := context.Background()
	c, err := declock.Open(ctx, "shm:")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := c.Session()
	if err != nil {
		t.Fatal(err)
	}
	tree, err := c.Tree(ctx, "users", declock.TreeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	k, err := tree.Client(s)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	for i := range 1000 {
		if err := k.Put(fmt.Append(nil, i), []byte("v")); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	i := &inspector{env: &command.Env{Stdout: &out}}
	l := &looking{ctx: ctx, cluster: c, session: s}
	if err := i.flush(l, "tree", "users"); err != nil || out.String() != "1000 keys removed\n" {
		t.Errorf("%v, %q", err, &out)
	}
	if _, err := k.Get([]byte("7")); !errors.Is(err, btree.ErrNotFound) {
		t.Errorf("a key after flush: %v", err)
	}
	for _, kind := range []string{"tree", "store"} {
		if err := i.flush(l, kind, "nosuch"); exit.Of(err) != exit.NotFound {
			t.Errorf("flush of a %s that is not there: %v", kind, err)
		}
	}
}
