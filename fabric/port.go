package fabric

import (
	"errors"
	"math"
	"math/bits"

	"github.com/declock/declock/internal/stats"
)

// Time is a point in time of the clock of one compute node, in nanoseconds.
// On real fabrics it is Unix time that never steps back; in the simulator it
// is virtual time. Clocks of different compute nodes differ: see timesync.
type Time int64

// Forever is a deadline that never comes.
const Forever Time = math.MaxInt64

// Durations of a Time, in nanoseconds.
const (
	Nanosecond  Time = 1
	Microsecond      = 1000 * Nanosecond
	Millisecond      = 1000 * Microsecond
	Second           = 1000 * Millisecond
)

// MaxMessage is the size of a message on the wire, in bytes.
const MaxMessage = 64

// A Message is what clients of compute nodes send each other: 64 bytes with
// everything. The meaning of Kind and Body is the sender's protocol's.
type Message struct {
	From ClientID // set by the fabric: the true sender
	Kind MsgKind
	Body [7]uint64
}

// MsgKind is the type of a message. Each protocol has a range of its own.
type MsgKind uint32

// Ranges of message kinds.
const (
	// MsgView comes from the fabric itself to the agent (From 0) when the set
	// of live compute nodes has changed: Body[0] is the view's epoch.
	MsgView MsgKind = 1

	MsgCQL  MsgKind = 0x100 // cql: 0x100 to 0x1ff
	MsgHier MsgKind = 0x200 // hier: 0x200 to 0x2ff
	MsgLock MsgKind = 0x300 // baseline locks (lab/locks): 0x300 to 0x3ff
	MsgUser MsgKind = 0x1000
)

// A Port is one client's view of the fabric: its queue pairs, its inbox, its
// clock, its randomness, its registered buffers. One goroutine uses it at a
// time; only Interrupt and Close may be called by others.
//
// Code over a Port never waits elsewhere than in a Port.
type Port interface {
	// ID returns the client's ID. It changes at Abandon.
	ID() ClientID

	// Caps returns what the fabric can do. It never changes.
	Caps() Caps

	// Now returns the clock of the compute node.
	Now() Time

	// Rand returns 64 random bits (in the simulator: of the run's seed).
	Rand() uint64

	// Do posts a chain of at most MaxChain operations to one memory node with
	// one doorbell, and returns when the last has completed. They execute in
	// order; without Caps.ReadsInOrder, what READs of a chain see may be
	// out of order. The error is nil or names the failed operation (ChainError).
	// An empty chain does nothing. A memory node that the cluster does not
	// have is ErrNodeDown, like one that is down.
	Do(ops []Op) error

	// Post is Do without the wait. The ops and their buffers stay the Port's
	// until Wait for the returned Pending has returned. Chains to one memory
	// node execute in the order in which they were posted, also Do's.
	// If in-flight limits are reached, Post waits for room. When a chain fails, those posted behind it
	// either execute or are ErrUnknownOutcome.
	Post(ops []Op) (Pending, error)

	// Wait waits for a posted chain and returns what Do would have. Each
	// Pending is waited for once.
	Wait(p Pending) error

	// Reattach makes the Port use a memory node in an epoch, as Node.Memory returns it; from
	// then on chains execute there. No chain to that node may be under way. A
	// Port is attached to what it finds when it is opened or first used; when the memory node has
	// restarted all chains are refused (ErrStaleEpoch) until Reattach: so nothing that
	// was begun in one epoch is executed in the next. Another epoch than the present one is
	// ErrStaleEpoch; a memory node that is down is ErrNodeDown. On a closed Port it is ErrClosed in any case.
	Reattach(mem MemID, epoch uint32) error

	// Alloc returns n bytes of zeroed registered memory, 8-byte aligned, for the
	// Bufs of operations. Any slice of it may be used. It stays valid until
	// Free, or until the Port itself is garbage.
	Alloc(n int) []byte

	// Free gives memory of Alloc back: the very slice that Alloc returned.
	Free(buf []byte)

	// Lend makes memory that is not Alloc's good for the Bufs of operations, until the next Lend: nil ends it. It returns false, and does nothing, where memory has to be
	// registered with a device. So large values need no copy.
	Lend(buf []byte) bool

	// Send sends a message: reliable, FIFO per pair of clients, never blocks
	// (it queues). m is copied; m.From is set by the fabric. A message to a
	// client of the own node costs no NIC. To a node that has gone: ErrNodeDown; to
	// a client that does not exist on a live node: dropped.
	Send(to ClientID, m *Message) error

	// Recv returns the next message, in the order of arrival. It waits until
	// deadline at the latest, and returns ErrDeadline then. A deadline in the
	// past polls: it never waits, so it is never interrupted. ErrInterrupted: see
	// Interrupt; ErrClosed after Close.
	Recv(deadline Time) (Message, error)

	// Pause waits until the given time and leaves messages where they are.
	// It returns ErrInterrupted early when interrupted.
	Pause(until Time) error

	// Interrupt makes the present or next Recv or Pause that would wait return
	// ErrInterrupted, and so on until ClearInterrupt. Messages that are there
	// are still received. Any goroutine may call it.
	//
	// Do, Post and Wait go on for as long as the memory node answers. If it does not, and the fabric would wait for it
	// for longer than a few milliseconds, they end as well: with an error that wraps ErrInterrupted, and ErrUnknownOutcome too where the chain
	// changes memory. The chain's operations and their memory are the caller's again.
	Interrupt()

	// ClearInterrupt ends Interrupt.
	ClearInterrupt()

	// Abandon gives the inbox up: messages that are in it or still come for
	// this ID go to the node's agent (in order), and the Port gets a new ID
	// with an empty inbox. A waiter that is cancelled does this: its grant may
	// be on its way, and the agent passes it on. The agent calls Node.Retire
	// once the message has come.
	Abandon() error

	// Stats returns the Port's counters. They are updated by its goroutine.
	Stats() *Stats

	// Close returns the client's resources. No operation should be under way. If another goroutine is in one, as when a node is closed under
	// its clients, the operation ends with its true outcome, or with ErrClosed as soon as Interrupt would end it: and with ErrUnknownOutcome
	// too where it may have changed memory. It never succeeds without its results. The same holds for Wait, for a chain that was posted
	// before. Close takes no memory of Alloc away, and Alloc and Free go on working: the owner may be in the middle of using it.
	Close() error
}

// A Pending is a posted chain.
type Pending uint64

// Caps tells what a fabric can do beyond READ, WRITE, CAS and FAA.
type Caps struct {
	Fabric     string // "shm", "sim", "verbs", "tcp": for messages to people only, never for protocol
	Masked     bool   // MaskedCAS, MaskedFAA
	Atomic16   bool   // MaskedCAS16, MaskedFAA16
	Inline     int    // bytes of a WRITE that cost no extra DMA
	MaxAtomics int    // READs and atomics in flight per queue pair
	// ReadsInOrder: a READ of a chain sees memory as it is after the READs before it. NICs execute
	// READs in order, but fetch the memory over a bus that may exchange them.
	ReadsInOrder bool
	// GlobalAtomics: atomics of Port.Do and those of Local.DoLocal are atomic with each other (the verbs' IBV_ATOMIC_GLOB). Otherwise (IBV_ATOMIC_HCA)
	// one of Do looks to CPUs like a READ, and then a WRITE of what it leaves behind. READs and WRITEs of aligned words are atomic with all in any case.
	GlobalAtomics bool
	// CutsEpochs: once a memory node is in a new epoch, nothing that was posted in one before changes its memory any more. (Where CPUs of compute
	// nodes execute operations, one may be in the middle of a WRITE.)
	CutsEpochs bool
}

// Stats counts what a Port did.
type Stats struct {
	Chains     uint64             `json:"chains"` // doorbells towards memory nodes
	Ops        [numOpKinds]uint64 `json:"ops"`
	ReadBytes  uint64             `json:"read_bytes"`
	WriteBytes uint64             `json:"write_bytes"`
	Sent       uint64             `json:"sent"`       // messages to other compute nodes
	SentLocal  uint64             `json:"sent_local"` // messages to the own compute node
	Unknown    uint64             `json:"unknown"`    // chains that have ended with ErrUnknownOutcome
	Local      uint64             `json:"local"`      // operations by the own CPU (Local.DoLocal), which count nowhere else
}

// Add adds the counters of t, such as those of another Port, to s.
func (s *Stats) Add(t *Stats) { stats.Add(s, t) }

// Total returns the number of operations on memory nodes.
func (s *Stats) Total() uint64 {
	var n uint64
	for _, c := range s.Ops {
		n += c
	}
	return n
}

// Count counts a chain. Backends call it for each chain that they post.
func (s *Stats) Count(ops []Op) {
	s.Chains++
	for i := range ops {
		o := &ops[i]
		s.Ops[o.Kind]++
		n := uint64(8)
		if o.Buf != nil {
			n = uint64(len(o.Buf))
		}
		switch o.Kind {
		case OpRead:
			s.ReadBytes += n
		case OpWrite:
			s.WriteBytes += n
		}
	}
}

// CountFill counts a WRITE of n bytes by Filler.Fill.
func (s *Stats) CountFill(n int) {
	s.Chains++
	s.Ops[OpWrite]++
	s.WriteBytes += uint64(n)
}

// CountError counts the error of a chain that has ended, and returns it. Backends call it before Do or Wait returns an error.
func (s *Stats) CountError(err error) error {
	if errors.Is(err, ErrUnknownOutcome) {
		s.Unknown++
	}
	return err
}

// A Node is a compute node's membership of a cluster: it opens Ports, and
// knows the other nodes. Its methods may be called by any goroutine.
type Node interface {
	// ID returns the number of this compute node.
	ID() CNID

	// Caps returns what the fabric can do.
	Caps() Caps

	// Memory lists the memory nodes of the cluster, by ID.
	Memory() []Memory

	// View returns the live compute nodes, this one among them. When it
	// changes, the agent gets a MsgView.
	View() View

	// Open returns a Port for a new client, or ErrTooManyClients.
	Open() (Port, error)

	// Agent returns the Port of the node's agent (index 0), always the same.
	Agent() Port

	// Retire makes an abandoned ID free for new clients. The agent calls it.
	Retire(id ClientID)

	// MemoryEpoch returns, without an operation, which epoch a memory node is in now, or was in last: before any client can use it in that
	// epoch. 0: not known. It takes some nanoseconds, and allocates nothing.
	MemoryEpoch(MemID) uint32

	// Leased reports whether this node's lease lasts, by its own clock: while it does, no other node is granted what this one holds on
	// replicated memory nodes (Memory.Term). A node that stood still may find that it has ended before any news says so. It takes some tens of
	// nanoseconds, and allocates nothing. A node without a lease: true.
	Leased() bool

	// Close leaves the cluster: closes all Ports.
	Close() error

	// Fail is Close for a Node that leaves something behind in the queues of locks. It leaves the cluster as one that has crashed does:
	// View.Lost grows for the others, so that they look at once for locks that are not going to be released.
	Fail() error
}

// Members is a Node that tells the processes apart that have had the number of a compute node, and can end the membership of one: for tools.
type Members interface {
	// Incarnation returns which of the processes that have had a number is a live compute node (Node.View) with it now; 0: none.
	Incarnation(CNID) uint64
	// Expel declares an incarnation of another compute node dead, as if it had crashed, whatever it does: nothing of it reaches memory any more once Incarnation is
	// another one. What cannot be kept from memory otherwise is killed. It does nothing if that incarnation has ended, and does not wait.
	Expel(id CNID, incarnation uint64) error
}

// Memory describes a memory node.
type Memory struct {
	ID    MemID  `json:"id"`
	Size  uint64 `json:"size"`  // bytes
	Epoch uint32 `json:"epoch"` // grows with every restart of the memory node
	// Term counts the promotions of a memory node that is replicated, from 1; 0: it is not replicated.
	Term uint32 `json:"term,omitempty"`
}

// A View is the set of live compute nodes at a time. Epoch grows with each change.
type View struct {
	Epoch uint64
	Live  CNSet
	// Lost grows when a compute node has crashed or was declared dead, and not when one leaves. (A number
	// may be in use again by the time that anyone looks.)
	Lost uint64
}

// Dead returns the numbers that no live compute node has.
func (v View) Dead() CNSet {
	var dead CNSet
	for i, w := range v.Live {
		dead[i] = ^w
	}
	return dead
}

// A CNSet is a set of compute nodes. The zero value is empty.
type CNSet [4]uint64

// Add adds c.
func (s *CNSet) Add(c CNID) { s[c>>6] |= 1 << (c & 63) }

// Remove removes c.
func (s *CNSet) Remove(c CNID) { s[c>>6] &^= 1 << (c & 63) }

// Has reports whether c is in the set.
func (s CNSet) Has(c CNID) bool { return s[c>>6]>>(c&63)&1 != 0 }

// Len returns the number of members.
func (s CNSet) Len() int {
	n := 0
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// Next returns the smallest member greater than c, and whether there is one.
// Next(0) is the first.
func (s CNSet) Next(c CNID) (CNID, bool) {
	for i := int(c) + 1; i <= int(MaxCN); {
		w := s[i>>6] >> (i & 63)
		if w != 0 {
			return CNID(i + bits.TrailingZeros64(w)), true
		}
		i = (i>>6 + 1) << 6
	}
	return 0, false
}
