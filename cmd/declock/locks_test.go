package main

import (
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// locks shows which process holds a lock by name, and takes the lock from it, whether it runs or stands still: others get the lock, with a greater token. Over TCP the process lives, and is
// notified.
func TestHoldersInTheShell(t *testing.T) {
	onEach(t, func(w *world, at []string) {
		t := w.t
		w.run(1, args("locks list", at)...) // nor is there a table
		w.run(0, args("lock", at, "job", "true")...)
		w.run(1, args("locks holder", at, "job")...)
		w.run(1, args("locks break", at, "job")...)
		if out, _ := w.run(0, args("locks list", at)...); !strings.Contains(out, "no lock") {
			t.Errorf("list: %q", out)
		}
		var last uint64
		shm := at[1] == "shm:test"
		for _, stopped := range []bool{false, true} {
			if stopped && !shm {
				break // over TCP it is declared dead by itself
			}
			held := w.start(args("lock", at, "job", "--", "sh", "-c", "trap 'echo told; exit 0' TERM; echo held $DECLOCK_TOKEN; while :; do sleep 0.01; done")...)
			if !eventually(func() bool { return strings.HasSuffix(held.stdout.String(), "\n") }) {
				t.Fatal("not held")
			}
			token, err := strconv.ParseUint(strings.Fields(held.stdout.String())[1], 10, 64)
			if err != nil || token <= last {
				t.Errorf("token %q after %d", held.stdout.String(), last)
			}
			last = token
			pid := strconv.Itoa(held.cmd.Process.Pid)
			if !eventually(func() bool { p := w.start(args("locks holder", at, "job")...); return p.wait() == 0 }) {
				t.Fatal("no holder")
			}
			if out, _ := w.run(0, args("locks list", at)...); !strings.Contains(out, `"job"`) || !strings.Contains(out, "exclusive") || !strings.Contains(out, pid) {
				t.Errorf("list, of process %s:\n%s", pid, out)
			}
			if stopped {
				_ = held.cmd.Process.Signal(syscall.SIGSTOP)
			}
			next := w.start(args("lock", at, "job", "--", "sh", "-c", "echo $DECLOCK_TOKEN")...)
			if out, _ := w.run(0, args("locks break", at, "job")...); !strings.Contains(out, pid) {
				t.Errorf("break, of process %s:\n%s", pid, out)
			}
			if code := next.wait(); code != 0 {
				t.Errorf("the next: exit code %d: %s", code, next.stderr.String())
			}
			if got, err := strconv.ParseUint(strings.TrimSpace(next.stdout.String()), 10, 64); err != nil || got <= last {
				t.Errorf("token %q after %d", next.stdout.String(), last)
			} else {
				last = got
			}
			_ = held.cmd.Process.Signal(syscall.SIGCONT)
			if code := held.wait(); shm && code == 0 || !shm && (code != 13 || !strings.HasSuffix(held.stdout.String(), "told\n")) {
				t.Errorf("the holder: exit code %d, %q, %s", code, held.stdout.String(), held.stderr.String())
			}
			w.run(1, args("locks holder", at, "job")...)
		}
	})
}
