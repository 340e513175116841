//go:build linux

package tcp

import (
	"os"
	"runtime"
	"sync"
	"syscall"

	"github.com/declock/declock/fabric"
	"golang.org/x/sys/unix"
)

const (
	// Who waits looks for a while before he sleeps: to be woken takes ten microseconds and
	// more. How long he looks follows what comes: see patience.
	minLook = 4 * fabric.Microsecond
	maxLook = 64 * fabric.Microsecond
	// A sleep shorter than this was not worth it.
	shortSleep = 60 * fabric.Microsecond
	// Every so many looks others may run: goroutines, then processes. Where there are more of them than
	// processors, one of those may be what is waited for.
	looksPerGosched = 2
	looksPerYield   = 8
)

// patience returns how long to look before the next sleep, after one that was begun after a look of
// that length: longer if a longer look would have saved the sleep, else shorter.
func patience(look, slept fabric.Time) fabric.Time {
	if slept < shortSleep {
		return min(2*look, maxLook)
	}
	return max(look/2, minLook)
}

// letOthersRun is called between looks that found nothing.
func letOthersRun(round int) {
	if round%looksPerGosched == 0 {
		runtime.Gosched()
	}
	if round%looksPerYield == 0 {
		_, _, _ = syscall.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	}
}

// A bell wakes one goroutine when something happens to a file descriptor, after it was armed, once. In between
// what happens costs nothing: Go's scheduler watches the epoll descriptor of the bell,
// which only what is armed can make ready.
type bell struct {
	file  *os.File
	raw   syscall.RawConn
	fd    int
	look  func(fd uintptr) bool // made once: a closure of each wait would be garbage
	event [1]unix.EpollEvent
	added bool
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
		n, _ := unix.EpollWait(int(fd), b.event[:], 0)
		return n != 0 // an error, too, is for the sleeper to look at
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

// wait sleeps until the bell rings, or is closed.
func (b *bell) wait() error { return b.raw.Read(b.look) }

func (b *bell) close() { _ = b.file.Close() }

// A poller watches many descriptors for one goroutine.
type poller struct {
	set    int // epoll
	signal int // eventfd in set, that wakes the sleeper
	bell   *bell
	look   fabric.Time

	mu     sync.Mutex // of closing
	closed bool
}

// signalID is the ID of the poller's own signal.
const signalID = -1

func newPoller() (p *poller, err error) {
	p = &poller{set: -1, signal: -1, look: minLook}
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
	if p.bell, err = newBell(); err != nil {
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

// sleep waits until one of them has something, or signal was called.
func (p *poller) sleep() error {
	p.bell.arm(p.set, unix.EPOLLIN)
	return p.bell.wait()
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
	if p.bell != nil {
		p.bell.close()
	}
	for _, fd := range []int{p.set, p.signal} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// run calls look again and again, until it returns false or the poller is closed. look takes what is
// ready and says how much that was; when it is nothing for a while, run sleeps.
func (p *poller) run(now func() fabric.Time, look func() (n int, ok bool)) {
	until := fabric.Time(0)
	for round := 1; ; round++ {
		n, ok := look()
		if !ok {
			return
		}
		if n > 0 {
			until = 0
			continue
		}
		switch t := now(); {
		case until == 0:
			until = t + p.look
		case t >= until:
			if p.sleep() != nil {
				return
			}
			p.look = patience(p.look, now()-t)
			until = 0
			continue
		}
		letOthersRun(round)
	}
}
