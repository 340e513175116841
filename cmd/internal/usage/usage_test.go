package usage

import (
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A process that works costs processor time; system calls and waits are counted.
func TestOf(t *testing.T) {
	self := os.Getpid()
	before, err := Of(self)
	if err != nil {
		t.Fatal(err)
	}
	calls, err := CountSyscalls(self)
	if errors.Is(err, ErrNoSyscalls) {
		t.Log(err)
	} else if err != nil {
		t.Fatal(err)
	}
	const rounds = 1000
	for begun := processorTime(t); processorTime(t)-begun < 100*time.Millisecond; { // of the processor: on a busy machine it takes longer
		for range rounds {
			_ = unix.Getppid()
		}
	}
	time.Sleep(time.Millisecond)
	after, err := Of(self)
	if err != nil {
		t.Fatal(err)
	}
	if d := after.Sub(before); d.User+d.Kernel == 0 || d.Voluntary == 0 {
		t.Fatalf("100 ms of work cost %+v", d)
	}
	if calls != nil {
		n, err := calls.Count()
		if err != nil || n < rounds {
			t.Fatalf("%d system calls were counted, of %d and more: %v", n, rounds, err)
		}
		if err := calls.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if busy, idle, err := Machine(); err != nil || busy == 0 || busy+idle < 100*time.Millisecond {
		t.Fatal(busy, idle, err)
	}
}

// processorTime returns what this process has taken.
func processorTime(t *testing.T) time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &now); err != nil {
		t.Fatal(err)
	}
	return time.Duration(now.Nano())
}

// A process that has ended is an error.
func TestGone(t *testing.T) {
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if _, err := Of(cmd.Process.Pid); err == nil {
		t.Fatal("no error")
	}
}
