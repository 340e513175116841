//go:build linux

package tcp

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/declock/declock/fabric"
	"golang.org/x/sys/unix"
)

const (
	// fullAnswers is when answers that have gathered are sent before more is executed.
	fullAnswers = 64 << 10
	// readsPerTurn bounds how often one connection is read before others have their turn.
	readsPerTurn = 16
)

// A laneConn is a connection of a lane, on the memory node. Its worker reads, executes and answers. Whoever cuts it
// marks it and takes exec: then no frame of it executes any more.
type laneConn struct {
	s    *MemoryServer
	lane *served

	exec   sync.Mutex // held while frames are executed
	isCut  atomic.Bool
	expect uint32 // number of the next frame

	// What follows is its worker's, once there is a stream.

	worker  *worker
	id      int32
	stream  atomic.Pointer[stream]
	in      [maxFrame]byte
	have    int // bytes of in that hold frames
	out     []byte
	waiting bool // for room, not for frames
	again   bool // it is in the worker's again

	sent atomic.Uint64 // writes of answers so far

	// What follows is watch's.

	seen     uint64 // sent
	seenLeft int    // bytes in the backlog
	stalled  int    // how often nothing had moved
}

func newLaneConn(s *MemoryServer, l *served, expect uint32) *laneConn {
	return &laneConn{s: s, lane: l, expect: expect}
}

// cut shuts the connection out: when it returns, nothing more of it is executed. It waits for the frame that is
// being executed, and not for those behind it.
func (c *laneConn) cut() {
	c.isCut.Store(true)
	c.exec.Lock()
	st := c.stream.Load()
	c.exec.Unlock()
	if st != nil {
		st.end()
	}
}

// stalls is called now and then; it cuts the connection when nothing of its answers has been taken limit times.
func (c *laneConn) stalls(limit int) {
	st := c.stream.Load()
	if st == nil {
		return
	}
	left, sent := st.backlogged(), c.sent.Load()
	if left == 0 || left != c.seenLeft || sent != c.seen {
		c.seenLeft, c.seen, c.stalled = left, sent, 0
		return
	}
	if c.stalled++; c.stalled >= limit {
		c.cut()
	}
}

// A worker executes the operations of some connections.
type worker struct {
	s       *MemoryServer
	poller  *poller
	stopped atomic.Bool
	events  [64]unix.EpollEvent
	stats   workerStats

	mu    sync.Mutex
	conns map[int32]*laneConn
	last  int32
	fresh []*laneConn // that have not been looked at
	again []*laneConn // that have more, and were sent to the back; the worker's own
}

func newWorker(s *MemoryServer) (*worker, error) {
	p, err := newPoller()
	if err != nil {
		return nil, fmt.Errorf("tcp: %w", err)
	}
	return &worker{s: s, poller: p, conns: map[int32]*laneConn{}}, nil
}

// take gives the worker a connection.
func (w *worker) take(c *laneConn, st *stream) {
	c.worker = w
	c.stream.Store(st)
	w.mu.Lock()
	w.last++
	c.id = w.last
	w.conns[c.id] = c
	w.fresh = append(w.fresh, c)
	w.mu.Unlock()
	w.poller.wake()
}

func (w *worker) run() {
	w.poller.run(func() fabric.Time { return fabric.Time(time.Since(w.s.begun)) }, w.work)
	for _, c := range w.conns {
		w.drop(c, nil)
	}
}

func (w *worker) stop() {
	w.stopped.Store(true)
	w.poller.wake()
}

// close gives the poller back when the worker has ended, and what came too late.
func (w *worker) close() {
	for _, c := range w.conns {
		w.drop(c, nil)
	}
	w.poller.close()
}

// work serves the connections that have something.
func (w *worker) work() (n int, ok bool) {
	n = w.poller.ready(w.events[:])
	for i := range w.events[:n] {
		id := w.events[i].Fd
		if id == signalID {
			w.poller.calm()
			w.begin()
			continue
		}
		w.mu.Lock()
		c := w.conns[id]
		w.mu.Unlock()
		if c != nil {
			w.serve(c)
		}
	}
	if again := w.again; len(again) > 0 {
		w.again = nil
		for _, c := range again {
			if c.again = false; c.stream.Load() != nil {
				w.serve(c)
			}
		}
		if len(w.again) > 0 {
			w.poller.wake()
		}
	}
	return n, !w.stopped.Load()
}

// begin looks at new connections.
func (w *worker) begin() {
	w.mu.Lock()
	fresh := w.fresh
	w.fresh = nil
	w.mu.Unlock()
	for _, c := range fresh {
		if err := w.poller.add(c.stream.Load().fd, c.id, forInput); err != nil {
			w.drop(c, err)
			continue
		}
		w.serve(c) // TLS may have read more than the hello
	}
}

// serve reads, executes and answers, until there is nothing more.
func (w *worker) serve(c *laneConn) {
	more, err := c.turn(&w.stats)
	if err != nil {
		w.drop(c, err)
		if errors.Is(err, ErrTruncated) {
			w.s.life.Quit(err)
		}
		return
	}
	if more && !c.again {
		c.again = true
		w.again = append(w.again, c)
		w.poller.wake()
	}
	st := c.stream.Load()
	if waiting := st.backlogged() > 0; waiting != c.waiting {
		c.waiting = waiting
		events := uint32(forInput)
		if waiting {
			events = forRoom // nothing is read from who does not take his answers
		}
		if err := w.poller.change(st.fd, c.id, events); err != nil {
			w.drop(c, err)
		}
	}
}

// drop ends a connection.
func (w *worker) drop(c *laneConn, why error) {
	st := c.stream.Load()
	if st == nil {
		return
	}
	if errors.Is(why, ErrProtocol) {
		w.s.o.Report(fmt.Errorf("connection from %v: %w", st.remote, why))
	}
	c.cut()
	w.mu.Lock()
	delete(w.conns, c.id)
	w.mu.Unlock()
	w.poller.remove(st.fd)
	c.stream.Store(nil)
	st.close()
	w.s.left(c)
}

// turn serves a connection for a while, and tells whether there may be more.
func (c *laneConn) turn(n *workerStats) (more bool, err error) {
	st := c.stream.Load()
	if left, err := st.flush(); left > 0 || err != nil {
		return false, err
	}
	drained := false
	for range readsPerTurn {
		full, err := c.execute(n)
		if err != nil {
			return false, err
		}
		if len(c.out) > 0 {
			c.sent.Add(1)
			err := st.write(c.out)
			if c.out = c.out[:0]; cap(c.out) > 2*(fullAnswers+maxFrame) {
				c.out = nil
			}
			if err != nil || st.backlogged() > 0 {
				return false, err
			}
		}
		if full {
			continue
		}
		if drained {
			return false, nil
		}
		k, err := st.read(c.in[c.have:])
		if err != nil {
			if isAgain(err) {
				return false, nil
			}
			return false, err
		}
		c.have += k
		// A read that was not filled has taken all that there was; TLS may hold more back.
		drained = c.have < len(c.in) && st.tls == nil
	}
	return true, nil
}

// execute executes the whole frames that have come. It tells whether there are more, for the answers of which there was no room.
func (c *laneConn) execute(n *workerStats) (full bool, err error) {
	if c.have < headerSize {
		return false, nil
	}
	c.exec.Lock()
	defer c.exec.Unlock()
	at := 0
	var h header
	frames := uint64(0)
	for !c.isCut.Load() {
		ok, err := h.parse(c.in[at:c.have])
		if err != nil {
			return false, err
		}
		if !ok {
			break
		}
		if full = len(c.out) >= fullAnswers; full {
			break
		}
		if h.kind != frameChain || h.count > fabric.MaxChain || uint32(h.number) != c.expect {
			return false, fmt.Errorf("%w: %v frame %d of %d operations where %d is due", ErrProtocol, h.kind, uint32(h.number), h.count, c.expect)
		}
		if c.out, err = c.s.nic.execute(&h, c.in[at+headerSize:at+h.length], c.out, &n.pending); err != nil {
			return false, err
		}
		c.expect++
		c.lane.executed = c.expect
		at += h.length
		frames++
	}
	if c.isCut.Load() {
		return false, fmt.Errorf("%w: cut", fabric.ErrFenced)
	}
	if c.s.mem.isLost() { // none of these answers is sent: clients hear that the outcome is unknown
		return false, c.s.mem.damage()
	}
	c.have = copy(c.in[:], c.in[at:c.have])
	n.publish(frames)
	return full, nil
}

// workerStats are counters of a worker: pending is its own, the rest anybody may read.
type workerStats struct {
	pending counts
	frames  atomic.Uint64
	batches atomic.Uint64
	ops     [fabric.OpMaskedFAA16 + 1]atomic.Uint64
	read    atomic.Uint64
	written atomic.Uint64
}

// publish makes known what has gathered.
func (n *workerStats) publish(frames uint64) {
	if frames == 0 {
		return
	}
	n.frames.Add(frames)
	n.batches.Add(1)
	for i, k := range n.pending.ops {
		if k > 0 {
			n.ops[i].Add(k)
		}
	}
	n.read.Add(n.pending.bytesRead)
	n.written.Add(n.pending.bytesWritten)
	n.pending = counts{}
}

// Stats returns the counters of the memory node.
func (s *MemoryServer) Stats() ServerStats {
	t := ServerStats{Ops: map[fabric.OpKind]uint64{}}
	for _, w := range s.workers {
		n := &w.stats
		t.Frames += n.frames.Load()
		t.Batches += n.batches.Load()
		t.ReadBytes += n.read.Load()
		t.WriteBytes += n.written.Load()
		for i := range n.ops {
			if k := n.ops[i].Load(); k > 0 {
				t.Ops[fabric.OpKind(i)] += k
			}
		}
		w.mu.Lock()
		t.Connections += len(w.conns)
		w.mu.Unlock()
	}
	return t
}
