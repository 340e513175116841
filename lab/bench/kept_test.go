package bench

import (
	"bytes"
	"encoding/gob"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
)

// What an earlier run has kept is not measured again, what a crash has kept from the file is, and the file of another build is refused.
func TestKept(t *testing.T) {
	list := slices.DeleteFunc(Experiments(), func(e *Experiment) bool { return e.Name != "fig12a" })
	cfg := Config{Options: Options{Tiny: true}, Seed: 1, Seeds: 1, Kept: filepath.Join(t.TempDir(), "kept")}
	run := func() Rows {
		t.Helper()
		forget() // as in a new process
		out, err := Run(t.Context(), list, cfg)
		if err != nil {
			t.Fatal(err)
		}
		for i := range out[0].Rows {
			out[0].Rows[i].Spent = 0
		}
		return out[0].Rows
	}
	// change changes the file, and returns how many measurements it has.
	change := func(f func(tx *bbolt.Tx, program []byte) error) (n int) {
		t.Helper()
		db, err := openKept(cfg.Kept)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if err := db.Update(func(tx *bbolt.Tx) error {
			program, _ := tx.Cursor().First()
			n = tx.Bucket(program).Stats().KeyN
			return f(tx, program)
		}); err != nil {
			t.Fatal(err)
		}
		return n
	}
	count := func() int { return change(func(*bbolt.Tx, []byte) error { return nil }) }
	taken := run()
	whole := count()
	if again := run(); !reflect.DeepEqual(again, taken) || count() != whole || whole == 0 {
		t.Error("kept measurements differ from those that were taken, or were taken again")
	}
	change(func(tx *bbolt.Tx, program []byte) error {
		c := tx.Bucket(program).Cursor()
		c.First()
		return c.Delete()
	})
	if again := run(); !reflect.DeepEqual(again, taken) || count() != whole {
		t.Error("what is not in the file is not measured again")
	}
	change(func(tx *bbolt.Tx, program []byte) error {
		var text bytes.Buffer
		if err := gob.NewEncoder(&text).Encode(Metrics{"mops": 12345}); err != nil {
			return err
		}
		c := tx.Bucket(program).Cursor()
		what, _ := c.First()
		return tx.Bucket(program).Put(what, text.Bytes())
	})
	if !slices.ContainsFunc(run(), func(r Row) bool { return r.Value("mops") == 12345 }) {
		t.Error("a kept measurement is not used")
	}
	change(func(tx *bbolt.Tx, program []byte) error {
		if _, err := tx.CreateBucket([]byte("another program")); err != nil {
			return err
		}
		return tx.DeleteBucket(program)
	})
	if _, err := Run(t.Context(), list, cfg); err == nil || !strings.Contains(err.Error(), "another build") {
		t.Errorf("the file of another build: %v", err)
	}
	if err := os.WriteFile(cfg.Kept, bytes.Repeat([]byte("no measurements\n"), 1000), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), list, cfg); err == nil {
		t.Error("a file without measurements is taken")
	}
	forget() // 12345
}
