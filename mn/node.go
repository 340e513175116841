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

// A Host is a Server that may have replicas of memory-node numbers.
type Host interface {
	// Replicated reports whether its own number is replicated: then it may be another that serves it.
	Replicated() bool
	// FormatCopies has the memory of each replica formatted, those to come too.
	FormatCopies(format func(fabric.Copy) error) error
}

// Start formats the memory of a server, unless it is formatted already with
// the same parameters (a restart that kept the memory). It closes the server if that fails.
func Start(srv Server, cfg Config) (*Node, error) {
	if err := format(srv, cfg); err != nil {
		return nil, errors.Join(err, srv.Close())
	}
	return &Node{srv: srv}, nil
}

// format formats new memory.
func format(srv Server, cfg Config) error {
	p, err := params(cfg)
	if err != nil {
		return err
	}
	h, ok := srv.(Host)
	if ok {
		if err := h.FormatCopies(func(c fabric.Copy) error { return formatCopy(c, p) }); err != nil {
			return err
		}
	}
	if ok && h.Replicated() {
		return nil
	}
	var u [16]byte
	if _, err := rand.Read(u[:]); err != nil {
		return err
	}
	// The epoch in which it is new is its generation: that tells it from memory that the node has lost.
	p.Size, p.Generation = srv.Size()&^63, srv.Epoch()-1
	return memory.FormatOwn(srv.ID(), words{srv.Word}, p, memory.UUID{binary.LittleEndian.Uint64(u[:]), binary.LittleEndian.Uint64(u[8:])})
}

// formatCopy formats a replica as each other host of the number does: they are one memory. What names it is in the configuration, so no host asks another.
func formatCopy(c fabric.Copy, p memory.Params) error {
	p.Size, p.Generation, p.Factor = c.Size&^63, c.Began-1, uint8(c.Factor)
	return memory.FormatOwn(c.ID, words{c.Word}, p, memory.UUID{c.Origin, uint64(c.Began)<<32 | uint64(c.ID)})
}

// params returns how new memory is formatted, but for its size and generation.
func params(cfg Config) (p memory.Params, err error) {
	y, least, err := layout(cfg)
	if err != nil {
		return p, err
	}
	if cfg.VersionBits != 0 {
		y.VersionBits = cfg.VersionBits
	}
	return memory.Params{CapacityLog2: y.CapacityBits, LeastLog2: least, VersionBits: y.VersionBits}, y.Validate()
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
type words struct {
	at func(offset uint64) *atomic.Uint64
}

func (w words) Load(offset uint64) uint64 { return w.at(offset).Load() }

func (w words) Store(offset, v uint64) { w.at(offset).Store(v) }

// Close stops serving.
func (n *Node) Close() error { return n.srv.Close() }
