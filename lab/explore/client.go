package explore

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"runtime"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
)

// What a client has been told (a result, a message, a time, an error) goes into
// a hash of its compute node, in order. With the code, that is all that
// determines the state of the node's clients and of what they share. The explorer is the sim.Listener that takes note of it.

var _ sim.Listener = (*explorer)(nil)

// fold adds a value to an ordered hash.
func fold(h, v uint64) uint64 { return sim.Mix(bits.RotateLeft64(h, 29) ^ v*0x9e3779b97f4a7c15) }

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

func flag(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// hashOf returns the hash of what an AppendState method appends.
func (ex *explorer) hashOf(state func([]byte) []byte) uint64 {
	ex.scratch = state(ex.scratch[:0])
	return hashBytes(ex.scratch)
}

func (ex *explorer) hashError(err error) uint64 {
	return ex.hashOf(func(dst []byte) []byte { return sim.AppendError(dst, err) })
}

// A memo is what clients have been told: those of a node, which share its memory, or one of them
// if they do not (Config.Private), or if it is known what they share (Cluster.NodeState): then a client has
// been told all of it each time that it goes on.
type memo struct {
	told  uint64    // hash of it, in order
	heard uint64    // how often another client than before went on
	last  *sim.Task // which was the last
}

// A client is what exploration knows of a task.
type client struct {
	private memo
	forgot  bool      // it has called Forget and not gone on since
	keeps   uint64    // what it said then
	after   *sim.Task // it makes the first step, by InOrder
}

// A node is what exploration knows of a compute node.
type node struct {
	memo   memo
	exact  uint64                  // hash of all that its clients have ever been told, in order
	shares func(dst []byte) []byte // appends what its clients share; nil: not known
	keeps  func(dst []byte) []byte // with that: what its agent remembers while it waits for a message
	digest uint64                  // hash of what shares appended last
	ran    bool                    // that may be out of date
	gone   bool                    // killed, and what its clients were told makes no difference any more
}

// A port is what exploration knows of a Port.
type port struct {
	told  told
	tries fabric.Time // rounds of polling while nothing else happened
}

// at returns element i of a list that grows as it is used.
func at[T any](list *[]*T, i int) *T {
	for len(*list) <= i {
		*list = append(*list, new(T))
	}
	return (*list)[i]
}

func (ex *explorer) client(t *sim.Task) *client { return at(&ex.clients, int(t.Index())) }
func (ex *explorer) node(n *sim.Node) *node     { return at(&ex.nodes, n.Index()) }
func (ex *explorer) port(p *sim.Port) *port     { return at(&ex.ports, int(p.Index())) }

// memo returns where what a client is told goes.
func (ex *explorer) memo(t *sim.Task) *memo {
	if n := ex.node(t.Node()); n.shares == nil && (!ex.cfg.Private || ex.shared.Has(t.Node().ID())) {
		return &n.memo
	}
	return &ex.client(t).private
}

// turns returns where is noted which client of those that share memory went on.
func (ex *explorer) turns(t *sim.Task) *memo {
	if n := ex.node(t.Node()); n.shares != nil {
		return &n.memo
	}
	return ex.memo(t)
}

// Told implements sim.Listener.
func (ex *explorer) Told(t *sim.Task, v uint64) {
	m, n := ex.memo(t), ex.node(t.Node())
	m.told = fold(m.told, v)
	n.exact = fold(n.exact, v)
}

// moves notes that a client begins or goes on: that alone may change what the
// node's clients share.
func (ex *explorer) moves(t *sim.Task) {
	if m := ex.turns(t); m.last != t {
		m.last = t
		m.heard++
	}
	ex.Told(t, uint64(t.Index())|1<<63)
	if n := ex.node(t.Node()); n.shares != nil {
		m := ex.memo(t)
		m.told = fold(m.told, ex.hashOnce(func() uint64 { return ex.memoryOf(n) }))
	}
	ex.client(t).forgot = false
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
func (ex *explorer) memoryOf(n *node) uint64 {
	if n.ran {
		n.digest, n.ran = ex.hashOf(n.shares), false
	}
	return n.digest
}

// recall returns the value that keep got at this point of the schedule before, if this one is like that up to here.
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

// forget makes what a client has been told up to now matter no more; if it shares memory with others of
// its node, when all of them have said so.
func (ex *explorer) forget(t *sim.Task, v uint64) {
	x := ex.client(t)
	x.forgot, x.keeps = true, v
	ex.port(t.Port()).told.live = false
	if m := ex.memo(t); m == &x.private {
		m.told = fold(uint64(t.Index()), v)
		return
	}
	ex.forgetNode(t.Node())
}

// Waits implements sim.Listener: what an agent remembers that waits for a message is what HashWith or NodeState covers.
func (ex *explorer) Waits(t *sim.Task) {
	n := ex.node(t.Node())
	switch {
	case n.shares != nil:
		ex.client(t).private.told = ex.hashOnce(func() uint64 { return ex.hashOf(n.keeps) })
	case ex.memo(t) == &n.memo:
		ex.forgetNode(t.Node())
	}
}

// forgetNode makes what the clients of a node have been told matter no more, if all of them have said so and
// the agent waits for a message.
func (ex *explorer) forgetNode(n *sim.Node) {
	told := uint64(0)
	for _, t := range ex.u.Tasks() {
		x := ex.client(t)
		switch {
		case t.Node() != n:
		case t.Agent():
			if t.Port().Waiting().Kind != sim.WaitRecv {
				return
			}
		case !x.forgot:
			return
		default:
			told = fold(fold(told, uint64(t.Index())), x.keeps)
		}
	}
	ex.node(n).memo.told = told
}

// A told is what a client was told last, if it may be one round of a loop that polls.
type told struct {
	ops   []fabric.Op // the chain (their Bufs are the client's), empty: an empty inbox
	data  []byte      // what its READs found, one behind the other
	place uint64      // where its client was, in the program: hash of the call stack
	base  uint64      // what its client had been told before it
	exact uint64      // node.exact before it
	heard uint64      // memo.heard then
	time  fabric.Time // of the answer
	live  bool        // it changed nothing, and the client has done nothing since but look at the time
	polls bool        // it was an empty inbox
}

// stackDepth is how much of its call stack identifies a loop.
const stackDepth = 12

// Posted implements sim.Listener: it finds out whether a chain is what its client did just before, from
// the same place in the program; and notes the place.
func (ex *explorer) Posted(ch *sim.Chain) {
	for int(ch.Index()) >= len(ex.again) {
		ex.again = append(ex.again, false)
	}
	again := &ex.again[ch.Index()]
	*again = false
	ops, p := ch.Ops(), ch.Port()
	if !ex.cfg.FairPolls || !looks(ops) {
		return
	}
	k, t := &ex.port(p).told, ex.u.Running()
	same := k.live && !k.polls && t != nil && k.heard == ex.turns(t).heard && p.Inflight() == 1 && len(ops) == len(k.ops)
	for i := 0; same && i < len(ops); i++ {
		a, b := &ops[i], &k.ops[i]
		same = a.Kind == b.Kind && a.Addr == b.Addr && a.Arg == b.Arg && a.Cmp == b.Cmp && len(a.Buf) == len(b.Buf) && a.Wide == b.Wide
	}
	place, ok := ex.recall()
	if !ok {
		var stack [stackDepth]uintptr
		runtime.Callers(4, stack[:]) // from the caller of the Port's method
		for _, pc := range stack {
			place = fold(place, uint64(pc))
		}
		ex.keep(place)
	}
	*again = same && place == k.place
	k.place = place
}

// mayRepeat reports whether no client of its node has gone on since a client asked in a loop that polls: if it asks the same again, it stutters.
func (ex *explorer) mayRepeat(t *sim.Task) bool {
	k := &ex.port(t.Port()).told
	return k.live && !t.Done() && k.heard == ex.turns(t).heard
}

// looks reports whether a chain may change nothing.
func looks(ops []fabric.Op) bool {
	for i := range ops {
		if op := &ops[i]; op.Kind == fabric.OpWrite || op.Kind == fabric.OpFAA && op.Arg != 0 {
			return false
		}
	}
	return true
}

// isAgain reports whether a chain is what its client has just done, in a loop.
func (ex *explorer) isAgain(ch *sim.Chain) bool { return ex.again[ch.Index()] && !ch.Orphaned() }

// stutters reports whether a chain that its client has just executed, in a loop, would
// return the same again.
func (ex *explorer) stutters(ch *sim.Chain) bool {
	if !ex.isAgain(ch) || ch.Done() > 0 || ch.Happened() > 0 || !ex.polls(ch) {
		return false
	}
	k := &ex.port(ch.Port()).told
	return ch.Repeats(k.ops, k.data)
}

// polls reports whether no client of its client's node has gone on since the client asked the last time.
func (ex *explorer) polls(ch *sim.Chain) bool {
	t := ch.Port().Waiting().By
	return t != nil && ex.port(ch.Port()).told.heard == ex.turns(t).heard
}

// pollsInVain reports whether a client that polls its inbox would find it as empty as before.
func (ex *explorer) pollsInVain(p *sim.Port) bool {
	k := &ex.port(p).told
	return ex.cfg.FairPolls && p.Received() == 0 && k.live && k.polls
}

// Completed implements sim.Listener.
func (ex *explorer) Completed(ch *sim.Chain) {
	t, p := ex.u.Running(), ch.Port()
	k, m, n := &ex.port(p).told, ex.memo(t), ex.node(p.Node())
	turns, now := ex.turns(t), p.Node().Time()
	if ex.isAgain(ch) && k.live && k.heard == turns.heard && k.time == now {
		m.told, n.exact = k.base, k.exact // this answer replaces the last; but pauses between rounds may grow
	} else {
		ex.Told(t, 0)
		k.base, k.exact = m.told, n.exact
	}
	ex.Told(t, ex.hashOf(ch.AppendState))
	ex.Told(t, uint64(now))
	k.time = now
	k.live = !ch.Wrote() && ch.Err() == nil && ex.cfg.FairPolls
	if !k.live {
		return
	}
	k.heard, k.polls = turns.heard, false
	k.ops, k.data = append(k.ops[:0], ch.Ops()...), k.data[:0]
	for i := range k.ops {
		if op := &k.ops[i]; op.Kind == fabric.OpRead {
			k.data = append(k.data, op.Buf...)
		}
	}
}

// Received implements sim.Listener.
func (ex *explorer) Received(p *sim.Port, msg fabric.Message, err error) {
	k, t := &ex.port(p).told, ex.u.Running()
	switch {
	case err == nil:
		ex.Told(t, hashMessage(&msg))
		k.live = false
	case errors.Is(err, fabric.ErrDeadline):
		m, turns, n := ex.memo(t), ex.turns(t), ex.node(p.Node())
		switch {
		case !k.live || k.heard != turns.heard:
			ex.Told(t, 1)
			k.base, k.exact, k.heard = m.told, n.exact, turns.heard
			k.live, k.polls = ex.cfg.FairPolls, true
		case k.polls:
			m.told, n.exact = k.base, k.exact
		default:
			ex.Told(t, 1) // between the rounds of a loop that polls memory
		}
	default:
		ex.Acted(p, err)
	}
}

// Acted implements sim.Listener.
func (ex *explorer) Acted(p *sim.Port, err error) {
	ex.port(p).told.live = false
	if t := ex.u.Running(); t != nil && err != nil {
		ex.Told(t, ex.hashError(err))
	}
}

// Interrupted implements sim.Listener: a client may do so to the Port of another, past the fabric.
func (ex *explorer) Interrupted(p *sim.Port) {
	if t := ex.u.Running(); t != nil && (t.Node() != p.Node() || ex.cfg.Private && t.Port() != p) {
		ex.touches(t.Node())
		ex.touches(p.Node())
	}
}

func hashMessage(m *fabric.Message) uint64 {
	h := fold(uint64(m.From), uint64(m.Kind))
	for _, v := range m.Body {
		h = fold(h, v)
	}
	return h
}
