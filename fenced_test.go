package declock_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/shm"
	"github.com/declock/declock/objstore"
)

// Once its cluster's file is truncated, each operation of a process says that it is fenced, and why, however often it is asked for.
func TestFencedSaysSoEachTime(t *testing.T) {
	ctx := context.Background()
	o := shm.Options{Name: "fenced", Dir: t.TempDir(), Size: 64 << 20, Sparse: true}
	m := serve(t, o)
	defer m.Close()
	c, err := declock.Open(ctx, "shm:"+o.Name, declock.WithDir(o.Dir))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := c.Session()
	if err != nil {
		t.Fatal(err)
	}
	l, err := c.Locks(ctx, "l", 1)
	if err != nil {
		t.Fatal(err)
	}
	st, err := c.Store(ctx, "s", declock.StoreConfig{Objects: 1000})
	if err != nil {
		t.Fatal(err)
	}
	cache, err := st.Client(s)
	if err != nil {
		t.Fatal(err)
	}
	tr, err := c.Tree(ctx, "t", declock.TreeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := tr.Client(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(o.Dir, "declock-"+o.Name, "cluster"), 0); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		time.Sleep(20 * time.Millisecond) // the memory node notices, too
		for name, f := range map[string]func() error{
			"lock": func() error { _, err := s.Lock(ctx, l.At(0)); return err },
			"get":  func() error { _, err := cache.Get([]byte("k")); return err },
			"set":  func() error { return cache.Set([]byte("k"), nil, objstore.Options{}) },
			"find": func() error { _, err := keys.Get([]byte("k")); return err },
			"put":  func() error { return keys.Put([]byte("k"), nil) },
		} {
			if err := f(); !errors.Is(err, fabric.ErrFenced) || !errors.Is(err, shm.ErrTruncated) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
