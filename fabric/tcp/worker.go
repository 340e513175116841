package tcp

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

const (
	// fullAnswers is when answers that have gathered are sent before more is executed.
	fullAnswers = 64 << 10
	// readsPerTurn bounds how often one connection is read before others have their turn.
	readsPerTurn = 16
)

// A laneConn is a connection of a lane, on the memory node. Its worker reads, executes and answers. cut
// marks it, takes exec and takes it away from its lane: then no frame of it executes any more.
type laneConn struct {
	watched
	s      *MemoryServer
	lane   *served
	region *region // nil: it is for frames of several lanes
	tag    uint32  // of the lane, on a shared connection; 0: it has none
	key    uint32  // of the memory, when the lane was let in

	exec   sync.Mutex // held while frames are executed
	ends   atomic.Bool
	expect uint32 // number of the next frame

	// What follows is its worker's, once there is a stream.

	worker  *worker
	stream  atomic.Pointer[stream]
	in      [readFrames * maxFrame]byte
	have    int // bytes of in that hold frames
	out     []byte
	waiting bool        // for room, not for frames
	riders  []*laneConn // whose frames have come here
	missed  []error     // frames that were missing; to be reported when exec is free

	sent atomic.Uint64 // writes of answers so far

	// What follows is watch's.

	seen     uint64 // sent
	seenLeft int    // bytes in the backlog
	stalled  int    // how often nothing had moved
}

// newLaneConn gives a lane another connection: one at a time, and nothing of an old one is executed behind a new one's. Mu of the memory node is held.
func newLaneConn(s *MemoryServer, r *region, l *served, expect uint32) *laneConn {
	l.cut()
	c := &laneConn{s: s, region: r, lane: l, expect: expect}
	c.pollable = c
	l.conn.Store(c)
	return c
}

// isCut reports whether nothing more may be executed.
func (c *laneConn) isCut() bool { return c.ends.Load() || c.lane.conn.Load() != c }

// rider returns by what frames of the lane are found that come on a shared connection.
func (c *laneConn) rider() riderKey { return riderKey{c.lane.incarnation, c.lane.index, c.tag} }

// cut shuts the connection out: when it returns, nothing more of it is executed. It waits for the frame that is
// being executed, and not for those behind it.
func (c *laneConn) cut() {
	c.ends.Store(true)
	c.s.riders.CompareAndDelete(c.rider(), c)
	c.exec.Lock()
	c.lane.conn.CompareAndSwap(c, nil) // not before: others that cut the lane meanwhile have to wait, too
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
	s      *MemoryServer
	poller *poller
	stats  workerStats
}

func newWorker(s *MemoryServer) (*worker, error) {
	p, err := newPoller()
	if err != nil {
		return nil, err
	}
	p.spinner.alone = true
	return &worker{s: s, poller: p}, nil
}

// take gives the worker a connection.
func (w *worker) take(c *laneConn, st *stream) {
	c.worker, c.fd = w, st.fd
	c.stream.Store(st)
	var err error
	if c.isCut() { // before there was a stream to end
		err = fabric.ErrFenced
	} else {
		err = w.poller.add(&c.watched)
	}
	if err != nil {
		c.drop(err)
		return
	}
	w.poller.sendBack(&c.watched) // TLS may have read more than the hello
}

func (w *worker) run() {
	w.poller.run(func() fabric.Time { return fabric.Time(time.Since(w.s.begun)) }, w.poller.parkAlone, w.poller.serve)
	for _, c := range w.poller.all() {
		c.drop(nil)
	}
}

// serve reads, executes and answers, until there is nothing more.
func (c *laneConn) serve(uint32) {
	w := c.worker
	more, err := c.turn(&w.stats)
	if err != nil {
		c.drop(err)
		if errors.Is(err, ErrTruncated) {
			w.s.peer.Quit(err)
		}
		return
	}
	if more {
		w.poller.sendBack(&c.watched)
	}
	if waiting := c.stream.Load().backlogged() > 0; waiting != c.waiting {
		c.waiting = waiting
		events := uint32(forInput)
		if waiting {
			events = forRoom // nothing is read from a node that does not take its answers
		}
		if err := w.poller.change(&c.watched, events); err != nil {
			c.drop(err)
		}
	}
}

// drop ends a connection.
func (c *laneConn) drop(why error) {
	w, st := c.worker, c.stream.Load()
	if st == nil {
		return
	}
	if errors.Is(why, ErrProtocol) {
		w.s.o.Report(fmt.Errorf("connection from %v: %w", st.remote, why))
	}
	c.cut()
	w.poller.remove(&c.watched)
	c.stream.Store(nil)
	st.close()
}

// turn serves a connection for a while, and reports whether there may be more.
func (c *laneConn) turn(n *workerStats) (more bool, err error) {
	st := c.stream.Load()
	if left, err := st.flush(); left > 0 || err != nil {
		return false, err
	}
	drained := false
	for range readsPerTurn {
		full, err := c.execute(n)
		for _, missed := range c.missed {
			c.s.o.Report(missed)
		}
		c.missed = nil
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

// execute executes the whole frames that have come. It reports whether there are more, for whose answers there was no room.
func (c *laneConn) execute(n *workerStats) (full bool, err error) {
	if c.have < headerSize {
		return false, nil
	}
	c.exec.Lock()
	defer c.exec.Unlock()
	if c.region == nil {
		return c.executeShared(n)
	}
	if c.lane.target.epoch != 0 {
		if err := c.s.peer.Lapsed(); err != nil {
			return false, err
		}
	}
	at := 0
	var h header
	frames := uint64(0)
	for !c.isCut() {
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
			return false, fmt.Errorf("%w: frame %d, of kind %d, with %d operations, where %d is due", ErrProtocol, uint32(h.number), h.kind, h.count, c.expect)
		}
		if c.out, err = c.region.nic.execute(&h, c.in[at+headerSize:at+h.length], c.out, &n.pending); err != nil {
			return false, err
		}
		c.expect++
		c.lane.executed = c.expect
		at += h.length
		frames++
	}
	if c.isCut() {
		return false, fmt.Errorf("%w: cut", fabric.ErrFenced)
	}
	if c.region.mem.isLost() { // none of these answers is sent: clients hear that the outcome is unknown
		return false, c.region.mem.damage()
	}
	c.have = copy(c.in[:], c.in[at:c.have])
	n.publish(frames)
	return full, nil
}

// workerStats are counters of a worker: pending is its own, the rest any goroutine may read.
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
func (s *MemoryServer) Stats() member.Counters {
	t := member.Counters{Ops: map[fabric.OpKind]uint64{}}
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
		t.Connections += int(w.poller.count.Load())
	}
	var by executed
	t.Local, by = s.countLocal()
	t.ByCPU = by.counters()
	return t
}
