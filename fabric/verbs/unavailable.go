//go:build !linux || !cgo

package verbs

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/declock/declock/fabric"
)

// A MemoryServer is a memory node.
type MemoryServer struct{}

func unavailable() error {
	return fmt.Errorf("%w: this program was built without cgo or not for Linux; build it on Linux with CGO_ENABLED=1, gcc and "+
		"libibverbs-dev (Debian, Ubuntu) or rdma-core-devel (Fedora, RHEL)", ErrUnavailable)
}

// Serve starts a memory node. Here it cannot.
func Serve(_ context.Context, o Options) (*MemoryServer, error) {
	if err := o.checkServe(); err != nil {
		return nil, err
	}
	return nil, unavailable()
}

// Join makes the process a compute node of a cluster. Here it cannot.
func Join(_ context.Context, o Options) (fabric.Node, error) {
	if err := o.checkJoin(); err != nil {
		return nil, err
	}
	return nil, unavailable()
}

// ID returns the number of the memory node.
func (*MemoryServer) ID() fabric.MemID { return 0 }

// Size returns the length of its memory in bytes.
func (*MemoryServer) Size() uint64 { return 0 }

// Epoch returns the present epoch.
func (*MemoryServer) Epoch() uint32 { return 0 }

// Away says why it does not serve at present.
func (*MemoryServer) Away() error { return nil }

// Word returns nothing.
func (*MemoryServer) Word(uint64) *atomic.Uint64 { return nil }

// Addr returns the address of the control service.
func (*MemoryServer) Addr() net.Addr { return nil }

// Done is closed when it does not serve any more.
func (*MemoryServer) Done() <-chan struct{} { return nil }

// Err says why it does not serve any more.
func (*MemoryServer) Err() error { return nil }

// Device returns which end of the network it uses.
func (*MemoryServer) Device() Candidate { return Candidate{} }

// Close stops serving.
func (*MemoryServer) Close() error { return nil }
