package tcp

import (
	"context"
	"errors"
	"fmt"
	"runtime"
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

// A lane is a connection to a memory node, and what follows it when it breaks.
//
// Many clients share it. A client that posts a chain appends it to what is pending, and writes all that has gathered, unless
// another is writing. A client that waits for an answer reads, unless another is
// reading: it spins for a while, then it parks, and it takes the answers of others along. While another reads, a client
// is parked until its answer has come. When a reader leaves and others still wait, the pump, a
// goroutine of the lane, reads for them.
type lane struct {
	r     *remote
	index uint16

	lead    sync.Mutex // held by the reader
	in      []byte     // of the reader: bytes that have come
	have    int
	spinner spinner      // of the reader
	parked  atomic.Int32 // clients that wait for another to read
	kick    chan struct{}
	first   chan struct{} // closed when it has been tried to connect for the first time
	tried   sync.Once

	conn     atomic.Pointer[stream] // nil unless up; changed under mu
	posted   atomic.Uint32          // number of the next frame; changed under mu
	answered atomic.Uint32          // frames before it are answered; changed by the reader
	batch    atomic.Uint32          // answers that the last read brought
	left     atomic.Int32           // chains that are under way and were left behind
	limbo    atomic.Int32           // those of them that change memory, and 1 if severed: see limbo.go
	severed  atomic.Bool            // it is down, and frames may lie in the connection of before

	mu      sync.Mutex
	state   laneState
	cause   error      // why it is not up, for clients
	why     error      // why it could not be connected
	refused int        // how often the memory node has refused it since it was up; changed by the pump
	room    *sync.Cond // when there may be room, or nothing is being written
	roomers int        // that wait for room
	split   int        // chains that are queued in part
	pending []byte     // frames that were not written
	spare   []byte     // a buffer for pending
	written uint32     // frames before it were given to the connection
	writing bool       // a goroutine writes
	old     []*stream  // that have broken, and are to be closed
	key     uint32     // of the memory
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
	l := &lane{r: r, index: index, kick: make(chan struct{}, 1), first: make(chan struct{}), ring: make([]sent, ringSize), in: make([]byte, readFrames*maxFrame)}
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
	l.kickPump()
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
	h := header{length: len(l.pending) - start, kind: frameChain, count: count, number: laneNumber(number, l.key)}
	h.put(l.pending[start:])
}

// flush writes what is pending, unless another goroutine does or there is no connection; mu is held, and
// released while the kernel works.
func (l *lane) flush() {
	if l.writing || l.state != laneUp || len(l.pending) == 0 {
		return
	}
	l.writing = true
	wrote := false
	if l.batch.Load() > 1 || l.posted.Load()-l.answered.Load() > 1 {
		// Others are at work: what they are about to post can go along.
		l.mu.Unlock()
		runtime.Gosched()
		l.mu.Lock()
	}
	for len(l.pending) > 0 && l.state == laneUp {
		conn := l.conn.Load()
		if conn.backlogged() > 0 {
			l.kickPump() // the reader goes on when there is room
			break
		}
		out := l.pending
		l.pending, l.spare = l.spare[:0], nil
		l.written = l.posted.Load()
		l.mu.Unlock()
		err := conn.write(out)
		l.mu.Lock()
		wrote = true
		if cap(out) <= keepBuffer {
			l.spare = out[:0]
		}
		if err != nil {
			l.broke(conn, err)
		}
	}
	l.writing = false
	// Clients that wait for room call flush, too: they must not wake each other for nothing.
	if l.roomers > 0 && wrote || l.state != laneUp {
		l.room.Broadcast()
	}
}

// broke notes that a connection has failed; mu is held.
func (l *lane) broke(conn *stream, err error) {
	if l.conn.Load() != conn || l.state != laneUp {
		return
	}
	l.state, l.cause = laneBroken, fmt.Errorf("%w: %v: %w", ErrLost, l.r.MN.ID, err)
	l.conn.Store(nil)
	conn.end()
	l.old = append(l.old, conn)
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
	if l.lead.TryLock() {
		l.reads(c)
		l.unlead()
		if c.isDone() {
			return true
		}
	}
	l.parked.Add(1)
	done := true
	if c.state.CompareAndSwap(chainUnderWay, chainParked) {
		// The reader may have left before it could see that a client is parked.
		if l.lead.TryLock() {
			l.unlead()
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

// unlead ends reading, and has the pump read if clients still wait.
func (l *lane) unlead() {
	l.lead.Unlock()
	if l.parked.Load() > 0 || l.left.Load() > 0 {
		l.kickPump()
	}
}

// needed reports whether a reader has to go on: until its own chain is done, or, if it is the pump, as long
// as clients are parked or bytes wait for room.
func (l *lane) needed(c *chain, conn *stream) bool {
	if c != nil {
		return !c.isDone() && !c.limit.over.Load()
	}
	return l.parked.Load() > 0 || l.left.Load() > 0 || conn.backlogged() > 0
}

// reads reads answers, until it is not needed any more or there is no connection; lead is held.
func (l *lane) reads(c *chain) {
	now := l.r.n.Now
	for look := true; ; {
		conn := l.conn.Load()
		if conn == nil || !l.needed(c, conn) {
			return
		}
		// What TLS has taken from the socket and not handed out yet wakes nobody.
		if t := now(); !(look && conn.tls != nil) && !l.spinner.again(t) {
			if !l.park(conn) {
				return
			}
			l.spinner.parked(now() - t)
		}
		n, err := l.poll(conn)
		look = n > 0
		switch {
		case err != nil:
			l.mu.Lock()
			l.broke(conn, err)
			l.mu.Unlock()
			return
		case n > 0:
			l.spinner.found()
			if c == nil {
				runtime.Gosched() // the woken clients go first
			}
		}
	}
}

// park waits until there may be something to read, or another goroutine is to go on; lead is held. Messages that come meanwhile are delivered. It
// returns false if the connection has no wakeup any more.
func (l *lane) park(conn *stream) bool {
	if conn.backlogged() == 0 {
		mail := l.r.n.mail
		own, messages := conn.parkInKernel(mail.set())
		if messages {
			mail.poll()
		}
		if own || messages {
			return true
		}
	}
	return conn.park() == nil || conn.unparked()
}

// poll takes what has come, and writes what there is room for; lead is held.
func (l *lane) poll(conn *stream) (n int, err error) {
	if conn.backlogged() > 0 {
		left, err := conn.flush()
		if err != nil {
			return 0, err
		}
		if left == 0 {
			l.mu.Lock()
			l.flush()
			l.mu.Unlock()
		}
	}
	n, err = conn.read(l.in[l.have:])
	if err != nil {
		if isAgain(err) {
			err = nil
		}
		return 0, err
	}
	l.have += n
	return n, l.handle()
}

// handle handles the answers that have come as a whole; lead is held.
func (l *lane) handle() error {
	at, answers := 0, uint32(0)
	posted := l.posted.Load()
	var h header
	for {
		ok, err := h.parse(l.in[at:l.have])
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		number := l.answered.Load()
		if h.kind != frameAnswer || uint32(h.number) != number || number == posted {
			return fmt.Errorf("%w: frame %d, of kind %d, where the answer to %d is due", ErrProtocol, uint32(h.number), h.kind, number)
		}
		e := &l.ring[number%ringSize]
		if err := l.finish(e, &h, l.in[at+headerSize:at+h.length]); err != nil {
			return err
		}
		at += h.length
		answers++
	}
	if answers > 0 {
		l.have = copy(l.in, l.in[at:l.have])
		l.batch.Store(answers)
		if l.parked.Load() > 0 {
			l.mu.Lock()
			if l.roomers > 0 {
				l.room.Broadcast()
			}
			l.mu.Unlock()
		}
	}
	return nil
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

// run is the pump: it reads for parked clients, and connects.
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
		case laneUp:
			if conn := l.conn.Load(); conn != nil {
				l.reads(nil)
			}
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
		l.unlead()
		if state == laneEnded {
			return
		}
	}
}

// end ends the lane: when it returns, nothing more is sent. The pump ends the chains that wait.
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
	for l.writing {
		l.room.Wait()
	}
	// They are not in use any more.
	for _, conn := range l.old {
		conn.close()
	}
	l.old, l.have = nil, 0
	first := l.posted.Load()
	for begun := time.Now(); ; {
		if l.ctx.Err() != nil {
			l.fall(l.r.Refusal(), nil, laneEnded)
			return
		}
		l.mu.Unlock()
		conn, r, err := l.r.dial(l.ctx, l.index, first)
		l.mu.Lock()
		switch {
		case err == nil && l.ctx.Err() == nil:
			l.resume(conn, &r, first)
			return
		case err == nil: // ended meanwhile: nothing may be sent over it
			conn.close()
			l.fall(l.r.Refusal(), &refusal{reply: r}, laneEnded)
			return
		}
		var no *refusal
		errors.As(err, &no)
		if l.ctx.Err() != nil {
			l.fall(l.r.Refusal(), no, laneEnded)
			return
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
		if !e.chain.failed() && !e.chain.isLeft() {
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
func (l *lane) resume(conn *stream, r *reply, first uint32) {
	l.failUnknown(r, l.cause)
	var keep []sent
	for n := l.answered.Load(); n != l.posted.Load(); n++ {
		e := l.ring[n%ringSize]
		l.ring[n%ringSize] = sent{}
		if !e.chain.failed() && !e.chain.isLeft() {
			keep = append(keep, e)
		} else if e.last {
			l.complete(e.chain)
		}
	}
	l.cut()
	l.key = r.key
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
	l.room.Broadcast()
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
		if !e.chain.isLeft() {
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
	l.mu.Lock()
	defer l.mu.Unlock()
	answered := l.answered.Load()
	conn := l.conn.Load()
	if conn == nil || answered == l.posted.Load() || answered != l.seen {
		l.seen, l.stalled = answered, 0
		return
	}
	if l.stalled++; l.stalled >= limit {
		l.stalled = 0
		l.broke(conn, errors.New("no answer"))
	}
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
