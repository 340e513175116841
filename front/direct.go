package front

import (
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"
)

// mostDirect is the longest read or write that is direct. A longer one copies for so long that others should have the processor.
const mostDirect = 64 << 10

// A direct is a connection of which short reads and writes are system calls that Go's scheduler is not notified of. The socket does not block, so such a call ends by itself. Where threads
// share processors, the scheduler finds calls that last, because the kernel has interrupted the thread, and hands the work behind them to further threads; and to find them it wakes up every 20
// microseconds. With 32 clients on two processors that is an eighth of a server's time. One goroutine reads at a time, and one writes.
type direct struct {
	net.Conn
	in, out transfer
}

// A transfer is a read or write under way.
type transfer struct {
	wait  func(try func(fd uintptr) (done bool)) error // calls try, and again whenever the socket is ready, until that is done
	try   func(fd uintptr) (done bool)                 // read or write
	b     []byte                                       // left to transfer
	n     int                                          // bytes that have been
	errno syscall.Errno
}

// directly returns a connection that uses the socket of nc directly, or nc if it has none.
func directly(nc net.Conn) net.Conn {
	s, ok := nc.(syscall.Conn)
	if !ok {
		return nc
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return nc
	}
	d := &direct{Conn: nc}
	d.in.wait, d.in.try = raw.Read, d.in.read
	d.out.wait, d.out.try = raw.Write, d.out.write
	return d
}

// Read implements net.Conn.
func (d *direct) Read(b []byte) (int, error) {
	if len(b) == 0 || len(b) > mostDirect {
		return d.Conn.Read(b)
	}
	n, err := d.in.run(b)
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, d.named("read", err)
}

// Write implements net.Conn.
func (d *direct) Write(b []byte) (int, error) {
	if len(b) == 0 || len(b) > mostDirect {
		return d.Conn.Write(b)
	}
	n, err := d.out.run(b)
	return n, d.named("write", err)
}

// named returns an error of the kernel as package net has it.
func (d *direct) named(op string, err error) error {
	if errno, ok := err.(syscall.Errno); ok {
		return &net.OpError{Op: op, Net: d.LocalAddr().Network(), Source: d.LocalAddr(), Addr: d.RemoteAddr(), Err: os.NewSyscallError(op, errno)}
	}
	return err
}

// run transfers b.
func (t *transfer) run(b []byte) (int, error) {
	t.b, t.n, t.errno = b, 0, 0
	err := t.wait(t.try)
	t.b = nil
	if err == nil && t.errno != 0 {
		err = t.errno
	}
	return t.n, err
}

// read reads something.
func (t *transfer) read(fd uintptr) (done bool) {
	return t.call(syscall.SYS_READ, fd)
}

// write writes all.
func (t *transfer) write(fd uintptr) (done bool) {
	for len(t.b) > 0 {
		if !t.call(syscall.SYS_WRITE, fd) {
			return false
		}
		if t.errno != 0 {
			break
		}
	}
	return true
}

// call reads or writes once, unless it would have to wait.
func (t *transfer) call(trap, fd uintptr) (done bool) {
	for {
		n, _, errno := syscall.RawSyscall(trap, fd, uintptr(unsafe.Pointer(&t.b[0])), uintptr(len(t.b)))
		switch errno {
		case 0:
			t.n, t.b = t.n+int(n), t.b[n:]
			return true
		case syscall.EINTR:
		case syscall.EAGAIN:
			return false
		default:
			t.errno = errno
			return true
		}
	}
}
