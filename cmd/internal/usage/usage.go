// Package usage counts what processes of this machine cost: processor time, context switches and system calls.
package usage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// A Cost is what processes have used so far.
type Cost struct {
	User, Kernel           time.Duration
	Voluntary, Involuntary uint64 // context switches: the thread waits; another takes its processor
}

// Sub returns what was used since an earlier Cost.
func (c Cost) Sub(before Cost) Cost {
	return Cost{c.User - before.User, c.Kernel - before.Kernel, c.Voluntary - before.Voluntary, c.Involuntary - before.Involuntary}
}

// tick is the unit of times in /proc: USER_HZ is 100 on all architectures of Linux that this program runs on.
const tick = 10 * time.Millisecond

// Of returns what living processes have used. What a thread that has ended had of context switches is not in it.
func Of(pids ...int) (sum Cost, err error) {
	for _, pid := range pids {
		// The name, in brackets, may have anything in it.
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return sum, err
		}
		fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:]) // from the third on
		if len(fields) < 13 {
			return sum, fmt.Errorf("/proc/%d/stat is not understood: %q", pid, text)
		}
		sum.User += ticks(fields[11])
		sum.Kernel += ticks(fields[12])
		threads, err := threadsOf(pid)
		if err != nil {
			return sum, err
		}
		for _, tid := range threads {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/status", pid, tid))
			if err != nil {
				continue // it has ended
			}
			sum.Voluntary += field(text, "voluntary_ctxt_switches:")
			sum.Involuntary += field(text, "nonvoluntary_ctxt_switches:")
		}
	}
	return sum, nil
}

func ticks(text []byte) time.Duration {
	n, _ := strconv.ParseInt(string(text), 10, 64)
	return time.Duration(n) * tick
}

// field returns the number behind a name that begins a line.
func field(text []byte, name string) uint64 {
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte(name)); ok {
			n, _ := strconv.ParseUint(string(bytes.TrimSpace(rest)), 10, 64)
			return n
		}
	}
	return 0
}

func threadsOf(pid int) (tids []int, err error) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, e := range entries {
		if tid, err := strconv.Atoi(e.Name()); err == nil {
			tids = append(tids, tid)
		}
	}
	return tids, err
}

// Machine returns the processor time that all programs have used so far, and that the processors have been idle.
func Machine() (busy, idle time.Duration, err error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0, err
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	fields := bytes.Fields(line) // cpu user nice system idle iowait irq softirq steal guest guest_nice
	if len(fields) < 9 || string(fields[0]) != "cpu" {
		return 0, 0, fmt.Errorf("/proc/stat is not understood: %q", line)
	}
	for i, f := range fields[1:9] {
		if i == 3 || i == 4 {
			idle += ticks(f)
		} else {
			busy += ticks(f)
		}
	}
	return busy, idle, nil
}

// ErrNoSyscalls: the kernel does not let this program count system calls.
var ErrNoSyscalls = errors.New("system calls cannot be counted: that takes tracefs at /sys/kernel/tracing, and CAP_PERFMON")

// Syscalls counts system calls of processes, those of Go's runtime too. Counting costs some 100 ns a call.
type Syscalls struct{ fds []int }

// CountSyscalls begins to count: of all threads that the processes have, and those that these start.
func CountSyscalls(pids ...int) (*Syscalls, error) {
	text, err := os.ReadFile("/sys/kernel/tracing/events/raw_syscalls/sys_enter/id")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoSyscalls, err)
	}
	id, err := strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoSyscalls, err)
	}
	s := new(Syscalls)
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_TRACEPOINT, Config: id, Bits: unix.PerfBitInherit}
	attr.Size = uint32(binary.Size(attr))
	for _, pid := range pids {
		threads, err := threadsOf(pid)
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		for _, tid := range threads {
			fd, err := unix.PerfEventOpen(&attr, tid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
			if err == unix.ESRCH {
				continue // the thread has ended
			}
			if err != nil {
				return nil, errors.Join(fmt.Errorf("%w: %w", ErrNoSyscalls, err), s.Close())
			}
			s.fds = append(s.fds, fd)
		}
	}
	return s, nil
}

// Count returns how many there have been.
func (s *Syscalls) Count() (sum uint64, err error) {
	for _, fd := range s.fds {
		var b [8]byte
		if _, err := unix.Read(fd, b[:]); err != nil {
			return 0, err
		}
		sum += binary.NativeEndian.Uint64(b[:])
	}
	return sum, nil
}

// Close stops counting.
func (s *Syscalls) Close() (err error) {
	for _, fd := range s.fds {
		err = errors.Join(err, unix.Close(fd))
	}
	s.fds = nil
	return err
}
