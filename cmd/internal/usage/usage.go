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

	"github.com/prometheus/procfs"
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

// tick is the unit of a process's times: USER_HZ is 100 on all architectures of Linux that this program runs on.
const tick = 10 * time.Millisecond

// Of returns what living processes have used. What a thread that has ended had of context switches is not in it.
func Of(pids ...int) (sum Cost, err error) {
	for _, pid := range pids {
		p, err := procfs.NewProc(pid)
		if err != nil {
			return sum, err
		}
		stat, err := p.Stat()
		if err != nil {
			return sum, err
		}
		sum.User += time.Duration(stat.UTime) * tick
		sum.Kernel += time.Duration(stat.STime) * tick
		threads, err := procfs.AllThreads(pid)
		if err != nil {
			return sum, err
		}
		for _, t := range threads {
			if s, err := t.NewStatus(); err == nil { // else it has ended
				sum.Voluntary += s.VoluntaryCtxtSwitches
				sum.Involuntary += s.NonVoluntaryCtxtSwitches
			}
		}
	}
	return sum, nil
}

// Machine returns the processor time that all programs have used so far, and that the processors have been idle.
func Machine() (busy, idle time.Duration, err error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, 0, err
	}
	stat, err := fs.Stat()
	c := &stat.CPUTotal
	return seconds(c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal), seconds(c.Idle + c.Iowait), err
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

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
		threads, err := procfs.AllThreads(pid)
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		for _, t := range threads {
			fd, err := unix.PerfEventOpen(&attr, t.PID, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
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
