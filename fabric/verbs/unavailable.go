//go:build !cgo || shmonly

package verbs

import (
	"context"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

// A MemoryServer is a memory node.
type MemoryServer struct{ member.MemoryServer }

func unavailable() error {
	return fmt.Errorf("%w: this program was built without cgo; build it with CGO_ENABLED=1, gcc and "+
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

// Device returns which end of the network it uses.
func (*MemoryServer) Device() Candidate { return Candidate{} }
