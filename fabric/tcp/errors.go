package tcp

import (
	"errors"

	"github.com/declock/declock/fabric/internal/peer"
)

// Errors of Serve and Join, for errors.Is. What they are wrapped in says what was tried and what
// to do. Errors of operations and messages are those of package fabric; those of
// joining are those of package member.
var (
	// Refused before anything was touched.

	ErrOptions = peer.ErrOptions

	// This machine does not allow it.

	ErrNoMemory = errors.New("tcp: not enough memory")
	ErrFormat   = errors.New("tcp: not a file of memory of this version")
	ErrInUse    = errors.New("tcp: in use")
	// ErrTruncated: the file of the memory is shorter than it was, or its file system has no memory for all of it. What was in it is lost.
	ErrTruncated = errors.New("tcp: a file has lost its memory")

	// ErrSuperseded: the cluster has given this memory node up, and another process has served its number since: what is in memory
	// here is older.
	ErrSuperseded = peer.ErrSuperseded

	// The others do not allow it.

	ErrAuth     = peer.ErrAuth
	ErrVersion  = peer.ErrVersion
	ErrProtocol = peer.ErrProtocol
	ErrLost     = peer.ErrLost
)
