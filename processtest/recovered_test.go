package processtest

import (
	"syscall"
	"testing"

	"github.com/declock/declock"
)

// A process is killed while it holds a lock: Recovered is true for the next holder, whichever process that is, and not for those behind it. A lock by name goes the same way.
func TestRecoveredAfterKill(t *testing.T) {
	dir := t.TempDir()
	startChild(t, "serve", dir).says("ready")
	ctx := t.Context()
	c, err := declock.Open(ctx, "shm:killed", declock.WithDir(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	l, err := c.Locks(ctx, "l", 1)
	if err != nil {
		t.Fatal(err)
	}
	names, err := c.Names(ctx, "names", 0)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]func() (declock.Guard, error){
		"hold":     func() (declock.Guard, error) { return c.Lock(ctx, l.At(0)) },
		"holdname": func() (declock.Guard, error) { return names.Lock(ctx, "orders/17") },
	}
	for role, acquire := range kinds {
		for round := range 3 {
			holder := startChild(t, role, dir)
			holder.says("holds")
			if round > 0 { // at first none has crashed
				holder.kill(syscall.SIGKILL)
			} else if err := holder.end(); err != nil {
				t.Fatal(err)
			}
			for i := range 3 {
				g, err := acquire()
				if err != nil {
					t.Fatal(err)
				}
				want := round > 0 && i == 0
				for range 2 { // the same answer each time
					if got := g.Recovered(); got != want {
						t.Errorf("%s, round %d: grant %d: %v", role, round, i, got)
					}
				}
				if err := g.Unlock(); err != nil {
					t.Fatal(err)
				}
				if !g.Recovered() {
					t.Error("a guard that was unlocked knows something")
				}
			}
		}
	}
}
