//go:build linux

package tcp

import (
	"os"
	"sync"
	"syscall"

	"github.com/declock/declock/fabric"
	"golang.org/x/sys/unix"
)

// A bell wakes one goroutine when something happens to a file descriptor, after it was armed, once. In between
// what happens costs nothing: Go's scheduler watches the epoll descriptor of the bell,
// which only what is armed can make ready.
type bell struct {
	file *os.File
	raw  syscall.RawConn
	fd   int
	look func(fd uintptr) bool // made once: a closure of each wait would be garbage

	added bool
	arms  func() // of the present wait; nil once it is armed
	event [1]unix.EpollEvent
}

func newBell() (*bell, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	b := &bell{file: os.NewFile(uintptr(fd), "epoll"), fd: fd}
	if b.raw, err = b.file.SyscallConn(); err != nil {
		_ = b.file.Close()
		return nil, err
	}
	b.look = func(fd uintptr) bool {
		if arms := b.arms; arms != nil {
			// Now Go's scheduler takes note of what happens.
			b.arms = nil
			arms()
			return false
		}
		// It has to be asked, or it does not ring again. An error is for the sleeper to look at.
		n, _ := unix.EpollWait(int(fd), b.event[:], 0)
		return n != 0
	}
	return b, nil
}

// arm makes the bell ring once for events of a descriptor, always the same one.
func (b *bell) arm(fd int, events uint32) {
	e := unix.EpollEvent{Events: events | unix.EPOLLONESHOT, Fd: int32(fd)}
	op := unix.EPOLL_CTL_MOD
	if !b.added {
		op = unix.EPOLL_CTL_ADD
		b.added = true
	}
	_ = unix.EpollCtl(b.fd, op, fd, &e)
}

// wait sleeps until the bell rings, or is closed. arms is what arms it; then what happened before counts, too.
func (b *bell) wait(arms func()) error {
	b.arms = arms
	return b.raw.Read(b.look)
}

func (b *bell) close() { _ = b.file.Close() }

// A poller watches many descriptors for one goroutine.
type poller struct {
	set    int // epoll
	signal int // eventfd in set, that wakes the sleeper
	looker looker
	event  [1]unix.EpollEvent

	mu     sync.Mutex // of closing
	closed bool
}

// signalID is the ID of the poller's own signal.
const signalID = -1

func newPoller() (p *poller, err error) {
	p = &poller{set: -1, signal: -1}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if p.set, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return p, err
	}
	if p.signal, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return p, err
	}
	return p, p.add(p.signal, signalID, forInput)
}

// What to watch a descriptor for.
const (
	forInput = unix.EPOLLIN | unix.EPOLLRDHUP
	forRoom  = unix.EPOLLOUT
)

// add watches a descriptor, under a number.
func (p *poller) add(fd int, id int32, events uint32) error {
	return p.control(unix.EPOLL_CTL_ADD, fd, id, events)
}

// change changes what it is watched for.
func (p *poller) change(fd int, id int32, events uint32) error {
	return p.control(unix.EPOLL_CTL_MOD, fd, id, events)
}

func (p *poller) control(op, fd int, id int32, events uint32) error {
	e := unix.EpollEvent{Events: events, Fd: id}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return os.ErrClosed
	}
	return unix.EpollCtl(p.set, op, fd, &e)
}

func (p *poller) remove(fd int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		_ = unix.EpollCtl(p.set, unix.EPOLL_CTL_DEL, fd, &unix.EpollEvent{})
	}
}

// ready tells which descriptors have something, without waiting.
func (p *poller) ready(events []unix.EpollEvent) int {
	n, err := unix.EpollWait(p.set, events, 0)
	if err != nil {
		return 0
	}
	return n
}

// sleep waits until one of them has something, or wake was called. The goroutine's thread waits in the kernel: by way of Go's scheduler
// it would take three more system calls, and the wakening of another thread.
func (p *poller) sleep() {
	_, _ = unix.EpollWait(p.set, p.event[:], -1) // what there is ready takes
}

// wake makes the sleeper look, now or next time.
func (p *poller) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		_, _ = unix.Write(p.signal, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

// calm takes note of the signal.
func (p *poller) calm() {
	var b [8]byte
	_, _ = unix.Read(p.signal, b[:])
}

func (p *poller) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.closed = true
	for _, fd := range []int{p.set, p.signal} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// run calls look again and again, until it returns false. look takes what is
// ready and says how much that was; when it is nothing for a while, run sleeps.
func (p *poller) run(now func() fabric.Time, look func() (n int, ok bool)) {
	for {
		n, ok := look()
		if !ok {
			return
		}
		if n > 0 {
			p.looker.found()
			continue
		}
		t := now()
		if p.looker.again(t) {
			continue
		}
		p.sleep()
		p.looker.slept(now() - t)
	}
}
