package member

import (
	"net"
	"sync/atomic"
	"time"

	"github.com/declock/declock/fabric"
)

// A Contact is a [Member] that knows how it reaches the coordinator.
type Contact interface {
	// Contact returns how long ago the coordinator has last answered, and why it does not answer; nil: it does.
	Contact() (silent time.Duration, why error)
}

// A Leased is a [Member] that the coordinator gives up when no renewal of its lease reaches it, and that knows when that is.
type Leased interface {
	// LeasedUntil returns when, on the clock of package internal/boottime, the lease may end: in any case before the coordinator gives the node up for
	// want of renewals.
	LeasedUntil() time.Duration
}

// A Follower is a fabric.Node that follows the states of a coordinator, with what metrics and tools want to know of it.
type Follower interface {
	// Fenced is closed when the cluster has given this node up: all its operations are fabric.ErrFenced from then on.
	Fenced() <-chan struct{}
	// Err returns why, as an error that is fabric.ErrFenced too; nil before.
	Err() error
	// Down returns the memory nodes that the cluster has had, has not now, and expects back, with their last epochs.
	Down() []fabric.Memory
	Contact
}

// Counters are what the software NIC of a memory node has counted since it began to serve; a memory node behind a NIC of hardware has none.
type Counters struct {
	Ops         map[fabric.OpKind]uint64
	ReadBytes   uint64 // of memory
	WriteBytes  uint64
	Frames      uint64        // chains, or parts of long ones
	Batches     uint64        // times that frames were taken off a connection
	Connections int           // now
	Local       int           // compute nodes, as often as memory is lent to one, that execute operations themselves (tcp.Options.Local): now
	ByCPU       LocalCounters // what these have executed: it counts nowhere else
}

// LocalCounters are what compute nodes have executed by their own CPUs in the memory of memory nodes of their machine.
type LocalCounters struct {
	Chains     uint64 // those that were refused, and went by the network, among them
	Ops        map[fabric.OpKind]uint64
	ReadBytes  uint64
	WriteBytes uint64
}

// A Local is a fabric.Node that may execute operations by its own CPU, where memory is lent to it. Any goroutine may use it.
type Local interface {
	// Ways returns how operations on the memory nodes are executed that are up, and on copies of replicated numbers.
	Ways() []Way
	// LocalCounters returns what this node has executed since it joined.
	LocalCounters() LocalCounters
}

// A Way is how a compute node's operations on some memory are executed.
type Way struct {
	Memory fabric.MemID
	Copy   uint32 // the number of a backup (Replica.Number); 0: what serves the memory-node number
	Local  bool   // by the CPU of the compute node; else by that of the memory node, over the network
	Why    string // not local
	Chains uint64 // executed locally, since the memory was lent
}

// A MemoryServer is a memory node that follows the states of a coordinator, from Serve to Close. Any goroutine may use it.
type MemoryServer interface {
	// ID returns the number of the memory node.
	ID() fabric.MemID
	// Size returns the length of its memory in bytes.
	Size() uint64
	// Word returns a word of its memory, for its own use; it is good until Close. The offset is a multiple of 8.
	Word(offset uint64) *atomic.Uint64
	// Epoch returns the present epoch, or the last while it is not a member: it began with Serve, or when the memory node joined again.
	Epoch() uint32
	// Member returns what the coordinator knows of the memory node, or did while it was a member.
	Member() MN
	Contact
	// Addr returns the address on which it listens.
	Addr() net.Addr
	// Away says why the memory node does not serve at present: the cluster has given it up, and it joins again. nil: it serves.
	Away() error
	// Done is closed when the memory node does not serve any more, and Err says why: nil after Close, ErrInUse or the fabric's ErrSuperseded when the
	// cluster has given it up and another process has its number, or what is wrong with the memory. Then it has to be closed. (One that the cluster
	// has given up, and whose number is free, joins again with its memory: see Away.)
	Done() <-chan struct{}
	Err() error
	// Close stops serving: compute nodes get fabric.ErrNodeDown. Memory that no file keeps is gone.
	Close() error
}
