package tcp

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peer"
)

// A wire is a connection to a memory node on which frames go: those of one lane, which has connected it, or those of all lanes to replicated numbers that the memory node, as a
// process, has. Such a change has one chain more than one of a number with one copy, and goes to two memory nodes: on a connection for each lane there would be half as many chains in
// each write and each wakeup, which are most of what a chain costs.
//
// Lanes that share a wire each have a connection of their own besides, by which the memory node has let them in and on which nothing is sent. What a promotion cuts is a lane: the memory
// node executes no frame of it from then on, wherever that comes from, and answers that it is cut; the others on the wire go on. Frames and answers name their lane by a tag, which the
// compute node gives no other lane, also to the same memory in another epoch; and each lane numbers its frames, as on a connection of its own. So what is left on a wire of a lane that has been connected anew comes to nothing: its number is behind that at which the lane goes on.
//
// A client that waits for an answer reads, unless another is reading: it spins for a while, then it parks, and it takes the answers of others along. While another reads, a client
// is parked until its answer has come. When a reader leaves and others still wait, the pump, a goroutine of the wire, reads for them.
type wire struct {
	n      *node
	conn   *stream
	shared bool

	lead    sync.Mutex // held by the reader
	in      []byte     // of the reader: bytes that have come
	have    int
	spinner spinner       // of the reader
	batch   atomic.Uint32 // answers that the last read brought
	kick    chan struct{}

	riders atomic.Pointer[[]*lane] // replaced under mu
	over   atomic.Bool             // it has ended; changed under mu

	mu      sync.Mutex
	writing bool    // a goroutine writes
	dirty   []*lane // lanes with frames that were not written
	taken   []*lane // of the writer
}

func (n *node) newWire(conn *stream, shared bool) *wire {
	w := &wire{n: n, conn: conn, shared: shared, in: make([]byte, readFrames*maxFrame), kick: make(chan struct{}, 1)}
	w.riders.Store(new([]*lane))
	n.Go(w.run)
	return w
}

// A trunk is where lanes of one index to one memory node, as a process, find the wire that they share.
type trunk struct {
	turn chan struct{} // has a token while a lane joins: others wait for it, unless they end
	wire *wire
	said *atomic.Bool // of all trunks to the memory node: no wire could be connected, which was reported, and none has been since
}

func newTrunk(said *atomic.Bool) *trunk { return &trunk{turn: make(chan struct{}, 1), said: said} }

// join puts a lane on the wire, which is connected if there is none. It returns nil if that cannot be, or the lane has ended.
func (t *trunk) join(l *lane) *wire {
	select {
	case t.turn <- struct{}{}:
	case <-l.ctx.Done():
		return nil
	}
	defer func() { <-t.turn }()
	if t.wire == nil || t.wire.over.Load() {
		r := l.r
		h := r.hello(roleShared, l.index, 0)
		h.target = target{}
		s, _, err := dial(l.ctx, &r.n.Config, peer.MemoryNode(r.Host, r.MN.Addr), h, true)
		if err != nil {
			if l.ctx.Err() == nil && (errors.Is(err, fabric.ErrFenced) || !t.said.Swap(true)) {
				r.failed(fmt.Errorf("lanes share no connection: %w", err))
			}
			return nil
		}
		t.wire = r.n.newWire(s, true)
		t.said.Store(false)
	}
	if !t.wire.join(l) {
		return nil
	}
	return t.wire
}

// join puts a lane on the wire, unless that has ended.
func (w *wire) join(l *lane) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over.Load() {
		return false
	}
	list := append(slices.Clone(*w.riders.Load()), l)
	w.riders.Store(&list)
	return true
}

// leave takes a lane off the wire, which ends with the last.
func (w *wire) leave(l *lane) {
	w.mu.Lock()
	list := slices.DeleteFunc(slices.Clone(*w.riders.Load()), func(x *lane) bool { return x == l })
	w.riders.Store(&list)
	if len(list) == 0 {
		w.over.Store(true) // before another can join
	}
	w.mu.Unlock()
	if len(list) == 0 {
		w.end()
	}
}

// end ends the wire: nothing more is written. The pump closes the connection.
func (w *wire) end() {
	w.mu.Lock()
	w.over.Store(true)
	w.mu.Unlock()
	w.conn.end()
	w.kickPump()
}

// fail ends the wire because its connection has failed. No lane's mu is held.
func (w *wire) fail(err error) {
	w.end()
	for _, l := range *w.riders.Load() {
		l.mu.Lock()
		if l.wire.Load() == w {
			l.broke(l.conn.Load(), err)
		}
		l.mu.Unlock()
	}
}

// find returns the lane that an answer is of, or nil.
func (w *wire) find(h *header) *lane {
	for _, l := range *w.riders.Load() {
		if !w.shared || l.tag == uint32(h.number>>32) {
			return l
		}
	}
	return nil
}

// claim notes that a lane has frames that were not written, and reports whether the caller is to write them: no other goroutine does.
func (w *wire) claim(l *lane) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Contains(w.dirty, l) {
		w.dirty = append(w.dirty, l)
	}
	return w.claimLocked()
}

func (w *wire) claimLocked() bool {
	if w.writing || w.over.Load() || len(w.dirty) == 0 {
		return false
	}
	w.writing = true
	return true
}

// unclaim ends writing.
func (w *wire) unclaim() {
	w.mu.Lock()
	w.writing = false
	w.mu.Unlock()
}

// reclaim is claim of what was left because there was no room.
func (w *wire) reclaim() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.claimLocked()
}

// busy reports whether others are at work.
func (w *wire) busy() bool {
	n := uint32(0)
	for _, l := range *w.riders.Load() {
		n += l.posted.Load() - l.answered.Load()
	}
	return n > 1 || w.batch.Load() > 1
}

// write writes what lanes have pending, until nothing is left. The caller has claimed that, and no lane's mu is held.
func (w *wire) write() {
	if w.busy() {
		runtime.Gosched() // what others are about to post can go along
	}
	for {
		if w.conn.backlogged() > 0 {
			w.unclaim()
			if w.conn.backlogged() > 0 {
				w.kickPump() // the reader goes on when there is room
				return
			}
			if !w.reclaim() {
				return
			}
		}
		w.mu.Lock()
		w.taken, w.dirty = append(w.taken[:0], w.dirty...), w.dirty[:0]
		if len(w.taken) == 0 {
			w.writing = false
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
		if err := w.writeOf(w.taken); err != nil {
			w.unclaim()
			w.fail(err)
			return
		}
	}
}

// writeOf writes what some lanes have pending, at once.
func (w *wire) writeOf(lanes []*lane) error {
	var out []byte
	var lent *lane // whose buffer it is
	for _, l := range lanes {
		l.mu.Lock()
		switch {
		case l.wire.Load() != w || len(l.pending) == 0:
		case lent == nil:
			lent, out = l, l.pending
			l.pending, l.spare, l.written = l.spare[:0], nil, l.posted.Load()
		default:
			out = append(out, l.pending...)
			l.pending, l.written = l.pending[:0], l.posted.Load()
		}
		l.mu.Unlock()
	}
	if lent == nil {
		return nil
	}
	err := w.conn.write(out)
	for _, l := range lanes {
		l.mu.Lock()
		if l == lent && cap(out) <= keepBuffer {
			l.spare = out[:0]
		}
		// Clients that wait for room call flush, too: they must not wake each other for nothing.
		if l.roomers > 0 {
			l.room.Broadcast()
		}
		l.mu.Unlock()
	}
	return err
}

func (w *wire) kickPump() {
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// run is the pump: it reads for parked clients, and closes the connection in the end.
func (w *wire) run() {
	for {
		select {
		case <-w.kick:
		case <-w.n.Ctx.Done():
			w.end()
		}
		w.lead.Lock()
		w.reads(nil)
		if w.over.Load() {
			w.conn.close() // nobody reads
			w.lead.Unlock()
			return
		}
		w.unlead()
	}
}

// unlead ends reading, and has the pump read if clients still wait.
func (w *wire) unlead() {
	w.lead.Unlock()
	if w.awaited() {
		w.kickPump()
	}
}

// awaited reports whether clients wait for another to read.
func (w *wire) awaited() bool {
	for _, l := range *w.riders.Load() {
		if l.parked.Load() > 0 || l.left.Load() > 0 {
			return true
		}
	}
	return false
}

// needed reports whether a reader has to go on: until its own chain is done, or, if it is the pump, as long
// as clients are parked or bytes wait for room.
func (w *wire) needed(c *chain) bool {
	switch {
	case w.over.Load():
		return false
	case c != nil:
		return !c.isDone() && !c.limit.over.Load() && c.lane.wire.Load() == w
	}
	return w.awaited() || w.conn.backlogged() > 0
}

// reads reads answers, until it is not needed any more or the connection has failed; lead is held.
func (w *wire) reads(c *chain) {
	now := w.n.Now
	w.spinner.alone = c != nil && c.lone
	for look := true; w.needed(c); {
		// What TLS has taken from the socket and not handed out yet wakes nobody.
		if t := now(); !(look && w.conn.tls != nil) && !w.spinner.again(t) {
			if !w.park() {
				return
			}
			w.spinner.parked(now() - t)
		}
		n, err := w.poll()
		look = n > 0
		switch {
		case err != nil:
			w.fail(err)
			return
		case n > 0:
			w.spinner.found()
			if c == nil {
				runtime.Gosched() // the woken clients go first
			}
		}
	}
}

// park waits until there may be something to read, or another goroutine is to go on; lead is held. Messages that come meanwhile are delivered. It
// returns false if the connection has no wakeup any more.
func (w *wire) park() bool {
	if w.conn.backlogged() == 0 {
		mail := w.n.mail
		own, messages := w.conn.parkInKernel(mail.set())
		if messages && mail.poll() > 0 && w.spinner.alone {
			runtime.Gosched() // the woken clients go first, and it is lone no more
			w.spinner.alone = false
		}
		if own || messages {
			return true
		}
	}
	return w.conn.park() == nil || w.conn.unparked()
}

// poll takes what has come, and writes what there is room for; lead is held.
func (w *wire) poll() (n int, err error) {
	if w.conn.backlogged() > 0 {
		left, err := w.conn.flush()
		if err != nil {
			return 0, err
		}
		if left == 0 && w.reclaim() {
			w.write()
		}
	}
	n, err = w.conn.read(w.in[w.have:])
	if err != nil {
		if isAgain(err) {
			err = nil
		}
		return 0, err
	}
	w.have += n
	return n, w.handle()
}

// handle handles the answers that have come as a whole; lead is held.
func (w *wire) handle() error {
	at, answers := 0, uint32(0)
	var h header
	var l *lane // of the last answer: its lead is held
	defer func() { l.taken() }()
	for {
		ok, err := h.parse(w.in[at:w.have])
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		if of := w.find(&h); of != l {
			l.taken()
			if l = of; !l.takes(w) {
				l = nil
			}
		}
		if l != nil {
			if err := l.take(w, &h, w.in[at+headerSize:at+h.length]); err != nil {
				return err
			}
		}
		at += h.length
		answers++
	}
	if answers > 0 {
		w.have = copy(w.in, w.in[at:w.have])
		w.batch.Store(answers)
	}
	return nil
}

// takes takes the lane's lead, for answers that have come on a wire. It reports false if the lane is not there any more.
func (l *lane) takes(w *wire) bool {
	for l != nil && l.wire.Load() == w {
		if l.lead.TryLock() {
			return true
		}
		runtime.Gosched() // it has just been connected
	}
	return false
}

// taken gives the lane's lead back.
func (l *lane) taken() {
	if l == nil {
		return
	}
	l.lead.Unlock()
	if l.parked.Load() > 0 {
		l.mu.Lock()
		if l.roomers > 0 {
			l.room.Broadcast()
		}
		l.mu.Unlock()
	}
}

// take takes an answer that has come on a wire; lead is held.
func (l *lane) take(w *wire, h *header, body []byte) error {
	number := l.answered.Load()
	switch {
	case l.wire.Load() != w: // it has broken meanwhile
		return nil
	case w.shared && int32(uint32(h.number)-number) < 0: // of a frame from before it was connected anew
		return nil
	case w.shared && h.kind == frameAnswer && h.status == statusCut && int32(uint32(h.number)-l.posted.Load()) < 0:
		l.mu.Lock()
		l.broke(l.conn.Load(), errCut)
		l.mu.Unlock()
		return nil
	case h.kind != frameAnswer || uint32(h.number) != number || number == l.posted.Load():
		return fmt.Errorf("%w: frame %d, of kind %d, where the answer to %d is due", ErrProtocol, uint32(h.number), h.kind, number)
	}
	return l.finish(&l.ring[number%ringSize], h, body)
}

// errCut: the memory node has cut a lane.
var errCut = errors.New("cut by the memory node")
