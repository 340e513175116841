package tcp

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/declock/declock/fabric"
	"golang.org/x/sys/unix"
)

// A wakeup wakes one goroutine when something happens to a descriptor, once after it was armed. In between
// what happens costs nothing: Go's scheduler watches an epoll descriptor, whose set has that one as a one-shot entry: only an armed
// one can make it ready.
type wakeup struct {
	file  *os.File
	raw   syscall.RawConn
	fd    int
	ready func(fd uintptr) bool // made once: a closure of each wait would be garbage

	added bool
	arms  func() // of the present wait; nil once it is armed
	event [1]unix.EpollEvent
}

func newWakeup() (*wakeup, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	w := &wakeup{file: os.NewFile(uintptr(fd), "epoll"), fd: fd}
	if w.raw, err = w.file.SyscallConn(); err != nil {
		_ = w.file.Close()
		return nil, err
	}
	w.ready = func(fd uintptr) bool {
		if arms := w.arms; arms != nil {
			// Now Go's scheduler takes note of what happens.
			w.arms = nil
			arms()
			return false
		}
		// It has to be asked, or it does not become ready again. An error is for the waiter to handle.
		n, _ := rawEpollWait(int(fd), w.event[:], 0)
		return n != 0
	}
	return w, nil
}

// arm makes events of a descriptor, always the same one, wake the waiter, once.
func (w *wakeup) arm(fd int, events uint32) {
	e := unix.EpollEvent{Events: events | unix.EPOLLONESHOT, Fd: int32(fd)}
	op := unix.EPOLL_CTL_MOD
	if !w.added {
		op = unix.EPOLL_CTL_ADD
		w.added = true
	}
	_ = unix.EpollCtl(w.fd, op, fd, &e)
}

// wait parks until an event, or close. It calls arms, which arms the wakeup; what happened before counts, too.
func (w *wakeup) wait(arms func()) error {
	w.arms = arms
	return w.raw.Read(w.ready)
}

func (w *wakeup) close() { _ = w.file.Close() }

// A poller watches connections for one goroutine, and serves those that are ready.
type poller struct {
	set     int // epoll
	signal  int // eventfd in set: it wakes the goroutine
	wakeup  *wakeup
	arms    func()
	spinner spinner
	stopped atomic.Bool
	count   atomic.Int32 // connections

	events [64]unix.EpollEvent // of serve
	taken  int                 // of events: those that parkAlone has taken for serve

	mu     sync.Mutex
	closed bool
	conns  map[int32]*watched
	last   int32
	again  []*watched // that may have more, and are served once more after the others
}

// A watched is a connection in a poller.
type watched struct {
	pollable
	fd    int
	id    int32
	again bool // it is in the poller's again
}

// A pollable is what a poller calls, one call at a time.
type pollable interface {
	// serve takes what the connection has, for a while.
	serve(events uint32)
	// drop ends the connection.
	drop(why error)
}

// signalID is the ID of the poller's own signal.
const signalID = 0

func newPoller() (p *poller, err error) {
	p = &poller{set: -1, signal: -1, conns: map[int32]*watched{}}
	p.arms = func() { p.wakeup.arm(p.set, unix.EPOLLIN) }
	if p.set, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err == nil {
		p.signal, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	}
	if err == nil {
		p.wakeup, err = newWakeup()
	}
	if err == nil {
		err = p.control(unix.EPOLL_CTL_ADD, &watched{fd: p.signal, id: signalID}, forInput)
	}
	if err != nil {
		p.close()
		return nil, fmt.Errorf("tcp: %w", err)
	}
	return p, nil
}

// What to watch a connection for.
const (
	forInput = unix.EPOLLIN | unix.EPOLLRDHUP
	forRoom  = unix.EPOLLOUT
)

// add watches a connection for input.
func (p *poller) add(w *watched) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	w.id = p.last
	if err := p.control(unix.EPOLL_CTL_ADD, w, forInput); err != nil {
		return err
	}
	p.conns[w.id] = w
	p.count.Add(1)
	return nil
}

// change changes what a connection is watched for. One that is not watched any more may be closed, and its descriptor another's: os.ErrClosed.
func (p *poller) change(w *watched, events uint32) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns[w.id] != w {
		return os.ErrClosed
	}
	return p.control(unix.EPOLL_CTL_MOD, w, events)
}

// control changes the set; mu is held.
func (p *poller) control(op int, w *watched, events uint32) error {
	if p.closed {
		return os.ErrClosed
	}
	return unix.EpollCtl(p.set, op, w.fd, &unix.EpollEvent{Events: events, Fd: w.id})
}

// remove watches a connection no more. It comes before the connection is closed.
func (p *poller) remove(w *watched) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns[w.id] != w {
		return
	}
	delete(p.conns, w.id)
	p.count.Add(-1)
	_ = p.control(unix.EPOLL_CTL_DEL, w, 0)
}

// all returns the connections.
func (p *poller) all() []*watched {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Values(p.conns))
}

// find returns a connection that is still watched, or nil.
func (p *poller) find(id int32) *watched {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conns[id]
}

// sendBack has a connection served once more, after the others.
func (p *poller) sendBack(w *watched) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !w.again {
		w.again = true
		p.again = append(p.again, w)
		p.wakeLocked()
	}
}

// serve serves the connections that are ready, without waiting, and returns how many events that were. One goroutine calls it at a time.
func (p *poller) serve() int {
	n := p.taken
	if p.taken = 0; n == 0 {
		var err error
		if n, err = rawEpollWait(p.set, p.events[:], 0); err != nil {
			return 0
		}
	}
	signalled := false
	for _, e := range p.events[:n] {
		if e.Fd == signalID {
			signalled = true
		} else if w := p.find(e.Fd); w != nil {
			w.serve(e.Events)
		}
	}
	if signalled {
		for _, w := range p.calm() {
			if p.find(w.id) == w {
				w.serve(0)
			}
		}
	}
	return n
}

// calm resets the signal, and returns the connections that were sent back.
func (p *poller) calm() []*watched {
	p.mu.Lock()
	defer p.mu.Unlock()
	var b [8]byte
	_, _ = unix.Read(p.signal, b[:])
	if p.stopped.Load() {
		p.wakeLocked() // for run
	}
	list := p.again
	p.again = nil
	for _, w := range list {
		w.again = false
	}
	return list
}

// wakeLocked wakes run, now or when it next parks; mu is held.
func (p *poller) wakeLocked() {
	if !p.closed {
		_, _ = unix.Write(p.signal, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

// stop ends run.
func (p *poller) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped.Store(true)
	p.wakeLocked()
}

func (p *poller) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.closed = true
	if p.wakeup != nil {
		p.wakeup.close()
	}
	for _, fd := range []int{p.set, p.signal} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// run calls round, which serves, until stop. When there is nothing to serve for a while, it parks.
func (p *poller) run(now func() fabric.Time, park func(), round func() int) {
	for !p.stopped.Load() {
		if t := now(); !p.spinner.again(t) {
			park()
			p.spinner.parked(now() - t)
		}
		if round() > 0 {
			p.spinner.found()
		}
	}
}

// park waits until there is something to serve, by way of Go's scheduler: no thread need wake where the one that runs the goroutines looks first.
func (p *poller) park() { _ = p.wakeup.wait(p.arms) }

// parkAlone is park for the only goroutine that calls serve: at first its thread waits in the kernel. By way of Go's scheduler that takes three more
// system calls, and the wakeup of another thread; but a thread that waits for long keeps the runtime's monitoring thread awake.
func (p *poller) parkAlone() {
	n, _ := rawEpollWait(p.set, p.events[:], momentMs)
	if n == 0 {
		p.park()
	}
	p.taken = max(n, 0)
}
