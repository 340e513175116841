package verbs

import (
	"errors"

	"github.com/declock/declock/fabric/internal/peer"
)

// Errors of Serve, Join and Devices, for errors.Is. What they are wrapped in says
// what was tried and what to do. Errors of operations and messages are those
// of package fabric.
var (
	// Refused before anything was touched.

	ErrOptions = peer.ErrOptions

	// This machine does not allow it.

	// ErrUnavailable: no RDMA library, or a program built without it.
	ErrUnavailable = errors.New("verbs: RDMA is not available")
	ErrNoDevice    = errors.New("verbs: no usable RDMA device")
	ErrMemlock     = errors.New("verbs: the limit of locked memory is too low")
	ErrNoMemory    = errors.New("verbs: not enough memory")
	ErrNoHuge      = errors.New("verbs: no huge pages")

	// ErrSuperseded: the cluster has given this memory node up, and another process has served its number since: what is in memory
	// here is older.
	ErrSuperseded = peer.ErrSuperseded

	// The others do not allow it.

	ErrAuth     = peer.ErrAuth
	ErrVersion  = peer.ErrVersion
	ErrProtocol = peer.ErrProtocol
	ErrLost     = peer.ErrLost
)
