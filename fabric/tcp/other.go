//go:build !linux

package tcp

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/declock/declock/fabric"
)

// What is here for other systems only says that there is nothing here.

// A MemoryServer is a memory node.
type MemoryServer struct{}

// Serve returns ErrUnsupported.
func Serve(context.Context, Options) (*MemoryServer, error) {
	return nil, fmt.Errorf("%w: Linux only", ErrUnsupported)
}

// Join returns ErrUnsupported.
func Join(context.Context, Options) (fabric.Node, error) {
	return nil, fmt.Errorf("%w: Linux only", ErrUnsupported)
}

func (*MemoryServer) ID() fabric.MemID { return 0 }
func (*MemoryServer) Size() uint64     { return 0 }
func (*MemoryServer) Epoch() uint32    { return 0 }

func (*MemoryServer) Word(uint64) *atomic.Uint64 { return nil }

func (*MemoryServer) Addr() net.Addr        { return nil }
func (*MemoryServer) Done() <-chan struct{} { return nil }
func (*MemoryServer) Err() error            { return nil }
func (*MemoryServer) Stats() ServerStats    { return ServerStats{} }
func (*MemoryServer) Close() error          { return nil }
