package mn

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"sync/atomic"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/memory"
)

// A Server is a backend's side of a memory node: memory that is registered and
// can be reached, until Close. shm.MemoryServer is one.
type Server interface {
	ID() fabric.MemID
	Size() uint64 // bytes
	Epoch() uint32
	// Word returns a word of the memory, for the memory node's own use: offset is a multiple of 8.
	Word(offset uint64) *atomic.Uint64
	Close() error
}

// Config of a memory node.
type Config struct {
	// Participants is how many there may be at a time in a lock's queue:
	// the compute nodes, or with the policy "cql" all their sessions.
	Participants int
	// Queue is the length of a lock's queue, rounded up to a power of two. 0: that of memory which is kept, if Participants have room; in new memory
	// there is room for their trains, too.
	Queue int
	// VersionBits of queue entries; 0 is the widest. See cql.Layout.
	VersionBits uint8
}

// A Node is a memory node that serves.
type Node struct{ srv Server }

// Start formats the memory of a server, unless it is formatted already with
// the same parameters (a restart that kept the memory). It closes the server if that fails.
func Start(srv Server, cfg Config) (*Node, error) {
	if err := format(srv, cfg); err != nil {
		return nil, errors.Join(err, srv.Close())
	}
	return &Node{srv: srv}, nil
}

// format formats new memory, with the epoch in which it is new as its generation: that tells it from memory that the node has lost.
func format(srv Server, cfg Config) error {
	y, least, err := layout(cfg)
	if err != nil {
		return err
	}
	if cfg.VersionBits != 0 {
		y.VersionBits = cfg.VersionBits
	}
	if err := y.Validate(); err != nil {
		return err
	}
	var u [16]byte
	if _, err := rand.Read(u[:]); err != nil {
		return err
	}
	return memory.FormatOwn(srv.ID(), words{srv}, memory.Params{
		Size:         srv.Size() &^ 63,
		CapacityLog2: y.CapacityBits,
		LeastLog2:    least,
		VersionBits:  y.VersionBits,
		Generation:   srv.Epoch() - 1,
	}, memory.UUID{binary.LittleEndian.Uint64(u[:]), binary.LittleEndian.Uint64(u[8:])})
}

// layout returns how the locks of new memory are, and how short the queues of kept memory may be.
func layout(cfg Config) (y cql.Layout, least uint8, err error) {
	if cfg.Queue > 0 {
		y, err = cql.LayoutFor(cfg.Queue)
		return y, y.CapacityBits, err
	}
	short, err := cql.LayoutFor(cfg.Participants)
	if err != nil {
		return y, 0, err
	}
	y, err = cql.LayoutWithTrains(cfg.Participants)
	y.CapacityBits = max(min(y.CapacityBits, memory.MaxCapacityLog2), short.CapacityBits)
	return y, short.CapacityBits, err
}

// words is the memory of a server, for its own use.
type words struct{ Server }

func (w words) Load(offset uint64) uint64 { return w.Word(offset).Load() }

func (w words) Store(offset, v uint64) { w.Word(offset).Store(v) }

// Close stops serving.
func (n *Node) Close() error { return n.srv.Close() }
