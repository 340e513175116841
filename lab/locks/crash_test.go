package locks_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks"
	"github.com/declock/declock/lock"
)

// A crash is what a compute node was at with a lock when it crashed.
type crash struct {
	waits bool // for a lock that another node holds; else it holds it
	mode  lock.Mode
}

// survives reports whether another node gets a lock in the end, exclusively, after a node has crashed and has been fenced.
func (k crash) survives(t *testing.T, m locks.Mechanism) bool {
	t.Helper()
	sys, err := m.New(locks.Config{CNs: 3, Clients: 2, Counter: fabric.At(0, counterAt), SyncIntervalNs: -1})
	if err != nil {
		t.Fatal(err)
	}
	c := sim.New(sim.Config{})
	defer c.Close()
	a := fabric.At(c.AddMN(1<<20), 4096)
	program, err := sys.Program()
	if err != nil {
		t.Fatal(err)
	}
	if program != nil {
		c.AddSwitch(program, sim.SwitchModel{Pass: 400, Packet: 1})
	}
	// A client of each node does something with the lock, from some time on.
	add := func(begin, hold fabric.Time, mode lock.Mode, done func(error)) *sim.Node {
		n := c.AddCN()
		joined, err := sys.Join(n)
		if err != nil {
			t.Fatal(err)
		}
		if joined.Run != nil {
			c.GoAgent(n, func(fabric.Port) { _ = joined.Run(func(error) {}) })
		}
		c.Go(n, m.Name, func(p fabric.Port) {
			l, h := joined.Locker(p), lock.Hold{}
			_ = p.Pause(begin)
			err := l.Acquire(&h, &lock.Request{Lock: a, Mode: mode, Deadline: begin + 300*fabric.Millisecond})
			if err == nil {
				_ = p.Pause(p.Now() + hold)
				err = l.Release(&h, nil)
			}
			done(err)
		})
		return n
	}
	var first, got error
	begin := fabric.Second // the first node only watches, or is a server
	if k.waits {
		begin = 50 * fabric.Microsecond
	}
	add(begin, 2*fabric.Millisecond, lock.Exclusive, func(err error) { first = err })
	crashed := add(200*fabric.Microsecond, 2*fabric.Millisecond, k.mode, func(error) {})
	add(3*fabric.Millisecond, fabric.Microsecond, lock.Exclusive, func(err error) { got = err })
	c.At(500*fabric.Microsecond, func() { c.Kill(crashed) })
	if err := c.RunUntil(fabric.Second); err != nil {
		t.Fatal(err)
	}
	if k.waits && first != nil && !errors.Is(first, lock.ErrTimeout) {
		t.Errorf("%s %+v: the holder: %v", m.Name, k, first)
	}
	if got != nil && !errors.Is(got, lock.ErrTimeout) {
		t.Errorf("%s %+v: %v", m.Name, k, got)
	}
	return got == nil
}

// What docs/locks.md says of a crash is what happens: another node gets the lock of a holder that has crashed, or never does; it gets
// what a crashed client has waited for, or the queue is broken, or a reader stays counted.
func TestCrashesPage(t *testing.T) {
	rows := pageRows(t)
	for _, m := range ofThePage(t) {
		t.Run(m.Name, func(t *testing.T) {
			own := rows[pageName(m.Name)]
			if len(own) < 2 || len(own[1]) != 4 {
				t.Fatalf("no row of what a crash does: %q", own)
			}
			holder, waiter := own[1][2], own[1][3]
			if got, want := (crash{mode: lock.Exclusive}).survives(t, m), !strings.Contains(holder, "stays held"); got != want {
				t.Errorf("a holder crashes: another gets the lock: %v. The page:%s", got, holder)
			}
			if got, want := (crash{waits: true, mode: lock.Exclusive}).survives(t, m), !strings.Contains(waiter, "queue is broken"); got != want {
				t.Errorf("a waiting writer crashes: another gets the lock: %v. The page:%s", got, waiter)
			}
			if m.Exclusive || strings.Contains(waiter, "queue is broken") && !strings.Contains(waiter, "reader") {
				return
			}
			if got, want := (crash{waits: true, mode: lock.Shared}).survives(t, m), !strings.Contains(waiter, "stays counted"); got != want {
				t.Errorf("a waiting reader crashes: another gets the lock: %v. The page:%s", got, waiter)
			}
		})
	}
}
