package sim

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"runtime"

	"github.com/declock/declock/fabric"
)

// What a client has been told (a result, a message, a time, an error) goes into
// a hash of its compute node, in order. With the code, that is all that
// determines the state of the node's clients and of what they share.

// fold adds a value to an ordered hash.
func fold(h, v uint64) uint64 { return mix64(bits.RotateLeft64(h, 29) ^ v*0x9e3779b97f4a7c15) }

// A memo is what clients have been told: those of a node, which share its memory, or one of them
// if they do not (ExploreConfig.Private), or if it is known what they share (Cluster.NodeState): then a client has
// been told all of it each time that it goes on.
type memo struct {
	told  uint64 // hash of it, in order
	heard uint64 // how often another client than before went on
	last  *Task  // which was the last
}

// memo returns where what a client is told goes.
func (t *Task) memo() *memo {
	if ex := t.c.ex; t.node.shares != nil || ex.cfg.Private && !ex.shared.Has(t.node.id) {
		return &t.private
	}
	return &t.node.memo
}

// turns returns where is noted which client of those that share memory went on.
func (t *Task) turns() *memo {
	if t.node.shares != nil {
		return &t.node.memo
	}
	return t.memo()
}

// tell notes that the client that runs has been told something.
func (c *Cluster) tell(v uint64) {
	if c.cur != nil { // else it is to set the scene: the same each time
		m := c.cur.memo()
		m.told = fold(m.told, v)
		c.cur.node.exact = fold(c.cur.node.exact, v)
	}
}

// moves notes that a client begins or goes on: that alone may change what the
// node's clients share.
func (t *Task) moves() {
	if m := t.turns(); m.last != t {
		m.last = t
		m.heard++
	}
	m := t.memo()
	m.told = fold(m.told, uint64(t.index)|1<<63)
	t.node.exact = fold(t.node.exact, uint64(t.index)|1<<63)
	if t.node.shares != nil {
		m.told = fold(m.told, t.c.ex.hashOnce(func() uint64 { return t.c.ex.memoryOf(t.node) }))
	}
	t.forgot = false
}

// hashOnce returns a hash of memory: made anew, or the same as in the schedule before, for the part of this one that is
// like that.
func (ex *explorer) hashOnce(hash func() uint64) uint64 {
	if ex.blind {
		return 0
	}
	v, ok := ex.recall()
	if !ok {
		v = ex.keep(hash())
	}
	return v
}

// memoryOf returns the hash of what the clients of a node share, which they alone change.
func (ex *explorer) memoryOf(n *Node) uint64 {
	if n.ran {
		n.digest, n.ran = n.c.ex.hashOf(n.shares), false
	}
	return n.digest
}

// hashOf returns the hash of what an AppendState method appends.
func (ex *explorer) hashOf(state func([]byte) []byte) uint64 {
	ex.scratch = state(ex.scratch[:0])
	return hashBytes(ex.scratch)
}

// recall returns what keep was told at this point of the schedule before, if this one is like that up to here.
func (ex *explorer) recall() (uint64, bool) {
	if ex.known == nil || ex.knew == len(*ex.known) {
		return 0, false
	}
	ex.knew++
	return (*ex.known)[ex.knew-1], true
}

// keep keeps a value that is costly to make, for schedules that begin like this one.
func (ex *explorer) keep(v uint64) uint64 {
	if ex.known != nil {
		*ex.known = append(*ex.known, v)
		ex.knew++
	}
	return v
}

// forget makes what clients have been told up to now matter no more, if all of
// its node that share memory have said so.
func (t *Task) forget(v uint64) {
	t.forgot, t.keeps = true, v
	t.port.told.live = false
	if m := t.memo(); m == &t.private {
		m.told = fold(uint64(t.index), v)
		return
	}
	t.node.forget()
}

// awaits is for an agent that waits for a message: what it remembers is what HashWith or NodeState covers.
func (t *Task) awaits() {
	switch {
	case t.node.shares != nil:
		t.private.told = t.c.ex.hashOnce(func() uint64 { return t.c.ex.hashOf(t.node.keeps) })
	case t.memo() == &t.node.memo:
		t.node.forget()
	}
}

// forget makes what the clients of a node have been told matter no more, if all of them have said so and
// the agent waits for a message.
func (n *Node) forget() {
	told := uint64(0)
	for _, x := range n.c.tasks {
		switch {
		case x.node != n:
		case x.daemon:
			if x.port.wait != waitRecv {
				return
			}
		case !x.forgot:
			return
		default:
			told = fold(fold(told, uint64(x.index)), x.keeps)
		}
	}
	n.memo.told = told
}

// A told is what a client was told last, if it may be one round of a loop that polls.
type told struct {
	ops   []fabric.Op // the chain (their Bufs are the client's), empty: an empty inbox
	data  []byte      // what its READs found, one behind the other
	place uint64      // where its client was, in the program: hash of the call stack
	base  uint64      // what its client had been told before it
	exact uint64      // Node.exact before it
	heard uint64      // memo.heard then
	live  bool        // it changed nothing, and the client has done nothing since but look at the time
	polls bool        // it was an empty inbox
}

// stackDepth is how much of its call stack identifies a loop.
const stackDepth = 12

// repeats tells whether a chain that is being posted is what its client did just before, from
// the same place in the program; and notes the place.
func (p *Port) repeats(ops []fabric.Op) bool {
	k := p.told
	if !p.c.ex.cfg.FairPolls || !looks(ops) {
		return false
	}
	same := k.live && !k.polls && p.c.cur != nil && k.heard == p.c.cur.turns().heard && p.inflight == 1 && len(ops) == len(k.ops)
	for i := 0; same && i < len(ops); i++ {
		a, b := &ops[i], &k.ops[i]
		same = a.Kind == b.Kind && a.Addr == b.Addr && a.Arg == b.Arg && a.Cmp == b.Cmp && len(a.Buf) == len(b.Buf) && a.Wide == b.Wide
	}
	place, ok := p.c.ex.recall()
	if !ok {
		var stack [stackDepth]uintptr
		runtime.Callers(4, stack[:])
		for _, pc := range stack {
			place = fold(place, uint64(pc))
		}
		p.c.ex.keep(place)
	}
	same = same && place == k.place
	k.place = place
	return same
}

// looks tells whether a chain may change nothing.
func looks(ops []fabric.Op) bool {
	for i := range ops {
		if op := &ops[i]; op.Kind == fabric.OpWrite || op.Kind == fabric.OpFAA && op.Arg != 0 {
			return false
		}
	}
	return true
}

// stutters tells whether a chain that its client has just executed, in a loop, would
// return the same again.
func (ch *chain) stutters() bool {
	if !ch.again || ch.cur > 0 || ch.part > 0 {
		return false
	}
	k, m := ch.port.told, &ch.qp.mn.mem
	if !ch.polls() || ch.qp.mn.dead || ch.port.c.admissible(ch, &ch.ops[0]) != nil {
		return false
	}
	data := k.data
	for i := range ch.ops {
		op, was := &ch.ops[i], &k.ops[i]
		off := op.Addr.Offset()
		switch {
		case !m.inBounds(off, op.Size()):
			return false
		case op.Kind == fabric.OpRead && op.Buf != nil:
			if !m.equal(off, data[:len(op.Buf)]) {
				return false
			}
			data = data[len(op.Buf):]
		case op.Kind == fabric.OpRead, op.Kind == fabric.OpCAS && was.Old != was.Cmp, op.Kind == fabric.OpFAA && op.Arg == 0:
			if m.word(off) != was.Old {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// polls tells whether nobody of its client's node has gone on since the client asked the last time.
func (ch *chain) polls() bool {
	w := ch.port.waiter
	return w != nil && ch.port.told.heard == w.turns().heard
}

// stutters tells whether a client that polls its inbox would find it as empty as before.
func (p *Port) stutters() bool {
	return p.c.ex.cfg.FairPolls && p.in.len == 0 && p.told.live && p.told.polls
}

// equal tells whether memory at off is data.
func (m *memory) equal(off uint64, data []byte) bool {
	for len(data) > 0 {
		in := off & (pageSize - 1)
		n := min(len(data), int(pageSize-in))
		if page := m.page(off); page != nil {
			if string(page[in:in+uint64(n)]) != string(data[:n]) {
				return false
			}
		} else if !allZero(data[:n]) {
			return false
		}
		data = data[n:]
		off += uint64(n)
	}
	return true
}

// tellChain notes that a client has been told how a chain ended.
func (p *Port) tellChain(ch *chain) {
	c, k := p.c, p.told
	if c.cur == nil {
		return
	}
	v := ch.results(len(ch.ops))
	if ch.err != nil {
		v = fold(v, hashError(ch.err))
	}
	m, turns := c.cur.memo(), c.cur.turns()
	if ch.again && k.live && k.heard == turns.heard {
		m.told, p.node.exact = k.base, k.exact // this answer replaces the last
	} else {
		c.tell(0)
		k.base, k.exact = m.told, p.node.exact
	}
	c.tell(v)
	c.tell(uint64(p.node.clock.local(c.now)))
	k.live = !ch.wrote && ch.err == nil && c.ex.cfg.FairPolls
	if !k.live {
		return
	}
	k.heard, k.polls = turns.heard, false
	k.ops, k.data = append(k.ops[:0], ch.ops...), k.data[:0]
	for i := range ch.ops {
		if op := &ch.ops[i]; op.Kind == fabric.OpRead {
			k.data = append(k.data, op.Buf...)
		}
	}
}

// results returns a hash of the results of the first operations of a chain.
func (ch *chain) results(n int) uint64 {
	h := uint64(n)
	for i := range ch.ops[:min(n, len(ch.ops))] {
		op := &ch.ops[i]
		switch {
		case op.Kind == fabric.OpRead && op.Buf != nil:
			h = fold(h, hashBytes(op.Buf))
		case op.Wide != nil:
			h = fold(fold(h, op.Wide.Old[0]), op.Wide.Old[1])
		case op.Kind != fabric.OpWrite:
			h = fold(h, op.Old)
		}
	}
	return h
}

func hashBytes(b []byte) uint64 {
	h := uint64(len(b))
	for ; len(b) >= 8; b = b[8:] {
		h = fold(h, binary.LittleEndian.Uint64(b))
	}
	for _, x := range b {
		h = fold(h, uint64(x))
	}
	return h
}

// hashError returns a hash of what a client can tell of an error: which of fabric's it is, and where.
func hashError(err error) uint64 {
	h := uint64(1)
	var ce *fabric.ChainError
	if errors.As(err, &ce) {
		h = fold(h, uint64(ce.Index))
	}
	for err != nil {
		next := errors.Unwrap(err)
		if next == nil {
			h = fold(h, hashBytes([]byte(err.Error())))
		}
		err = next
	}
	return h
}

// tellNow tells a client the time.
func (p *Port) tellNow() fabric.Time {
	t := p.node.clock.local(p.c.now)
	p.c.tell(uint64(t))
	return t
}

// tellRecv notes that a client has been told a message, or that there is none.
func (p *Port) tellRecv(msg *fabric.Message, err error) {
	c, k := p.c, p.told
	switch {
	case c.cur == nil:
	case err == nil:
		c.tell(hashMessage(msg))
		k.live = false
	case errors.Is(err, fabric.ErrDeadline):
		m, turns := c.cur.memo(), c.cur.turns()
		switch {
		case !k.live || k.heard != turns.heard:
			c.tell(1)
			k.base, k.exact, k.heard = m.told, p.node.exact, turns.heard
			k.live, k.polls = c.ex.cfg.FairPolls, true
		case k.polls:
			m.told, p.node.exact = k.base, k.exact
		default:
			c.tell(1) // between the rounds of a loop that polls memory
		}
	default:
		p.tellErr(err)
	}
}

func (p *Port) tellErr(err error) {
	p.c.tell(hashError(err))
	p.told.live = false
}

// tellSent notes that a client has sent, or could not.
func (p *Port) tellSent(err error) {
	p.told.live = false
	if err != nil {
		p.tellErr(err)
	}
}

func hashMessage(m *fabric.Message) uint64 {
	h := fold(uint64(m.From), uint64(m.Kind))
	for _, v := range m.Body {
		h = fold(h, v)
	}
	return h
}

func flag(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}
