package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/mapped"
	"github.com/declock/declock/fabric/internal/peer"
	"github.com/declock/declock/fabric/internal/ram"
	"golang.org/x/sys/unix"
)

// A local is the memory of a memory node of this machine, as a compute node reaches it by its own CPU (lend.go).
//
// It is another way to the same memory, beside the lanes. A chain goes one way or the other, as a whole, and what is executed here is done when it is posted.
// So chains of a Port keep their order if none goes this way while one of the Port is under way on a lane; and none goes this way while anything is in limbo there.
// Whenever the memory node has taken the leave back, or has ended, or has not said for some time that its memory may be used, chains go by the lanes, which know why.
type local struct {
	r       *remote
	control *control
	conn    *net.UnixConn // it breaks when the leave ends
	base    unsafe.Pointer
	guard   *mapped.Range // a machine without memory must not end the process
	over    atomic.Bool
}

// A shortcut is how a remote gets its local.
type shortcut struct {
	local  atomic.Pointer[local]
	asks   atomic.Bool   // a goroutine asks for it, or watches over it
	asked  atomic.Bool   // it was asked for
	first  chan struct{} // closed when it is known whether there is one, for the first time
	settle sync.Once

	mu      sync.Mutex // held while local changes
	failure error      // why there is none
}

// pollEvery is how many chains of a Port are executed here until it delivers the messages that have come: clients that wait for answers of lanes do so on the way.
const pollEvery = 32

// maxLocal is how many bytes a chain moves at most that is executed here: it is short, so that it is rarely in its middle that a goroutine loses its processor, and a memory node
// that takes a leave back does not wait.
const maxLocal = 64 << 10

// direct executes a chain by this CPU, if that is allowed, and reports whether it did.
func (p *port) direct(c *chain, r *remote) bool {
	l := r.short.local.Load()
	if l != nil && p.HasWoken() {
		runtime.Gosched() // the woken client goes first
	}
	if l == nil || r.limbo.Load() > 0 || p.isOnLane(r) || !l.execute(c, 1+p.Lane%controlSlots, p.tally) {
		return false
	}
	if p.executed++; p.executed%pollEvery == 0 && p.n.mail.poll() > 0 {
		runtime.Gosched() // the woken clients go first
	}
	return true
}

// isOnLane reports whether a chain of the Port is under way to a memory node.
func (p *port) isOnLane(r *remote) bool {
	for _, c := range p.chains {
		if c != nil && c.lane != nil && c.lane.r == r && !c.isDone() {
			return true
		}
	}
	return false
}

// execute executes a chain and notes its outcome. It reports false if nothing may be executed here.
func (l *local) execute(c *chain, slot, tally int) bool {
	if !l.control.begin(slot, &l.over) {
		return false
	}
	if now := peer.Near(); l.lapsed(now) || l.r.LeasedAt(now) != nil { // one look at the clock, for it costs as much as a short chain
		l.control.end(slot)
		return false
	}
	ops, size := c.ops, l.r.MN.Size
	if len(ops) >= ram.LongChain {
		ram.Touch(ops, l.base, size)
	}
	n := 0
	for ; n < len(ops) && ram.Fits(&ops[n], size); n++ {
		ram.Perform(&ops[n], unsafe.Add(l.base, ops[n].Addr.Offset()))
	}
	l.control.count(tally, ops[:n])
	l.control.end(slot)
	l.conclude(c, n)
	return true
}

// lapsed reports whether another memory node may serve the number by now, as far as this one has said.
func (l *local) lapsed(now time.Duration) bool { return now >= time.Duration(l.control.until().Load()) }

// conclude notes the outcome of a chain of which n operations were executed.
func (l *local) conclude(c *chain, n int) {
	if n < len(c.ops) {
		c.refusal, c.refused = l.r.refused(statusOutOfBounds, &c.ops[n]), n
	}
	now := peer.Near() // it may have stood still
	c.lease = l.r.LeasedAt(now)
	if l.lapsed(now) {
		c.refusal, c.refused = fmt.Errorf("%w: %v may be served by another memory node", fabric.ErrUnknownOutcome, l.r.MN.ID), 0
	}
	if l.guard.Lost() {
		c.refusal, c.refused = fmt.Errorf("%w: this machine has no memory for that of %v", fabric.ErrUnknownOutcome, l.r.MN.ID), 0
		l.r.short.lose(l)
	}
}

// end ends the use: when it returns, nothing more is executed here.
func (l *local) end() {
	l.over.Store(true)
	for !l.control.idle() {
		time.Sleep(20 * time.Microsecond) // it is Ports of this process, which runs
	}
	l.guard.Release()
	_ = unix.MunmapPtr(l.base, uintptr(wholePages(l.r.MN.Size)))
	_ = l.conn.Close()
}

// take begins to use a local, unless the remote is used no more.
func (s *shortcut) take(l *local) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !l.r.Up.Load() {
		l.end()
		return false
	}
	l.r.n.locals.begin(l)
	s.local.Store(l)
	return true
}

// lose ends the use of a local; nil is any. When it returns, nothing more is executed there.
func (s *shortcut) lose(l *local) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.local.Load(); now != nil && (l == nil || l == now) {
		s.local.Store(nil)
		s.failure = errLeaveEnded
		now.end()
		now.r.n.locals.end(now)
	}
}

// ask asks for a local, when a lane was let in: the memory has a key.
func (s *shortcut) ask(r *remote, key uint32) {
	if !r.n.o.Local || s.asks.Swap(true) {
		return
	}
	s.asked.Store(true)
	r.n.Go(func() {
		defer s.asks.Store(false)
		l, err := r.borrow(key)
		taken := err == nil && s.take(l)
		if err != nil {
			s.mu.Lock()
			s.failure = err
			s.mu.Unlock()
		}
		s.settle.Do(func() { close(s.first) })
		switch {
		case err == nil, errors.Is(err, errNotLent):
		case r.lanes[0].ctx.Err() == nil:
			r.n.Report(fmt.Errorf("memory node %v is reached by its network: %w", r.MN.ID, err))
		}
		if taken {
			var b [1]byte
			_, _ = l.conn.Read(b[:])
			s.lose(l)
		}
	})
}

// await waits until it is known whether there is a local, if it was asked for.
func (s *shortcut) await(ctx context.Context) {
	if !s.asked.Load() {
		return
	}
	select {
	case <-s.first:
	case <-ctx.Done():
	}
}

// borrow asks a memory node of this machine for its memory.
func (r *remote) borrow(key uint32) (*local, error) {
	conn, err := net.DialUnix("unixpacket", nil, leaveSocket(r.MN.Addr))
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT) {
		err = fmt.Errorf("%w: %w", errNotLent, err)
	}
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(r.lanes[0].ctx, func() { _ = conn.Close() })
	defer stop()
	_ = conn.SetDeadline(time.Now().Add(min(handshakeTimeout, r.n.DeadAfter)))
	l := &local{r: r, conn: conn}
	fds, err := l.shake(key)
	if err == nil {
		err = l.open(fds)
	}
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
	if err == nil && !stop() {
		l.end()
		err = ErrLost
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	_ = conn.SetDeadline(time.Time{})
	return l, nil
}

// shake says hello. It returns descriptors of the memory and of the page of control, or of what else has come.
func (l *local) shake(key uint32) (fds []int, err error) {
	if _, err := credentials(l.conn); err != nil {
		return nil, err
	}
	var first [1]byte
	if _, err := l.conn.Read(first[:]); err != nil {
		return nil, peer.Broken("shaking hands", err)
	}
	h := l.r.hello(roleLocal, 0, key)
	h.min, h.max = versionMin, versionMax
	b := h.encode()
	if _, err := l.conn.Write(b[:]); err != nil {
		return nil, peer.Broken("shaking hands", err)
	}
	var answer [replySize + maxText]byte
	var rights [64]byte
	n, k, _, _, err := l.conn.ReadMsgUnix(answer[:], rights[:])
	if err != nil {
		return nil, peer.Broken("shaking hands", err)
	}
	list, _ := unix.ParseSocketControlMessage(rights[:k])
	for i := range list {
		more, _ := unix.ParseUnixRights(&list[i])
		fds = append(fds, more...)
	}
	var a reply
	text, err := a.decode((*[replySize]byte)(answer[:]))
	switch {
	case err != nil:
	case text > max(0, n-replySize):
		err = fmt.Errorf("%w: a text of %d bytes in an answer of %d", ErrProtocol, text, n)
	case a.code != codeOK:
		a.text = string(answer[replySize:][:text])
		cause, ok := codes[a.code]
		if !ok {
			cause = ErrProtocol
		}
		err = &refusal{cause, a}
	case len(fds) != 2 || a.size != l.r.MN.Size || a.epoch != l.r.MN.Epoch || a.key != key:
		err = fmt.Errorf("%w: %d descriptors, %d bytes, epoch %d", ErrProtocol, len(fds), a.size, a.epoch)
	}
	return fds, err
}

// open maps what has come.
func (l *local) open(fds []int) (err error) {
	size := l.r.MN.Size
	if err := errors.Join(checkShared(fds[0], size), checkShared(fds[1], controlSize)); err != nil {
		return err
	}
	if l.control, err = openControl(fds[1]); err != nil {
		return err
	}
	if l.base, err = mapShared(fds[0], size); err != nil {
		return err
	}
	l.guard = mapped.Guard(l.base, uintptr(wholePages(size)))
	return nil
}
