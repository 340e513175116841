package shm

import "errors"

// Errors of Serve, Join and the tools, for errors.Is. What they are wrapped in
// names the thing and says what to do. Errors of operations and messages are
// those of package fabric.
var (
	// Refused before anything was touched.

	ErrName        = errors.New("shm: bad cluster name")
	ErrOptions     = errors.New("shm: bad options")
	ErrUnsupported = errors.New("shm: not supported by the file system")

	// What is there does not allow it.

	ErrNoCluster = errors.New("shm: no such cluster")
	ErrInUse     = errors.New("shm: in use")
	ErrFormat    = errors.New("shm: not a file of this version of shm")
	// ErrForeign: a directory or file of the cluster belongs to another user, or other users may write to it.
	ErrForeign = errors.New("shm: not this user's own")
	// ErrTruncated: a file of the cluster is shorter than it was, or its file system has no memory for all of it. What was in it is lost.
	ErrTruncated = errors.New("shm: a file has lost its memory")
	ErrFull      = errors.New("shm: all compute node numbers are taken")
	ErrNoSpace   = errors.New("shm: not enough memory")
	ErrNoHuge    = errors.New("shm: no huge pages")
	ErrBusy      = errors.New("shm: the cluster directory stays locked")
)
