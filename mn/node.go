package mn

import (
	"context"
	"errors"
	"fmt"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/region"
)

// A Server is a backend's side of a memory node: memory that is registered and
// can be reached, until Close. shm.MemoryServer is one.
type Server interface {
	ID() fabric.MemID
	Size() uint64 // bytes
	Epoch() uint32
	Close() error
}

// Config of a memory node.
type Config struct {
	// Participants is how many there may be at a time in a lock's queue, and decides its
	// length: the compute nodes, or with the policy "cql" all their sessions.
	Participants int
	// VersionBits of queue entries; 0 is the widest. See cql.Layout.
	VersionBits uint8
	// Join makes the process a compute node for the moment of formatting: a
	// memory node's memory is formatted through the fabric, like all that is done to it.
	Join func(ctx context.Context) (fabric.Node, error)
}

// A Node is a memory node that serves.
type Node struct {
	srv Server
}

// Start formats the memory of a server, unless it is formatted already with
// the same parameters (a restart that kept the memory). It closes the server if that fails.
func Start(ctx context.Context, srv Server, cfg Config) (*Node, error) {
	if err := format(ctx, srv, cfg); err != nil {
		return nil, errors.Join(err, srv.Close())
	}
	return &Node{srv: srv}, nil
}

func format(ctx context.Context, srv Server, cfg Config) error {
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
	node, err := cfg.Join(ctx)
	if err != nil {
		return fmt.Errorf("mn: joining to format memory node %v: %w", srv.ID(), err)
	}
	defer node.Close()
	p, err := node.Open()
	if err != nil {
		return err
	}
	defer p.Close()
	return region.Format(p, srv.ID(), region.Params{
		Size:         srv.Size() &^ 63,
		CapacityLog2: y.CapacityBits,
		VersionBits:  y.VersionBits,
		Dead:         node.View().Dead(),
	})
}

// Server returns the backend's side.
func (n *Node) Server() Server { return n.srv }

// Run serves until ctx ends, then closes. It sleeps: clients do all the work.
func (n *Node) Run(ctx context.Context) error {
	<-ctx.Done()
	return n.Close()
}

// Close stops serving.
func (n *Node) Close() error { return n.srv.Close() }
