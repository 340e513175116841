package shm

import (
	"os"
	"sync"
	"time"

	"github.com/declock/declock/fabric"
	"golang.org/x/sys/unix"
)

const (
	// lockInterval is how often a lock is looked at where nothing wakes us.
	lockInterval = 100 * time.Millisecond
	// A process that has ended lets its locks go just before, unless a child
	// that it was about to start has them for a moment.
	endInterval = time.Millisecond
	endTries    = 100
)

// A watchKey names an incarnation of a compute node, or an epoch of a memory node.
type watchKey struct {
	cn     fabric.CNID // 0: a memory node
	mn     fabric.MemID
	number uint64 // incarnation or epoch
}

// A watch waits for the end of another process. The proof is that the lock of
// its file is free; a pidfd tells when to look.
type watch struct {
	file  *os.File // its lock; the watch owns it
	pidfd *os.File // nil: look now and then
	stop  chan struct{}
	gone  func()
	// inside is true if the member is in this process: it ends by Close, and
	// says so. It is only looked at when a member is known to have ended.
	inside bool
}

// A watchSet has the watches of a node.
type watchSet struct {
	mu      sync.Mutex
	watches map[watchKey]*watch
	closed  bool
	running sync.WaitGroup
}

// start watches a process that holds the lock of file. gone is called once, by
// a goroutine of the watch, unless it is stopped before.
func (s *watchSet) start(key watchKey, pid, pidNS uint64, file *os.File, gone func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.watches[key] != nil {
		_ = file.Close()
		return
	}
	w := &watch{file: file, stop: make(chan struct{}), gone: gone}
	same := pidNS == pidNamespace()
	if w.inside = same && pid == uint64(os.Getpid()); same && !w.inside {
		// Without a pidfd, because the process has ended or the kernel is old, the lock tells.
		if fd, err := unix.PidfdOpen(int(pid), unix.PIDFD_NONBLOCK); err == nil {
			w.pidfd = os.NewFile(uintptr(fd), "pidfd")
		}
	}
	if s.watches == nil {
		s.watches = map[watchKey]*watch{}
	}
	s.watches[key] = w
	if !w.inside {
		s.running.Go(w.run)
	}
}

// run waits until the process has ended, or the watch is stopped.
func (w *watch) run() {
	defer w.file.Close()
	interval := lockInterval
	// The process that holds the lock after the pidfd was opened is the one that it is about.
	if w.pidfd != nil && !w.ended() && waitReadable(w.pidfd) {
		interval = endInterval
	}
	for try := 0; !w.ended(); try++ {
		if try == endTries {
			interval = lockInterval
		}
		select {
		case <-w.stop:
			return
		case <-time.After(interval):
		}
	}
	select {
	case <-w.stop:
	default:
		w.gone()
	}
}

// ended reports whether the lock is free.
func (w *watch) ended() bool {
	locked, err := isLocked(w.file)
	return err == nil && !locked
}

// waitReadable parks the goroutine until a descriptor is readable. It returns
// false if it is closed or cannot be waited for.
func waitReadable(f *os.File) bool {
	conn, err := f.SyscallConn()
	if err != nil {
		return false
	}
	err = conn.Read(func(fd uintptr) bool {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, 0)
		return n > 0 && err == nil
	})
	return err == nil
}

// stop ends a watch.
func (s *watchSet) stop(key watchKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.watches[key]; w != nil {
		delete(s.watches, key)
		w.end()
	}
}

func (w *watch) end() {
	close(w.stop)
	if w.pidfd != nil {
		_ = w.pidfd.Close()
	}
	if w.inside {
		_ = w.file.Close()
	}
}

// retain stops the watches of compute nodes that keep says no to.
func (s *watchSet) retain(keep func(watchKey) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, w := range s.watches {
		if key.cn != 0 && !keep(key) {
			delete(s.watches, key)
			w.end()
		}
	}
}

// has reports whether an incarnation or epoch is watched.
func (s *watchSet) has(key watchKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watches[key] != nil
}

// look calls gone for those members in this process that have ended.
func (s *watchSet) look() {
	s.mu.Lock()
	var ended []func()
	for _, w := range s.watches {
		if w.inside && w.ended() {
			ended = append(ended, w.gone)
		}
	}
	s.mu.Unlock()
	for _, gone := range ended {
		gone()
	}
}

// close ends all watches, and waits for their goroutines.
func (s *watchSet) close() {
	s.mu.Lock()
	s.closed = true
	for _, w := range s.watches {
		w.end()
	}
	s.watches = nil
	s.mu.Unlock()
	s.running.Wait()
}

// pidNamespace returns what tells the namespace of this process's PID: a PID
// from another means nothing here.
var pidNamespace = sync.OnceValue(func() uint64 {
	var st unix.Stat_t
	_ = unix.Stat("/proc/self/ns/pid", &st) // 0 where there is no /proc
	return st.Ino
})
