//go:build cgo && !shmonly

package verbs

import (
	"fmt"
	"io"

	"github.com/declock/declock/fabric/internal/peer"
)

// What is asked over the control protocol.
const (
	askAttach = "attach" // compute node -> memory node: attachRequest, attachReply
	askLane   = "lane"   // compute node -> memory node: laneRequest, end
	askLink   = "link"   // compute node -> compute node: linkRequest, linkReply
)

// An end is one end of a connection.
type end struct {
	QPN      uint32   `json:"qpn"`
	PSN      uint32   `json:"psn"`
	LID      uint32   `json:"lid"`
	MTU      uint32   `json:"mtu"`
	GID      [16]byte `json:"gid"`
	RDAtomic uint8    `json:"rd"` // READs and atomics that it takes at a time
}

type attachRequest struct {
	peer.Caller
	Lanes []end `json:"lanes"`
}

type attachReply struct {
	Size  uint64      `json:"size"`
	Base  uint64      `json:"base"`  // the address of offset 0
	Keys  []memoryKey `json:"keys"`  // of the regions of memory, see mapped
	Shift uint8       `json:"shift"` // the i-th region begins at offset i<<Shift
	Lanes []end       `json:"lanes"`
}

// A memoryKey gives access to a region of memory. It prints as nothing: it belongs into no log.
type memoryKey uint32

// Format implements fmt.Formatter.
func (memoryKey) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "(key)") }

type laneRequest struct {
	Index int `json:"index"`
	End   end `json:"end"`
}

type linkRequest struct {
	peer.Caller
	End end `json:"end"`
}

type linkReply struct {
	End end `json:"end"`
	// Delivered is how many messages of this incarnation of the sender have arrived.
	Delivered uint64 `json:"delivered"`
}
