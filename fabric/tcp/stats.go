package tcp

import "github.com/declock/declock/fabric"

// ServerStats are counters of a memory node since it began to serve.
type ServerStats struct {
	Ops         map[fabric.OpKind]uint64
	ReadBytes   uint64 // of memory
	WriteBytes  uint64
	Frames      uint64 // chains, or parts of long ones
	Batches     uint64 // times that frames were taken off a connection
	Connections int    // now
}
