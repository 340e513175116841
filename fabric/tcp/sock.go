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

// A sock is a connection whose file descriptor Go's scheduler does not watch: a goroutine that waits for an answer
// spins for it, and is not woken for what it has seen already. A wakeup wakes it once it has parked.
//
// Read never waits: it returns errAgain. Write never waits either: bytes that the kernel has no room
// for stay in the backlog, until flush. One goroutine reads at a time; all else any may call.
type sock struct {
	wakeup        *wakeup // nil: a poller watches the descriptor
	arms          func()
	local, remote net.Addr
	poll          [2]unix.PollFd // of parkInKernel

	mu      sync.Mutex
	fd      int    // -1 when closed
	backlog []byte // the rest of kept, or more
	kept    []byte
	shut    bool
	armed   bool // the wakeup waits for something to read
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

// Read is net.Conn.Read that does not wait. The caller sees to it that the connection is not closed
// meanwhile; any goroutine may shut it down.
func (s *sock) Read(b []byte) (int, error) {
	for {
		n, err := rawRead(s.fd, b)
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
		s.kept = append(s.kept[:0], b[n:]...)
		s.backlog = s.kept
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
		k, err := rawWrite(s.fd, b[n:])
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
	if s.backlog = s.backlog[n:]; len(s.backlog) == 0 && cap(s.kept) > keepBuffer {
		s.kept = nil
	}
	return len(s.backlog), err
}

// backlogged returns how many bytes wait for room.
func (s *sock) backlogged() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.backlog)
}

// park waits until there is something to read, or room for the backlog, or the connection has ended. One goroutine at a time.
func (s *sock) park() error {
	err := s.wakeup.wait(s.arms)
	s.mu.Lock()
	s.armed = false
	s.mu.Unlock()
	return err
}

// unpark wakes the goroutine that is parked.
func (s *sock) unpark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wakeup != nil {
		_ = s.wakeup.file.SetReadDeadline(time.Unix(1, 0))
	}
}

// unparked reports whether a park has failed because of unpark; then the next one is possible again.
func (s *sock) unparked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wakeup != nil && s.wakeup.file.SetReadDeadline(time.Time{}) == nil && !s.shut
}

// parkInKernel is park for a moment: the thread waits in the kernel, for the connection and another descriptor. By way of Go's scheduler it takes three more
// system calls, and often another thread that must wake. Neither room for a backlog that comes meanwhile nor an interrupt ends it.
func (s *sock) parkInKernel(other int) (own, others bool) {
	s.poll = [2]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN | unix.POLLRDHUP}, {Fd: int32(other), Events: unix.POLLIN}}
	n, _ := rawPoll(s.poll[:], moment)
	return n > 0 && s.poll[0].Revents != 0, n > 0 && s.poll[1].Revents != 0
}

// arm arms the wakeup; mu is held.
func (s *sock) arm() {
	s.armed = true
	events := uint32(unix.EPOLLIN | unix.EPOLLRDHUP)
	if len(s.backlog) > 0 {
		events |= unix.EPOLLOUT
	}
	if s.fd >= 0 {
		s.wakeup.arm(s.fd, events)
	}
}

// end shuts the connection down: a reader, and a goroutine that is parked on it, find out.
func (s *sock) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.shut {
		s.shut = true
		_ = unix.Shutdown(s.fd, unix.SHUT_RDWR)
	}
}

// close gives the descriptor back. Nothing reads any more.
func (s *sock) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shut = true
	if s.fd >= 0 {
		_ = unix.Close(s.fd)
		s.fd = -1
	}
	if s.wakeup != nil {
		s.wakeup.close()
		s.wakeup = nil
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

// A ciphertext is what TLS reads from: a sock, but for the read that follows one which has taken all that there was: TLS asks for more each time until there is none. What comes
// meanwhile is found by the client that waits for the socket, which is ready as long as there is something in it.
//
// TLS writes each record by itself, of which a large write has several. While it gathers, they go to the socket at once.
type ciphertext struct {
	*sock
	drained bool // the next read finds nothing

	out      sync.Mutex // held while records are written, too, so that they stay in order
	gathers  bool
	gathered []byte
}

// maxRecord is how many bytes a record of TLS has at most. With the configuration of internal/secure as many as that are one record, and one write.
const maxRecord = 16 << 10

func (c *ciphertext) Write(b []byte) (int, error) {
	c.out.Lock()
	defer c.out.Unlock()
	if c.gathers {
		c.gathered = append(c.gathered, b...)
		return len(b), nil
	}
	return c.sock.Write(b)
}

// gather has records wait until release.
func (c *ciphertext) gather() {
	c.out.Lock()
	c.gathers = true
	c.out.Unlock()
}

// release writes what has gathered.
func (c *ciphertext) release() error {
	c.out.Lock()
	defer c.out.Unlock()
	c.gathers = false
	_, err := c.sock.Write(c.gathered)
	if c.gathered = c.gathered[:0]; cap(c.gathered) > keepBuffer {
		c.gathered = nil
	}
	return err
}

func (c *ciphertext) Read(b []byte) (n int, err error) {
	if c.drained {
		c.drained = false
		return 0, errAgain
	}
	n, err = c.sock.Read(b)
	c.drained = 0 < n && n < len(b)
	return n, err
}

// A stream is a connection on which frames go: a sock, or TLS on one.
type stream struct {
	*sock
	tls    *tls.Conn
	cipher *ciphertext // below tls
}

// refresh makes the next read look at the connection. It is for a reader that does not wait for the socket.
func (s *stream) refresh() {
	if s.cipher != nil {
		s.cipher.drained = false
	}
}

// read is Read, through TLS. It takes all records that have come: what is in them is handled, and answered, at once.
func (s *stream) read(b []byte) (n int, err error) {
	if s.tls == nil {
		return s.sock.Read(b)
	}
	for n < len(b) {
		k, err := s.tls.Read(b[n:])
		n += k
		switch {
		case err == nil:
		case n == 0:
			return 0, err
		case isAgain(err):
			s.cipher.drained = true
			return n, nil
		default:
			return n, nil // the next read finds it again
		}
	}
	return n, nil
}

// write is Write, through TLS.
func (s *stream) write(b []byte) error {
	if s.tls == nil {
		_, err := s.sock.Write(b)
		return err
	}
	if len(b) <= maxRecord {
		_, err := s.tls.Write(b)
		return err
	}
	s.cipher.gather()
	_, err := s.tls.Write(b)
	if unwritten := s.cipher.release(); err == nil {
		err = unwritten
	}
	return err
}

// isAgain reports whether a read found nothing.
func isAgain(err error) bool {
	if err == error(errAgain) {
		return true
	}
	var a againError
	return errors.As(err, &a)
}
