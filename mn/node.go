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
	// Participants is how many there may be at a time in a lock's queue, and decides its
	// length: the compute nodes, or with the policy "cql" all their sessions.
	Participants int
	// VersionBits of queue entries; 0 is the widest. See cql.Layout.
	VersionBits uint8
	// Trains lets compute nodes pass locks on in trains: programs that know of none cannot use the memory. See memory.TrainsVersion.
	Trains bool
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
	y, err := cql.LayoutFor(cfg.Participants)
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
		VersionBits:  y.VersionBits,
		Generation:   srv.Epoch() - 1,
		Trains:       cfg.Trains,
	}, memory.UUID{binary.LittleEndian.Uint64(u[:]), binary.LittleEndian.Uint64(u[8:])})
}

// words is the memory of a server, for its own use.
type words struct{ Server }

func (w words) Load(offset uint64) uint64 { return w.Word(offset).Load() }

func (w words) Store(offset, v uint64) { w.Word(offset).Store(v) }

// Close stops serving.
func (n *Node) Close() error { return n.srv.Close() }
