package tcp

import (
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// System calls that do not wait, or for a moment only, and so are no business of Go's scheduler: for each other one it may wake its monitoring thread, or
// give the processor to another thread, each of which costs more than the call. A goroutine that waits in one keeps its P. The garbage collector ends such a
// wait by a signal: hence all of them may fail with EINTR.

// momentMs bounds a wait of a worker that keeps its P.
const momentMs = 1

// moment bounds a wait of a client that keeps its P: others of its process, which may have no other, can wait for so long.
const moment = 200 * time.Microsecond

func rawRead(fd int, b []byte) (int, error) {
	n, _, errno := syscall.RawSyscall(syscall.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	return result(n, errno)
}

func rawPread(fd int, b []byte) (int, error) {
	n, _, errno := syscall.RawSyscall6(syscall.SYS_PREAD64, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), 0, 0, 0)
	return result(n, errno)
}

func rawWrite(fd int, b []byte) (int, error) {
	n, _, errno := syscall.RawSyscall(syscall.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	return result(n, errno)
}

func rawEpollWait(fd int, events []unix.EpollEvent, ms int) (int, error) {
	n, _, errno := syscall.RawSyscall6(syscall.SYS_EPOLL_PWAIT, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), uintptr(ms), 0, 0)
	return result(n, errno)
}

func rawPoll(fds []unix.PollFd, d time.Duration) (int, error) {
	limit := unix.NsecToTimespec(int64(d))
	n, _, errno := syscall.RawSyscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(unsafe.SliceData(fds))), uintptr(len(fds)), uintptr(unsafe.Pointer(&limit)), 0, 0, 0)
	return result(n, errno)
}

func result(n uintptr, errno syscall.Errno) (int, error) {
	if errno != 0 {
		return -1, errno
	}
	return int(n), nil
}
