package front

import (
	"io"
	"net"
	"syscall"
	"unsafe"
)

// mostDirect is the longest read or write that is direct: one that is longer copies for so long that the scheduler should know of it.
const mostDirect = 64 << 10

// A Direct is the socket of a connection, of which short reads and writes are system calls that Go's scheduler is not notified of: the socket does not block, so such a call ends by
// itself. They are made in one call of Each, which lasts for as long as requests are short: so a request needs neither the locks of package net, nor the preparations to wait.
type Direct struct {
	raw syscall.RawConn
	fd  uintptr
	in  bool // within Each
}

// DirectOf returns the Direct of a connection; nil: it has no socket of its own, as over TLS.
func DirectOf(nc net.Conn) *Direct {
	s, ok := nc.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return nil
	}
	return &Direct{raw: raw}
}

// Each calls f, and again whenever there may be something to read, until f returns true. Before it returns false, f must have read until there was nothing more. Each ends with an
// error when the connection is closed, or has met its deadline; Close of the connection waits until f has returned.
func (d *Direct) Each(f func() (done bool)) error {
	defer func() { d.in = false }() // also if f panics
	return d.raw.Read(func(fd uintptr) bool {
		d.fd, d.in = fd, true
		return f()
	})
}

// Read reads what is there, within Each. No bytes and no error: there is nothing to be read.
func (d *Direct) Read(b []byte) (n int, err error) {
	return read(d.call(syscall.SYS_READ, b))
}

// read returns what a read has returned.
func read(n int, errno syscall.Errno) (int, error) {
	switch {
	case errno == syscall.EAGAIN:
		return 0, nil
	case errno != 0:
		return 0, errno
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// ReadLong is Read of which the scheduler is notified if b is long: each such read costs the client a wakeup or two, so few long ones are better than many.
func (d *Direct) ReadLong(b []byte) (n int, err error) {
	if len(b) <= mostDirect {
		return d.Read(b)
	}
	for {
		r, _, errno := syscall.Syscall(syscall.SYS_READ, d.fd, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
		if errno != syscall.EINTR {
			return read(int(r), errno)
		}
	}
}

// Write writes as much as the socket takes at once: nothing outside of Each, or if b is long. What is left, and errors, are for the connection's own Write.
func (d *Direct) Write(b []byte) (n int) {
	if d == nil || !d.in || len(b) > mostDirect {
		return 0
	}
	n, _ = d.call(syscall.SYS_WRITE, b)
	return n
}

func (d *Direct) call(trap uintptr, b []byte) (n int, errno syscall.Errno) {
	b = b[:min(len(b), mostDirect)]
	if len(b) == 0 {
		return 0, syscall.EAGAIN
	}
	for {
		n, _, errno := syscall.RawSyscall(trap, d.fd, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
		switch errno {
		case 0:
			return int(n), 0
		case syscall.EINTR:
		default:
			return 0, errno
		}
	}
}
