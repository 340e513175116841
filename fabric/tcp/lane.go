package tcp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peer"
)

const (
	// ringSize is how many frames of a lane may be without answer: a power of two.
	ringSize = 1024
	// maxPending is how many bytes wait for the connection before Post waits for room.
	maxPending = 192 << 10
	// keepBuffer is the size of a buffer that is kept when it was used.
	keepBuffer = 320 << 10
)

// readFrames is how many frames a reader has room for: of those that have come in part the beginning is moved to where the next read goes on.
const readFrames = 4

// A laneState says whether a lane takes chains.
type laneState uint8

const (
	laneBroken laneState = iota // there is no connection; there will be one soon, or the lane is down
	laneUp
	laneDown  // it cannot be reached: chains are refused; it is tried again and again
	laneEnded // this epoch of the memory node has ended, or this node has
)

// A lane is a connection to some memory of a memory node, and what follows it when it breaks.
//
// Many clients share it. A client that posts a chain appends it to what is pending, and writes all that has gathered, unless
// another is writing. Its frames go on a wire: its own connection, or one for several lanes.
type lane struct {
	r     *remote
	index uint16
	tag   uint32 // of the lane, on a shared wire: no other lane of the node has it

	lead   sync.Mutex   // held while answers are taken, and while it is connected anew
	parked atomic.Int32 // clients that wait for another to read
	kick   chan struct{}
	first  chan struct{} // closed when it has been tried to connect for the first time
	tried  sync.Once

	conn     atomic.Pointer[stream] // its own; nil unless up; changed under mu
	wire     atomic.Pointer[wire]   // where its frames go; nil unless up; changed under mu
	posted   atomic.Uint32          // number of the next frame; changed under mu
	answered atomic.Uint32          // frames before it are answered; changed by the reader
	left     atomic.Int32           // chains that are under way and were left behind
	limbo    atomic.Int32           // those of them that change memory, and 1 if severed: see limbo.go
	severed  atomic.Bool            // it is down, and frames may lie in the connection of before

	mu      sync.Mutex
	state   laneState
	cause   error      // why it is not up, for clients
	why     error      // why it could not be connected
	refused int        // how often the memory node has refused it since it was up; changed by the pump
	room    *sync.Cond // when there may be room
	roomers int        // that wait for room
	split   int        // chains that are queued in part
	pending []byte     // frames that were not written
	spare   []byte     // a buffer for pending
	written uint32     // frames before it were given to the connection
	old     []*stream  // that have broken, and are to be closed: none of them is a wire's
	mark    uint32     // of its frames: the key of the memory, or on a shared wire its tag
	ring    []sent     // of frames without answer, by number
	seen    uint32     // by watch: answered
	stalled int        // by watch: how often nothing had moved
	heard   uint32     // by mute: answered
	silent  int        // by mute: how often nothing had come
	ctx     context.Context
	cancel  context.CancelFunc
}

// A sent is a frame without answer: a chain or a part of one.
type sent struct {
	chain    *chain
	at, to   cursor
	count    int
	modifies bool
	last     bool // the chain's last part
}

func newLane(r *remote, index uint16) *lane {
	l := &lane{r: r, index: index, tag: r.n.tags.Add(1), kick: make(chan struct{}, 1), first: make(chan struct{}), ring: make([]sent, ringSize)}
	l.room = sync.NewCond(&l.mu)
	l.ctx, l.cancel = context.WithCancel(r.n.Ctx)
	l.kickPump()
	return l
}

// submit posts a chain. An error of it or of the lane becomes the chain's.
func (l *lane) submit(c *chain) {
	if l.r.limbo.Load() > 0 {
		if err := l.awaitLimbo(c); err != nil {
			c.fail(cursor{}, err)
			c.complete()
			return
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	split := false // a part of it is queued, or was
	for at := (cursor{}); at.op < len(c.ops); {
		for l.full() {
			if c.limit.over.Load() {
				err := fmt.Errorf("%w: %v takes nothing more", c.limit.reason(), l.r.MN.ID)
				if !split {
					c.fail(cursor{}, err)
					c.complete()
					return
				}
				at = c.breakOff(at, err)
				break
			}
			l.waitRoom()
		}
		if l.state == laneDown || l.state == laneEnded {
			if at.op < len(c.ops) {
				c.fail(at, l.cause)
			}
			c.complete()
			break
		}
		if c.failed() {
			// While there was no room. Nothing more of it is executed; parts of it may still be on their way, and
			// it is done when an empty part behind them is.
			at = cursor{op: len(c.ops)}
		}
		if at = l.push(c, at); at.op < len(c.ops) && !split {
			split = true
			l.split++
		}
	}
	if split {
		l.split--
	}
	l.flush()
}

// full reports whether a part of a chain has to wait. Each chain that is queued in part has a place for its last part: if it is broken
// off, its client does not wait for that.
func (l *lane) full() bool {
	return int(l.posted.Load()-l.answered.Load())+l.split >= ringSize-1 || len(l.pending) >= maxPending
}

// waitRoom waits until there may be room; mu is held.
func (l *lane) waitRoom() {
	if l.flush(); !l.full() {
		return
	}
	l.roomers++
	l.parked.Add(1)
	if w := l.wire.Load(); w != nil {
		w.kickPump()
	}
	l.room.Wait()
	l.parked.Add(-1)
	l.roomers--
}

// push appends a part of a chain to what is pending, and returns where the next begins; mu is held.
func (l *lane) push(c *chain, at cursor) cursor {
	number := l.posted.Load()
	e := &l.ring[number%ringSize]
	*e = sent{chain: c, at: at}
	start := len(l.pending)
	l.pending, e.to, e.count, e.modifies = appendChain(l.pending, c.ops, at)
	e.last = e.to.op == len(c.ops)
	l.seal(start, number, e.count)
	l.posted.Store(number + 1)
	return e.to
}

// seal puts the header of a frame in pending; mu is held.
func (l *lane) seal(start int, number uint32, count int) {
	h := header{length: len(l.pending) - start, kind: frameChain, count: count, number: laneNumber(number, l.mark)}
	h.put(l.pending[start:])
}

// flush writes what is pending, unless another goroutine does or there is no connection; mu is held, and
// released while the kernel works.
func (l *lane) flush() {
	w := l.wire.Load()
	if w == nil || len(l.pending) == 0 || !w.claim(l) {
		return
	}
	l.mu.Unlock()
	w.write()
	l.mu.Lock()
}

// broke notes that its connection, or its wire, has failed; mu is held.
func (l *lane) broke(conn *stream, err error) {
	if l.conn.Load() != conn || l.state != laneUp {
		return
	}
	l.state, l.cause = laneBroken, fmt.Errorf("%w: %v: %w", ErrLost, l.r.MN.ID, err)
	l.conn.Store(nil)
	w := l.wire.Swap(nil)
	conn.end()
	if w.conn != conn {
		l.old = append(l.old, conn)
	}
	w.leave(l)
	l.kickPump()
}

func (l *lane) kickPump() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// await waits until a chain is done, and reports whether it is: it is not if the Port was interrupted or closed, and the memory node
// did not answer for a while after that. Then the chain is left behind.
func (l *lane) await(c *chain) bool {
	if c.isDone() {
		return true
	}
	if w := l.wire.Load(); w != nil && w.lead.TryLock() {
		w.reads(c)
		w.unlead()
		if c.isDone() {
			return true
		}
	}
	l.parked.Add(1)
	done := true
	if c.state.CompareAndSwap(chainUnderWay, chainParked) {
		// The reader may have left before it could see that a client is parked.
		if w := l.wire.Load(); w != nil && w.lead.TryLock() {
			w.unlead()
		}
		for waits := true; waits; {
			if !c.limit.over.Load() {
				select {
				case <-c.wake:
					waits = false
				case <-c.limit.passed:
				}
			}
			if waits && c.limit.over.Load() {
				if done = !l.leave(c); done {
					<-c.wake // it was completed meanwhile
				}
				waits = false
			}
		}
	} else if !c.isDone() {
		panic("tcp: two goroutines wait for one chain") // not as done: its results have not come
	}
	l.parked.Add(-1)
	return done
}

// finish takes the answer to a frame.
func (l *lane) finish(e *sent, h *header, body []byte) error {
	c := e.chain
	if h.count > e.count || e.count > 0 && (h.status == statusOK) != (h.count == e.count) {
		return fmt.Errorf("%w: an answer for %d operations of %d", ErrProtocol, h.count, e.count)
	}
	if err := l.takeAnswer(c, e, h, body); err != nil {
		return err
	}
	last := e.last
	*e = sent{}
	l.answered.Add(1)
	if last {
		l.complete(c)
	}
	return nil
}

// takeAnswer gives the owner of a chain its results, if it still waits: what is left behind has no memory any more.
func (l *lane) takeAnswer(c *chain, e *sent, h *header, body []byte) error {
	c.results.Lock()
	defer c.results.Unlock()
	if c.isLeft() {
		return nil
	}
	if err := takeResults(body, c.ops, e.at, e.to, h.count); err != nil {
		return err
	}
	if h.status != statusOK && !c.failed() && e.count > 0 {
		at := e.at
		if h.count > 0 {
			at = cursor{op: at.op + h.count}
		}
		c.fail(at, l.r.refused(h.status, &c.ops[at.op]))
	}
	return nil
}

// complete ends the wait for a chain.
func (l *lane) complete(c *chain) {
	if c.complete() == chainLeft {
		l.arrive(c)
	}
}

// run connects the lane, and again when it has broken.
func (l *lane) run() {
	var retry <-chan time.Time
	for {
		select {
		case <-l.kick:
		case <-retry:
		case <-l.ctx.Done():
			l.breakUp()
		}
		retry = nil
		l.lead.Lock()
		l.mu.Lock()
		state := l.state
		l.mu.Unlock()
		switch state {
		case laneBroken:
			l.recover(l.r.n.DeadAfter)
		case laneDown:
			l.recover(0)
		}
		l.mu.Lock()
		if state = l.state; state == laneDown {
			retry = time.After(peer.RedialEvery)
		}
		l.mu.Unlock()
		l.tried.Do(func() { close(l.first) })
		l.lead.Unlock()
		if state == laneEnded {
			return
		}
	}
}

// end ends the lane: when it returns, nothing more is sent but what has been given to the connection. Its goroutine ends the chains that wait.
func (l *lane) end() {
	l.cancel()
	l.breakUp()
}

func (l *lane) breakUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if conn := l.conn.Load(); conn != nil {
		l.broke(conn, errors.New("ended"))
	}
}

// recover connects a lane anew, and issues again what can be: what the memory node has not executed, and
// what only reads. If there is no connection within some time, the chains that wait fail. lead is held.
func (l *lane) recover(within time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range l.old {
		conn.close()
	}
	l.old = nil
	first := l.posted.Load()
	for begun := time.Now(); ; {
		if l.ctx.Err() != nil {
			l.fall(l.r.Refusal(), l.judge(), laneEnded)
			return
		}
		l.mu.Unlock()
		conn, r, err := l.r.dial(l.ctx, l.index, first)
		var w *wire
		if err == nil {
			w = l.ride(conn, &r)
		}
		l.mu.Lock()
		switch {
		case err == nil && l.ctx.Err() == nil:
			l.resume(conn, w, &r, first)
			return
		case err == nil: // ended meanwhile: nothing may be sent over it
			w.leave(l)
			if w.conn != conn {
				conn.close()
			}
			l.fall(l.r.Refusal(), &refusal{reply: r}, laneEnded)
			return
		}
		var no *refusal
		errors.As(err, &no)
		if l.ctx.Err() != nil {
			continue
		}
		refused := errors.Is(err, syscall.ECONNREFUSED)
		if refused = refused && !l.refusedOnce(); final(err) || refused || time.Since(begun) >= within {
			if l.why == nil || l.why.Error() != err.Error() {
				l.r.failed(err) // reported once
			}
			l.why = err
			l.fall(l.r.unreachable(err), no, laneDown)
			return
		}
		l.mu.Unlock()
		if l.refused > 0 {
			peer.Pause(l.ctx, suspectAfter)
		} else {
			peer.Pause(l.ctx, peer.RedialEvery)
		}
		l.mu.Lock()
	}
}

// ride puts the lane, which has been let in over a connection of its own, on the wire that it shares with others, or else on that connection.
func (l *lane) ride(conn *stream, r *reply) *wire {
	if l.r.Term != 0 && r.caps&capShared != 0 {
		if w := l.r.trunks[l.index].join(l); w != nil {
			return w
		}
	}
	w := l.r.n.newWire(conn, false)
	w.join(l)
	return w
}

// suspectAfter is how long a lane waits, after a memory node has refused it, before it tries again and then takes the memory node for one that has ended.
const suspectAfter = 5 * time.Millisecond

// refusedOnce notes that the memory node has refused a connection: no process listens there. It reports whether to try again soon: one that has a copy of what it serves is
// not waited for any longer than that. mu is held.
func (l *lane) refusedOnce() bool {
	if l.r.Term == 0 {
		return false
	}
	if l.refused++; l.refused == 1 {
		return true
	}
	l.r.Suspect()
	return false
}

// executed reports whether a frame may have been executed: it was given to a connection, and the memory node says so,
// if it says anything.
func (l *lane) executed(number uint32, r *reply) bool {
	if int32(number-l.written) >= 0 {
		return false
	}
	return r == nil || !r.known || int32(number-uint32(r.number)) < 0
}

// failUnknown fails the chains without answer of which a frame may have been executed that changes memory, before any frame of
// such a chain is sent again or refused. They fail where the first of their frames without answer begins: what it
// reads was not read, and cannot be read again as of before the change. mu and lead are held.
func (l *lane) failUnknown(r *reply, why error) {
	for n := l.answered.Load(); n != l.posted.Load(); n++ {
		e := &l.ring[n%ringSize]
		if !e.modifies || !l.executed(n, r) {
			continue
		}
		if r == nil || !r.known {
			l.sever() // before a client learns that the outcome is unknown
		}
		if !e.chain.failed() && !e.chain.isLeft() && !l.stands(e.chain, r) {
			e.chain.fail(l.firstOf(n).at, fmt.Errorf("%w: %w", fabric.ErrUnknownOutcome, why))
		}
	}
}

// firstOf returns the first frame without answer of the chain of frame n.
func (l *lane) firstOf(n uint32) *sent {
	e := &l.ring[n%ringSize]
	if e.at == (cursor{}) {
		return e
	}
	for i := l.answered.Load(); ; i++ {
		if first := &l.ring[i%ringSize]; first.chain == e.chain {
			return first
		}
	}
}

// resume goes on over a new connection on which the next frame has a number; mu and lead are held.
func (l *lane) resume(conn *stream, w *wire, r *reply, first uint32) {
	l.failUnknown(r, l.cause)
	var keep []sent
	for n := l.answered.Load(); n != l.posted.Load(); n++ {
		e := l.ring[n%ringSize]
		l.ring[n%ringSize] = sent{}
		if !e.chain.failed() && !e.chain.isLeft() && !(l.executed(n, r) && l.stands(e.chain, r)) {
			keep = append(keep, e)
		} else if e.last {
			l.complete(e.chain)
		}
	}
	l.cut()
	if l.mark = r.key; w.shared {
		l.mark = l.tag
	}
	l.pending = l.pending[:0]
	l.answered.Store(first)
	for i, e := range keep {
		number := first + uint32(i)
		start := len(l.pending)
		l.pending, _, _, _ = appendChain(l.pending, e.chain.ops, e.at)
		l.seal(start, number, e.count)
		l.ring[number%ringSize] = e
	}
	l.posted.Store(first + uint32(len(keep)))
	l.written = first
	l.state, l.cause, l.why, l.stalled, l.refused = laneUp, nil, nil, 0, 0
	l.conn.Store(conn)
	l.wire.Store(w)
	l.room.Broadcast()
	if w.over.Load() { // it has failed before it could break this lane
		l.broke(conn, ErrLost)
		return
	}
	w.kickPump() // clients may be parked
	l.flush()
	l.r.short.ask(l.r, r.key)
}

// fall refuses all that waits; mu and lead are held. no is the refusal of the memory node, if there is one.
func (l *lane) fall(why error, no *refusal, state laneState) {
	var r *reply
	if no != nil {
		r = &no.reply
	}
	l.failUnknown(r, why)
	for n := l.answered.Load(); n != l.posted.Load(); n++ {
		e := l.ring[n%ringSize]
		l.ring[n%ringSize] = sent{}
		if !e.chain.isLeft() && !(l.executed(n, r) && l.stands(e.chain, r)) {
			e.chain.fail(e.at, why)
		}
		if e.last {
			l.complete(e.chain)
		}
	}
	if r != nil && r.known {
		l.cut()
	}
	l.answered.Store(l.posted.Load())
	l.pending = nil
	l.state, l.cause = state, why
	l.room.Broadcast()
}

// watch is called now and then: it gives the connection up when an answer is due and none has come limit times.
func (l *lane) watch(limit int) {
	if w := l.wire.Load(); w != nil && l.stalls(limit) {
		w.fail(errors.New("no answer"))
	}
}

func (l *lane) stalls(limit int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	answered := l.answered.Load()
	if l.wire.Load() == nil || answered == l.posted.Load() || answered != l.seen {
		l.seen, l.stalled = answered, 0
		return false
	}
	if l.stalled++; l.stalled < limit {
		return false
	}
	l.stalled = 0
	return true
}

// mute reports whether an answer is due, and none had come when it was called so often before: whether there is a connection or not.
func (l *lane) mute(times int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	answered := l.answered.Load()
	if answered == l.posted.Load() || answered != l.heard {
		l.heard, l.silent = answered, 0
		return false
	}
	l.silent++
	return l.silent >= times
}
