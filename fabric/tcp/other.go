//go:build !linux

package tcp

import (
	"context"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

// Other systems have stubs, whose errors say so.

// A MemoryServer is a memory node.
type MemoryServer struct{ member.MemoryServer }

// Serve returns ErrUnsupported.
func Serve(context.Context, Options) (*MemoryServer, error) {
	return nil, fmt.Errorf("%w: Linux only", ErrUnsupported)
}

// Join returns ErrUnsupported.
func Join(context.Context, Options) (fabric.Node, error) {
	return nil, fmt.Errorf("%w: Linux only", ErrUnsupported)
}

// Stats returns nothing.
func (*MemoryServer) Stats() ServerStats { return ServerStats{} }
