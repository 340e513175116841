package tcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peer"
	"github.com/declock/declock/fabric/internal/ram"
	"github.com/declock/declock/fabric/member"
	"golang.org/x/sys/unix"
)

// With Options.Local a memory node lends its memory to compute nodes of its machine: their CPUs execute operations on it, where lanes over the loopback
// would have the memory node do so. Both are atomic with each other, for a CPU executes them here as there.
//
// A compute node that a lane has let in connects to a unix socket, and proves by the key of the memory that it was let in. It gets the memory, and a page of
// control, as descriptors. Wherever a memory node cuts lanes it takes such a leave back, too: from then on nothing of that compute node is executed. It waits
// for a chain that is being executed, as it does for a frame. If the process is stopped in the middle of one it is ended, for nothing else keeps it from
// going on at any time; a process that is stopped elsewhere lives, and finds that it is shut out. One that runs ends its chain when the goroutine has a processor
// again, for which it may wait behind all others of the program: it has until DeadAfter.

// A leave is what a compute node needs to reach some memory by its CPU.
type leave struct {
	laneKey
	region  *region
	control *control
	process borrower
	conn    *net.UnixConn // open as long as the leave
	stopped int           // how many looks in a row have found the process stopped
}

// A borrower is the process of a compute node.
type borrower struct{ pid, fd int }

const (
	// Chains that are being executed are looked for every lookEvery. A process that is found stopped looksBeforeKill times in a row is ended, and one that runs after
	// looks for DeadAfter. Looks are counted, not time: a machine that stood still itself ends no process.
	lookEvery       = time.Millisecond
	looksBeforeKill = 250
)

// leaveSocket returns the name of the socket at which a memory node lends, by its address: only processes of its network namespace find it.
func leaveSocket(addr string) *net.UnixAddr {
	return &net.UnixAddr{Name: "@declock-tcp/" + peer.ParseContact(addr).HostPort, Net: "unixpacket"}
}

// offer begins to lend, if that was asked for. Without it compute nodes use lanes.
func (s *MemoryServer) offer() {
	if s.home.mem.shared == nil || !ram.HasAtomic16 { // else lanes make atomics of 16 bytes so by a mutex
		return
	}
	l, err := net.ListenUnix("unixpacket", leaveSocket(s.peer.Own.Addr))
	if err != nil {
		s.o.Report(fmt.Errorf("memory node %v: compute nodes of this machine reach it by its network: %w", s.ID(), err))
		return
	}
	s.counter = peer.DoorAt(&s.peer.Config, fmt.Sprintf("memory node %v: a process of this machine asks for its memory: connection", s.ID()), l)
	s.peer.Go(s.keepLending)
	s.counter.Open(func(c net.Conn) error {
		err := s.serveLocal(c.(*net.UnixConn))
		if errors.Is(err, ErrLost) { // it goes by lanes, which report
			return nil
		}
		return err
	})
}

// serveLocal lends memory to a process that has connected, until either side ends that.
func (s *MemoryServer) serveLocal(c *net.UnixConn) error {
	defer c.Close()
	defer context.AfterFunc(s.peer.Ctx, func() { _ = c.Close() })()
	_ = c.SetDeadline(time.Now().Add(handshakeTimeout))
	p, err := processOf(c)
	if err != nil {
		return err
	}
	l, err := s.shakeLocal(c, p)
	if l == nil {
		_ = unix.Close(p.fd)
		return err
	}
	_ = s.counter.Known(c) // else it has been closed
	_ = c.SetDeadline(time.Time{})
	var b [1]byte
	_, _ = c.Read(b[:])
	s.peer.Mu.Lock()
	defer s.peer.Mu.Unlock()
	if s.leaves[l.laneKey] != l {
		return err // it was taken back
	}
	l.control.revoked().Store(1)
	if l.over() { // else who takes it back has to wait
		s.drop(l)
	}
	return err
}

// processOf returns the process at the other side, which has to be of the own user, and one that can be ended. Something that it sends when it was asked to, after this, shows that
// it is the process of the descriptor, and not another that has got its number.
func processOf(c *net.UnixConn) (p borrower, err error) {
	cred, err := credentials(c)
	if err != nil {
		return p, err
	}
	p.pid = int(cred.Pid)
	if p.pid == 0 {
		return p, fmt.Errorf("%w: a process of another PID namespace", ErrAuth)
	}
	if p.fd, err = unix.PidfdOpen(p.pid, 0); err != nil {
		return p, fmt.Errorf("process %d: %w", p.pid, err)
	}
	if err := unix.PidfdSendSignal(p.fd, 0, nil, 0); err != nil {
		_ = unix.Close(p.fd)
		return p, fmt.Errorf("process %d could not be ended: %w", p.pid, err)
	}
	return p, nil
}

// credentials returns whose process is at the other side: of the own user.
func credentials(c *net.UnixConn) (cred *unix.Ucred, err error) {
	raw, err := c.SyscallConn()
	if err == nil {
		var no error
		err = raw.Control(func(fd uintptr) { cred, no = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
		err = errors.Join(err, no)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: whose process it is: %w", ErrLost, err)
	case int(cred.Uid) != os.Geteuid():
		return nil, fmt.Errorf("%w: a process of user %d", ErrAuth, cred.Uid)
	}
	return cred, nil
}

// shakeLocal lets a process in. It returns nil if it did not, and an error of which the process was not told, or that is worth a report.
func (s *MemoryServer) shakeLocal(c *net.UnixConn, p borrower) (*leave, error) {
	if _, err := c.Write([]byte{versionMax}); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLost, err)
	}
	var b [helloSize]byte
	var g guest
	if n, err := c.Read(b[:]); err != nil || n != len(b) {
		return nil, fmt.Errorf("%w: no hello: %d bytes, %v", ErrLost, n, err)
	}
	err := g.decode(&b)
	var r reply
	if err == nil {
		r.version, err = g.version()
	}
	var l *leave
	var fds []int
	if err == nil && g.role != roleLocal {
		err = fmt.Errorf("%w: a connection with role %d", ErrProtocol, g.role)
	}
	var page *os.File
	if err == nil {
		if page, err = newShared("declock-control", controlSize+talliesSize); err == nil {
			defer page.Close()
		}
	}
	if err == nil {
		err = s.peer.Await(s.peer.Ctx, func(*member.State) (err error) {
			s.peer.Mu.Lock()
			defer s.peer.Mu.Unlock()
			l, fds, err = s.lend(&g, &r, p, c, page)
			return err
		})
	}
	if err != nil {
		r.code, r.text = codeOf(err), err.Error()
	}
	defer func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}()
	if _, _, e := c.WriteMsgUnix(r.encode(), unix.UnixRights(fds...), nil); err == nil && e != nil {
		err = fmt.Errorf("%w: %w", ErrLost, e)
	}
	return l, err
}

// lend lends memory to a member, or says why not; Mu is held. It returns descriptors of the memory and of the page.
func (s *MemoryServer) lend(g *guest, r *reply, p borrower, c *net.UnixConn, page *os.File) (_ *leave, fds []int, err error) {
	if _, err := s.peer.Client(g.caller()); err != nil {
		return nil, nil, err
	}
	x := s.home
	r.epoch = s.peer.Own.Epoch
	if g.target != (target{}) {
		if x = s.copyOf(g.target.id); x == nil {
			x = s.home // it refuses
		}
		r.epoch = x.epoch
	}
	if err := s.refusal(x, g); err != nil {
		return nil, nil, err
	}
	switch {
	case uint32(g.number) != x.nic.key.Load():
		return nil, nil, fmt.Errorf("%w: no lane has let it in", ErrAuth)
	case x.mem.shared == nil:
		return nil, nil, fmt.Errorf("%w: the memory of %v is not lent", fabric.ErrNodeDown, x.id)
	}
	r.size, r.key = x.mem.size, x.nic.key.Load()
	l := &leave{laneKey: laneKey{member.Incarnation(g.from), 0, g.target}, region: x, process: p, conn: c}
	s.takeBack(func(o *leave) bool { return o.laneKey == l.laneKey })
	for _, f := range []*os.File{x.mem.shared, page} {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0) // the memory may be given back before it is sent
		if err != nil {
			return nil, fds, fmt.Errorf("%w: %w", fabric.ErrResources, err)
		}
		fds = append(fds, fd)
	}
	if l.control, err = openControl(int(page.Fd())); err != nil {
		return nil, fds, err
	}
	l.control.until().Store(s.lentUntil(l.target))
	s.leaves[l.laneKey] = l
	return l, fds, nil
}

// lentUntil returns until when some memory may be used by leaves, on the clock of boottime, unless the memory node says so again. Of a replicated number it is when the lease ends: see
// peer.Server.Lapsed. Others go on by lanes while no coordinator is reached, so what counts is that this process runs; it ends before a lease that lasts, though.
func (s *MemoryServer) lentUntil(t target) uint64 {
	until, leased := s.peer.LeasedUntil()
	soon := peer.In(s.o.DeadAfter / 2)
	switch {
	case t != (target{}) && !leased:
		return math.MaxInt64
	case t != (target{}):
	case leased && !peer.Passed(until):
		until = min(until, soon)
	default:
		until = soon
	}
	return uint64(max(until, 0))
}

// takeBack takes leaves back: when it returns, nothing more is executed by them. It returns how often it has looked at them. Mu is held.
func (s *MemoryServer) takeBack(which func(l *leave) bool) (looks int) {
	var list []*leave
	for _, l := range s.leaves {
		if which(l) {
			l.control.revoked().Store(1)
			list = append(list, l)
		}
	}
	for looks = 1; ; looks++ { // at all of them: many that are stopped cost as much as one
		list = slices.DeleteFunc(list, func(l *leave) bool {
			over := l.over()
			if over {
				s.drop(l)
			}
			return over
		})
		if len(list) == 0 {
			return looks
		}
		time.Sleep(lookEvery)
		for _, l := range list {
			s.lookAt(l, looks)
		}
	}
}

// drop forgets a leave of which nothing is executed any more; Mu is held.
func (s *MemoryServer) drop(l *leave) {
	delete(s.leaves, l.laneKey)
	s.executedLocally.add(l.control)
	_ = l.conn.Close()
	_ = unix.Close(l.process.fd)
}

// over reports whether nothing is being executed: it is not, or there is no process.
func (l *leave) over() bool { return l.control.idle() || l.process.hasEnded() }

// lookAt ends the process of a leave that was taken back, of which a chain does not end.
func (s *MemoryServer) lookAt(l *leave, look int) {
	if l.process.pid == os.Getpid() {
		return // this process runs, so it ends the chain
	}
	if l.stopped++; !l.process.isStopped() {
		l.stopped = 0
	}
	if l.stopped != looksBeforeKill && look != max(looksBeforeKill, int(s.o.DeadAfter/lookEvery)) {
		return
	}
	err := unix.PidfdSendSignal(l.process.fd, unix.SIGKILL, nil, 0)
	if err != nil {
		err = fmt.Errorf("process %d stands still in the middle of an operation on the memory of %v, cannot be killed, and keeps all others waiting: %w", l.process.pid, l.region.id, err)
	} else {
		err = fmt.Errorf("%w: process %d stood still in the middle of an operation on the memory of %v, and was killed", fabric.ErrFenced, l.process.pid, l.region.id)
	}
	s.o.Report(err)
}

// isStopped reports whether the process is stopped, by a signal or a debugger.
func (p borrower) isStopped() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
	if err != nil || p.hasEnded() { // what was read may be of another process with its number
		return false
	}
	_, state, _ := strings.Cut(string(stat[max(0, bytes.LastIndexByte(stat, ')')):]), " ")
	return strings.HasPrefix(state, "T") || strings.HasPrefix(state, "t")
}

// hasEnded reports whether the process has ended: all of its threads.
func (p borrower) hasEnded() bool {
	fds := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1 && fds[0].Revents&unix.POLLIN != 0
}

// keepLending renews leaves as long as the process runs.
func (s *MemoryServer) keepLending() {
	t := time.NewTicker(min(s.o.Heartbeat, s.o.DeadAfter/8))
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-s.peer.Ctx.Done():
			return
		}
		s.peer.Mu.Lock()
		s.renewLeaves()
		s.peer.Mu.Unlock()
	}
}

// renewLeaves says until when the memory may be used; Mu is held.
func (s *MemoryServer) renewLeaves() {
	for _, l := range s.leaves {
		l.control.until().Store(s.lentUntil(l.target))
	}
}

// countLocal returns how many leaves there are, and what was executed by leaves so far.
func (s *MemoryServer) countLocal() (leaves int, all executed) {
	s.peer.Mu.Lock()
	defer s.peer.Mu.Unlock()
	all = s.executedLocally
	for _, l := range s.leaves {
		all.add(l.control)
	}
	return len(s.leaves), all
}
