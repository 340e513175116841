//go:build linux

package tcp

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// errAgain: there is nothing to read. It is a net.Error that is temporary, so that TLS goes on after it.
var errAgain net.Error = againError{}

type againError struct{}

func (againError) Error() string   { return "tcp: nothing to read yet" }
func (againError) Timeout() bool   { return true }
func (againError) Temporary() bool { return true }

// A sock is a connection whose file descriptor Go's scheduler does not watch: who waits for an answer
// looks for it himself, and nobody is woken for what he has seen already. A bell wakes who sleeps.
//
// Read never waits: it returns errAgain. Write never waits either: what the kernel has no room
// for stays in the backlog, until flush. One goroutine reads at a time; all else any may call.
type sock struct {
	bell          *bell // nil: somebody else watches the descriptor
	arms          func()
	local, remote net.Addr
	poll          [1]unix.PollFd // of who naps

	mu      sync.Mutex
	fd      int // -1 when closed
	backlog []byte
	shut    bool
	armed   bool // the bell rings when there is something to read
}

// newSock takes over a connection.
func newSock(c *net.TCPConn, deadAfter time.Duration) (*sock, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &sock{fd: -1, local: c.LocalAddr(), remote: c.RemoteAddr()}
	s.arms = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.arm()
	}
	if e := raw.Control(func(fd uintptr) {
		if s.fd, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0); err == nil {
			err = unix.SetNonblock(s.fd, true)
		}
	}); err == nil {
		err = e
	}
	_ = c.Close()
	if err != nil {
		s.close()
		return nil, fmt.Errorf("tcp: %w", err)
	}
	// What goes wrong here is only slower to be noticed: there are deadlines above it.
	ms := int(deadAfter / time.Millisecond)
	_ = unix.SetsockoptInt(s.fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, ms)
	_ = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
	seconds := max(1, int(deadAfter/time.Second)/4)
	_ = unix.SetsockoptInt(s.fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, seconds)
	_ = unix.SetsockoptInt(s.fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, seconds)
	_ = unix.SetsockoptInt(s.fd, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 3)
	_ = unix.SetsockoptInt(s.fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	return s, nil
}

// Read is net.Conn.Read that does not wait. The caller sees to it that nobody closes the
// connection meanwhile; others may shut it down.
func (s *sock) Read(b []byte) (int, error) {
	for {
		n, err := syscall.Read(s.fd, b)
		switch {
		case n > 0:
			return n, nil
		case err == syscall.EAGAIN:
			return 0, errAgain
		case err == syscall.EINTR:
		case err == nil:
			return 0, io.EOF
		default:
			return 0, err
		}
	}
}

// Write is net.Conn.Write that does not wait.
func (s *sock) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.backlog) > 0 {
		s.backlog = append(s.backlog, b...)
		return len(b), nil
	}
	n, err := s.send(b)
	if err == nil && n < len(b) {
		s.backlog = append(s.backlog, b[n:]...)
		if s.armed {
			s.arm() // for room, too
		}
	}
	return len(b), err
}

// send writes what there is room for; mu is held.
func (s *sock) send(b []byte) (n int, err error) {
	if s.shut {
		return 0, net.ErrClosed
	}
	for n < len(b) {
		k, err := syscall.Write(s.fd, b[n:])
		switch {
		case err == syscall.EAGAIN:
			return n, nil
		case err == syscall.EINTR:
		case err != nil:
			return n, err
		default:
			n += k
		}
	}
	return n, nil
}

// flush writes from the backlog what there is room for, and returns what is left of it.
func (s *sock) flush() (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.backlog) == 0 {
		return 0, nil
	}
	n, err := s.send(s.backlog)
	s.backlog = s.backlog[:copy(s.backlog, s.backlog[n:])]
	return len(s.backlog), err
}

// backlogged returns how many bytes wait for room.
func (s *sock) backlogged() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.backlog)
}

// sleep waits until there is something to read, or room for the backlog, or the connection has ended. One goroutine at a time.
func (s *sock) sleep() error {
	err := s.bell.wait(s.arms)
	s.mu.Lock()
	s.armed = false
	s.mu.Unlock()
	return err
}

// rouse wakes who sleeps.
func (s *sock) rouse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bell != nil {
		_ = s.bell.file.SetReadDeadline(time.Unix(1, 0))
	}
}

// roused reports whether a sleep has failed because somebody was to be woken; then the next one can be slept.
func (s *sock) roused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bell != nil && s.bell.file.SetReadDeadline(time.Time{}) == nil && !s.shut
}

// napTime bounds a nap, in milliseconds: who naps hears neither of room for a backlog that comes meanwhile nor of an interrupt.
const napTime = 2

// nap is sleep for one who is alone: his thread waits in the kernel. By way of Go's scheduler it takes two more system calls, and another
// thread that must wake; but it lets others use the processor at once.
func (s *sock) nap() {
	s.poll[0] = unix.PollFd{Fd: int32(s.fd), Events: unix.POLLIN | unix.POLLRDHUP}
	_, _ = unix.Poll(s.poll[:], napTime)
}

// arm makes the bell ring once; mu is held.
func (s *sock) arm() {
	s.armed = true
	events := uint32(unix.EPOLLIN | unix.EPOLLRDHUP)
	if len(s.backlog) > 0 {
		events |= unix.EPOLLOUT
	}
	if s.fd >= 0 {
		s.bell.arm(s.fd, events)
	}
}

// end shuts the connection down: who reads it or sleeps on it hears of it.
func (s *sock) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.shut {
		s.shut = true
		_ = unix.Shutdown(s.fd, unix.SHUT_RDWR)
	}
}

// close gives the descriptor back. Nobody reads any more.
func (s *sock) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shut = true
	if s.fd >= 0 {
		_ = unix.Close(s.fd)
		s.fd = -1
	}
	if s.bell != nil {
		s.bell.close()
		s.bell = nil
	}
}

// What else net.Conn wants, for TLS.

func (s *sock) Close() error                     { s.end(); return nil }
func (s *sock) LocalAddr() net.Addr              { return s.local }
func (s *sock) RemoteAddr() net.Addr             { return s.remote }
func (s *sock) SetDeadline(time.Time) error      { return nil }
func (s *sock) SetReadDeadline(time.Time) error  { return nil }
func (s *sock) SetWriteDeadline(time.Time) error { return nil }

// A switchConn is what TLS reads and writes: a connection that waits while hands are shaken, a sock
// afterwards.
type switchConn struct{ net.Conn }

// A stream is a connection on which frames go: a sock, or TLS on one.
type stream struct {
	*sock
	tls *tls.Conn
}

// read is Read, through TLS.
func (s *stream) read(b []byte) (int, error) {
	if s.tls == nil {
		return s.sock.Read(b)
	}
	return s.tls.Read(b)
}

// write is Write, through TLS.
func (s *stream) write(b []byte) error {
	if s.tls == nil {
		_, err := s.sock.Write(b)
		return err
	}
	_, err := s.tls.Write(b)
	return err
}

// isAgain tells whether a read found nothing.
func isAgain(err error) bool {
	if err == error(errAgain) {
		return true
	}
	var a againError
	return errors.As(err, &a)
}
