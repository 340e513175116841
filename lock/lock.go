package lock

import (
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/internal/stats"
)

// Mode is how a lock is held.
type Mode uint8

// Shared admits other shared holders; Exclusive admits no other. Update admits the shared holders that were there before, and none that come after: its
// holder reads what it may be going to change, and then calls [Upgrader.Upgrade]. Only an Upgrader has it; other Lockers return ErrMisuse, and get it from ForUpdate.
const (
	Shared Mode = iota
	Exclusive
	Update
)

func (m Mode) String() string {
	switch m {
	case Shared:
		return "shared"
	case Exclusive:
		return "exclusive"
	case Update:
		return "update"
	}
	return fmt.Sprintf("Mode(%d)", uint8(m))
}

// A Token is a fencing token: every exclusive grant of a lock has a greater
// one than all grants before, also across resets. A shared grant's token is
// not smaller than that of any exclusive grant before it. Only tokens of one lock compare.
type Token uint64

// Errors of Acquire and Release, for errors.Is. Errors of the fabric come wrapped.
var (
	// ErrBusy: Try, and the lock is not free for the mode.
	ErrBusy = errors.New("lock: busy")
	// ErrTimeout: the deadline came before the grant. The lock is not held.
	ErrTimeout = errors.New("lock: deadline exceeded while waiting")
	// ErrCanceled: the Port was interrupted before the grant. The lock is not held.
	ErrCanceled = errors.New("lock: canceled while waiting")
	// ErrLost: the lock was taken from this holder (its node was declared dead, or the
	// lock was reset after a failure). What it wrote since may not count.
	ErrLost = errors.New("lock: lost")
	// ErrMemoryLost: the memory node has come back without the memory that it had, which contained the lock, object or tree node of
	// the operation. A client gets this error at least once, and then for each address in the memory that is gone.
	ErrMemoryLost = errors.New("lock: memory node has restarted without its memory")
	// ErrCorrupt: the lock's bytes in remote memory make no sense.
	ErrCorrupt = errors.New("lock: corrupt lock memory")
	// ErrExhausted: the lock has been acquired so often that its tokens would
	// start again. Its memory must be formatted anew.
	ErrExhausted = errors.New("lock: fencing tokens exhausted")
	// ErrMisuse: released twice, with another mechanism's Hold, or asked for where no lock can be. A bug of the caller.
	ErrMisuse = errors.New("lock: misuse")
	// ErrDeadlock: the client would wait for a lock that it holds itself. A bug of the caller: locks are not reentrant.
	ErrDeadlock = errors.New("lock: client holds this lock already")
)

// ErrNotExecuted: operations that a Release has deferred to the next holder (Hold.Deferred) were executed by none, nor will they be.
var ErrNotExecuted = errors.New("lock: deferred operations were not executed")

// ErrOverdue: a lock has been held for longer than its lease. It is held still.
var ErrOverdue = errors.New("lock: held for longer than its lease")

// A Loss is a hold that is not valid any more: others may have the lock.
type Loss struct {
	Lock  fabric.Addr
	Mode  Mode
	Token Token // of the grant; holders of a shared lock have it in common
	Err   error // wraps ErrLost
}

// MaxPiggyback is the largest number of operations that Request.Reads or Release's before may have.
const MaxPiggyback = 8

// MaxHandoff is the largest size of a Hold's Handoff in bytes: longer ones are not left.
const MaxHandoff = 4096

// A Request says what to acquire.
type Request struct {
	Lock fabric.Addr // of the lock's first byte
	Mode Mode
	// Try gives ErrBusy instead of waiting.
	Try bool
	// Deadline bounds the waiting; 0 is for ever.
	Deadline fabric.Time
	// Since is when the caller has begun to wait for a memory node that is being replaced, which is waited for within a bound: 0 is now.
	Since fabric.Time
	// Reads are READs on the lock's memory node that are executed under the
	// lock: in the same chain as the acquire if the lock is free, else after the grant.
	// Their results are valid when Acquire returns nil. At most MaxPiggyback.
	Reads []fabric.Op
	// LeaseNs, if more than the mechanism's lease, asks for one of at least so long, where the mechanism can choose it for each hold. Others ignore it.
	LeaseNs fabric.Time
	// Handoff is memory for what the last exclusive holder left (Hold.Handoff), if the lock has not been away from this
	// compute node since. When that is there and fits, HandoffLen is its length, and Reads are not executed. Only
	// exclusive holders get handoffs, and only from mechanisms that hand locks over within a node. Acquire sets HandoffLen and
	// Deferred anew.
	Handoff    []byte
	HandoffLen int
	// Deferred is the Hold.Deferred that came with the handoff, or 0. If not 0, earlier holders wait for operations
	// that they have deferred to this one. Its own in Release must include them. A Release without any leaves them undone: theirs return ErrNotExecuted, and they do them themselves.
	Deferred uint64
	// Same names what the caller is about to change, as bytes that stay as they are until Acquire returns. A holder whose Hold.Same is not nil defers its operations only to a
	// client whose Request.Same are the same bytes.
	Same []byte
}

// Until returns until when to wait: the deadline, or fabric.Forever.
func (r *Request) Until() fabric.Time {
	if r.Deadline == 0 {
		return fabric.Forever
	}
	return r.Deadline
}

// A Hold is a lock held, from Acquire to Release. The caller owns the memory and can use
// it again; the zero value is ready. It must not be copied while held.
type Hold struct {
	Lock  fabric.Addr
	Mode  Mode
	Token Token

	// Handoff, set before Release by an exclusive holder, is left to the next holder of this compute node: what that
	// would else have to READ, as it is after the operations of Release. The mechanism copies it, if
	// a client waits and these have succeeded. At most MaxHandoff bytes. It counts for one Release.
	Handoff []byte
	// Deferred, if not 0, says that the operations of Release may be deferred to the next holder, which then gets this number
	// with the handoff: it may find a way to do both with as many. Release returns all the same only when
	// they have been executed, by whichever holder, and with that error: nothing is acknowledged before. Only holders know what the number means.
	Deferred uint64
	// Same restricts Deferred to a next holder with these bytes in Request.Same; nil: to any.
	Same []byte
	// Left says, after Release, that its operations were deferred to a later holder: their results are not there.
	Left bool

	// Aux and Word are the mechanism's own, from Acquire to Release: what it knows of this hold, and by which it notices a Hold that
	// is not its own.
	Aux  any
	Word uint64
	// Held reports whether the Hold holds the lock.
	Held bool
}

// A Locker is one client's access to the locks of one mechanism. One
// goroutine uses it at a time. A client may hold several locks, each with a Hold of its own.
//
// The inbox of the Port is the Locker's: while it waits, it takes every message,
// and drops those that are not for it.
type Locker interface {
	// Acquire acquires r.Lock in r.Mode and fills h. If it returns an error,
	// the lock is not held, now or later. ErrBusy, ErrTimeout and ErrCanceled leave the lock's queue consistent.
	Acquire(h *Hold, r *Request) error

	// Release executes the operations of before (at most MaxPiggyback, on the
	// lock's memory node) under the lock, in order, and releases it; in one
	// chain where the mechanism can. The Hold is free afterwards, whatever the error
	// (but for ErrMisuse, when nothing has been done).
	// If an operation of before failed, the lock is released all the same.
	// ErrLost and fabric.ErrStaleEpoch: the memory node has restarted, or another has taken its place, and until then no other
	// client had the lock, but by this release.
	//
	// The Hold is of an Acquire of this Locker. One of another mechanism, and one that has been released, is ErrMisuse. One of another
	// client is the caller's bug: a mechanism may refuse it (ErrMisuse) or release the lock in that client's name.
	Release(h *Hold, before []fabric.Op) error

	// Port returns the client's Port.
	Port() fabric.Port

	// Stats returns the client's counters, updated by its goroutine.
	Stats() *Stats
}

// An Upgrader is a Locker that has update locks.
type Upgrader interface {
	Locker
	// Upgrade makes a hold in mode Update exclusive: it waits until the shared holders from before have released. No other client can have changed anything
	// since the hold was acquired, for no other can have held the lock for update or exclusively. Of the request only Try and Deadline count.
	// After ErrBusy, ErrTimeout, ErrCanceled, and an error of the fabric, the hold is what it was. ErrLost: the lease has ended, and the Hold is free.
	Upgrade(h *Hold, r *Request) error
}

// An Attacher is a Locker that follows memory nodes through their restarts.
type Attacher interface {
	// Attach attaches the client to a memory node as it is now. It fails if the client holds a lock that was lost
	// with the memory node, and if the memory node is not back. ErrMemoryLost: it has come back without its memory: the client is notified
	// once, and is attached to the new memory then.
	Attach(mn fabric.MemID) error

	// Ready attaches the client to the memory node of an address if it has not been, or if the compute node knows that this has
	// restarted since: before anything else of the client reaches that memory, which may be another one.
	// ErrMemoryLost: it is another one than that of the address.
	Ready(a fabric.Addr) error
}

// Replicated reports whether the memory of a memory node is replicated: when it is down, another may be about to take its place.
func Replicated(l Locker, mn fabric.MemID) bool {
	r, ok := plain(l).(interface{ Replicated(mn fabric.MemID) bool })
	return ok && r.Replicated(mn)
}

// Renew attaches a client to a memory node as it is now, whatever has been lost: for a client that has nothing there, or knows.
func Renew(l Locker, mn fabric.MemID) error {
	a, ok := plain(l).(Attacher)
	if !ok {
		return nil
	}
	err := a.Attach(mn)
	if errors.Is(err, ErrMemoryLost) {
		err = a.Attach(mn) // once notified
	}
	return err
}

// Do executes a chain for a client besides its locks. If the memory node has restarted since the client attached
// to it, and nothing of the chain has been executed, it is executed anew. Nothing is executed in memory that is not
// what it was when the compute node came to know it.
func Do(l Locker, ops []fabric.Op) error {
	a, ok := plain(l).(Attacher)
	if !ok || len(ops) == 0 {
		return l.Port().Do(ops)
	}
	if err := a.Ready(ops[0].Addr); err != nil {
		return err
	}
	err := l.Port().Do(ops)
	if err == nil || !errors.Is(err, fabric.ErrStaleEpoch) {
		return err
	}
	var chain *fabric.ChainError
	if !errors.As(err, &chain) || chain.Index > 0 {
		return err
	}
	again := a.Attach(ops[0].Addr.MN())
	if again == nil {
		again = a.Ready(ops[0].Addr)
	}
	if again != nil {
		return errors.Join(err, again)
	}
	return l.Port().Do(ops)
}

// Ready is Attacher.Ready, of a Locker that has it.
func Ready(l Locker, a fabric.Addr) error {
	if k, ok := plain(l).(Attacher); ok {
		return k.Ready(a)
	}
	return nil
}

// A Leaver is a Locker that knows when its compute node has nothing more to do with some locks.
type Leaver interface {
	// Left reports whether the compute node has no ticket in the queues of some locks, and none that it could not give up, and takes part in no
	// reset. No client of the compute node uses the locks any more. begun is 0 at first, and the same until Left returns true: it is called
	// again and again. One goroutine of a compute node at a time calls it.
	Left(begun *uint64, some func(fabric.Addr) bool) bool
}

// Left calls Leaver.Left, if a Locker has that: else it returns false.
func Left(l Locker, begun *uint64, some func(fabric.Addr) bool) bool {
	k, ok := plain(l).(Leaver)
	return ok && k.Left(begun, some)
}

// Leaves reports whether a Locker is a Leaver.
func Leaves(l Locker) bool {
	_, ok := plain(l).(Leaver)
	return ok
}

// A Trimmer is a Locker that keeps the operations of its last chains, and with them memory that the client has freed.
type Trimmer interface{ Trim() }

// Trim has a Locker forget the operations of its last chains, if it keeps them.
func Trim(l Locker) {
	if t, ok := plain(l).(Trimmer); ok {
		t.Trim()
	}
}

// Path returns the Port of a client, of which the chains are executed by Do.
func Path(l Locker) fabric.Port { return path{l.Port(), l} }

type path struct {
	fabric.Port
	l Locker
}

func (p path) Do(ops []fabric.Op) error { return Do(p.l, ops) }

// Under implements fabric.Under.
func (p path) Under() fabric.Port { return p.Port }

// Layout says how a mechanism lays out its locks in memory.
type Layout struct {
	Size  uint64 // bytes of one lock
	Align uint64 // alignment of its first byte
}

// Stats counts what a Locker did.
type Stats struct {
	Acquires   uint64 `json:"acquires"`    // granted
	Immediate  uint64 `json:"immediate"`   // granted by the memory node at once
	Waits      uint64 `json:"waits"`       // waited for a grant from another compute node
	LocalJoins uint64 `json:"local_joins"` // granted locally without waiting: shared with holders of the own node
	LocalWaits uint64 `json:"local_waits"` // waited for another client of the own node

	HandoversLocal  uint64 `json:"handovers_local"`  // releases that passed the lock on within the node
	HandoversRemote uint64 `json:"handovers_remote"` // notifications sent to other nodes or queue entries

	// Operations on memory nodes to acquire or to enter a queue: FAA or CAS, WRITE of an entry. Reads, Prefetches, rechecks of long waits and
	// releases are not counted here.
	AcquireOps uint64 `json:"acquire_ops"`
	Retries    uint64 `json:"retries"`    // operations repeated because the lock was busy (spinning locks)
	Refetches  uint64 `json:"refetches"`  // queue READs repeated in a release (paper section 4.3)
	Prefetches uint64 `json:"prefetches"` // READs of a queue for remote timestamps, by clients that begin to wait for another of their node (section 5.3)
	Aborts     uint64 `json:"aborts"`     // acquisitions aborted by a reset and begun again
	Resets     uint64 `json:"resets"`     // resets asked for
	Busy       uint64 `json:"busy"`       // Try without success
	Cancels    uint64 `json:"cancels"`    // timeouts and cancellations
}

// Add adds the counters of t, such as those of another Locker, to s.
func (s *Stats) Add(t *Stats) { stats.Add(s, t) }
